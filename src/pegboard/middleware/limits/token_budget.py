"""Limits the tokens of a result or an error: warn, reject or truncate."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias, cast, get_args

import msgspec
from msgspec import Struct

from pegboard.call import Call, Done, EncodedResult, Handler, Json, Reply
from pegboard.errors import DeclarationError, LimitReached, ToolError
from pegboard.hooks.middleware import Middleware
from pegboard.middleware.call_keys import resolve, tool_of
from pegboard.middleware.limits.json_reduction import Cut
from pegboard.middleware.limits.kept_results import SCHEME, KeptResults
from pegboard.middleware.limits.result_reduction import (
    SMALLEST,
    ReducedResult,
    fit_result,
    has_few_bytes,
    measure_result,
)
from pegboard.middleware.limits.token_estimate import Estimate, EstimateTally, Estimator
from pegboard.middleware.observability.token_count import Counter, count_tokens, texts_of
from pegboard.protocol.content import joined_text, link_block, note_block
from pegboard.protocol.json_values import as_list, as_object
from pegboard.schema.validator import Validator
from pegboard.tools.tool_result import RESULT_FORMATS, error_result

ResponseMode: TypeAlias = Literal["auto", "summary", "full"]

ARGUMENT: Final = "responseMode"
META: Final = "dev.pegboard/responseMode"


class ResponseModes(Struct, frozen=True):
    """The tokens of the modes that a caller can ask for: at most `summary` in a summary, at most `full` in full."""

    summary: int = 1_000
    full: int = 24_000


def take_mode(call: Call) -> tuple[ResponseMode, Call]:
    """The mode of a call, and the call without it: the tool gets the argument only if it declares one itself."""
    if ARGUMENT.encode() in bytes(call.raw) and ARGUMENT in call.arguments:
        mode = _read_mode(call.arguments[ARGUMENT])
        if ARGUMENT in as_object(call.tool.input_schema.get("properties")):
            return mode, call
        return mode, call.with_arguments({name: value for name, value in call.arguments.items() if name != ARGUMENT})
    if META.encode() in bytes(call.params):
        meta = as_object(as_object(msgspec.json.decode(call.params)).get("_meta"))
        if META in meta:
            return _read_mode(meta[META]), call
    return "auto", call


def _read_mode(value: Json) -> ResponseMode:
    if value not in get_args(ResponseMode):
        raise ToolError(
            f'{ARGUMENT}: got {value!r:.80}, use "auto", "summary" or "full"',
            code="invalid_arguments",
            steps=f'Call the tool again without {ARGUMENT}, or with "auto", "summary" or "full".',
        )
    return cast("ResponseMode", value)


TRUNCATED = "dev.pegboard/truncated"
NEAR_LIMIT = "dev.pegboard/nearLimit"

Action: TypeAlias = Literal["warn", "refuse", "truncate"]

_SMALLEST_PAGE = 1_000
# The cuts of structured content that `_meta` lists, and those that the note for the model lists.
_CUTS = 20
_NOTED = 5

_log = logging.getLogger("pegboard.tokens")


class Budget(Struct, frozen=True):
    """How many `tokens` a result may have, and the `action` for a larger one.

    A result of more than `warn` tokens is sent whole, with a note in the log and in `_meta`.
    """

    tokens: int
    action: Action = "truncate"
    warn: int | None = None


class TokenBudget(Middleware):
    """Limits the tokens of the results of tools: by the budget of the tool, else of its category, else `default`.

    `tools` and `categories` map names to budgets, and `counter` counts the tokens of a text.

    A number is a Budget with the `action` given here; None means no budget. `overflow` keeps the whole result of a cut or
    refused one for a while, and adds a link to it: a resource that the model reads in pages of the size of the budget.
    `kept` is where results are kept; `link` without `overflow` is for servers that answer `resources/read` themselves.

    `modes` lets callers choose the length of a result with the argument `responseMode`: true, or other sizes as a
    ResponseModes. `estimate` maps tools to an Estimate, or to a function of the call: a tool whose budget refuses is not
    run if the estimate exceeds it. `stats()` compares estimates and results.
    """

    # Inside the counter, which then counts what is sent.
    order = 110
    kinds: Collection[str] = ("tool",)

    def __init__(
        self,
        default: int | Budget | None = 10_000,
        *,
        tools: Mapping[str, int | Budget | None] | None = None,
        categories: Mapping[str, int | Budget | None] | None = None,
        action: Action = "truncate",
        overflow: bool = False,
        modes: bool | ResponseModes = False,
        estimate: Mapping[str, Estimator] | None = None,
        counter: Counter | None = None,
        kept: KeptResults | None = None,
        link: bool = False,
    ) -> None:
        if link and kept is None and not overflow:
            raise DeclarationError("link=True needs kept=KeptResults(), which the link points to; or use overflow=True")
        self._default = _budget(default, action)
        self._tools = {name: _budget(budget, action) for name, budget in (tools or {}).items()}
        self._categories = {name: _budget(budget, action) for name, budget in (categories or {}).items()}
        self._count = counter or count_tokens
        # No token is shorter than a byte, so most results need no counting; this does not hold for a custom counter.
        self._bytes_suffice = counter is None
        self._modes = _read_modes(modes)
        self._estimates = dict(estimate or {})
        self._tallies: dict[str, EstimateTally] = {}
        self.kept = KeptResults() if overflow and kept is None else kept
        self.link = link or overflow
        self.exceeded = 0
        self.warned = 0
        if overflow:
            self.serves_resources = True
            self.kinds = ("tool", "resource")

    def stats(self) -> Mapping[str, EstimateTally]:
        """Return the estimates of each tool beside the sizes of its results."""
        return dict(self._tallies)

    async def around(self, call: Call, proceed: Handler) -> Reply:
        """Run the call, and apply the budget to its result, or to the text of the error that it raised."""
        if call.kind == "resource":
            return await self._read_resource(call, proceed)
        budget = resolve(call, self._tools, self._categories, self._default)
        if self._modes is not None:
            mode, call = take_mode(call)
            budget = _budget_of(mode, budget, self._modes)
        if budget is None:
            return await proceed(call)
        estimated = self._estimate(call, budget)
        try:
            reply = await proceed(call)
        except ToolError as error:
            result = _plain(error_result(error.message))
            shortened = await self._apply(call, result, budget)
            if shortened is not result:
                note = as_object(as_object(shortened["_meta"])[TRUNCATED])
                whole = f"\nThe whole text: {note['uri']}" if "uri" in note else ""
                error.message = joined_text(shortened["content"]) + whole
                error.meta = {**(error.meta or {}), TRUNCATED: note}
            raise
        if not isinstance(reply, Done):
            return reply
        result = _plain(reply)
        if estimated is not None:
            await self._compare(call, estimated, result)
        shortened = await self._apply(call, result, budget)
        return reply if shortened is result else Done(shortened, reply.wrapped, reply.metadata)

    async def _read_resource(self, call: Call, proceed: Handler) -> Reply:
        if self.kept is None or not call.name.startswith(SCHEME):
            return await proceed(call)
        page = await self.kept.read_page(call.name, call.principal.id)
        return await proceed(call) if page is None else Done(page)

    def _estimate(self, call: Call, budget: Budget) -> int | None:
        """The estimate for a call, if there is one; LimitReached if its budget refuses it."""
        estimator = self._estimates.get(call.name)
        if estimator is None:
            return None
        estimated = call.state["tokens_estimated"] = estimator(call)
        tally = self._tallies.setdefault(call.name, EstimateTally())
        if estimated > budget.tokens and budget.action == "refuse":
            tally.refused += 1
            by = estimator.per if isinstance(estimator, Estimate) else ()
            less = f"a smaller {' or '.join(by)}" if by else "less"
            raise LimitReached(
                f"{tool_of(call)} was not run: its result would have about {estimated:,} tokens, and its budget is "
                f"{budget.tokens:,}. Ask for {less}.",
                "token_budget",
                limit=budget.tokens,
                estimated=estimated,
            )
        return estimated

    async def _compare(self, call: Call, estimated: int, result: Mapping[str, Json]) -> None:
        tally = self._tallies[call.name]
        tally.calls += 1
        tally.estimated += estimated
        tally.actual += (await measure_result(result, self._count)).tokens

    async def _apply(self, call: Call, result: Mapping[str, Json], budget: Budget) -> Mapping[str, Json]:
        failed = bool(result.get("isError"))
        threshold = budget.tokens if budget.warn is None or failed else budget.warn
        if self._bytes_suffice and has_few_bytes(result, threshold):
            return result
        size = await measure_result(result, self._count)
        if size.tokens <= threshold:
            return result
        if size.tokens <= budget.tokens:
            return self._warned_of(call, result, budget, size.tokens)
        self.exceeded += 1
        if budget.action == "warn":
            _log.warning("%s returned %d tokens, its budget is %d", tool_of(call), size.tokens, budget.tokens)
            return result
        if budget.action == "refuse" and not failed:
            raise self._refusal(call, result, budget, size.tokens)
        # The model needs the error, so even a budget that refuses results only shortens it.
        reduced = await fit_result(result, size, max(budget.tokens, SMALLEST), self._count)
        if not failed and not _fits_schema(call, reduced.result):
            raise self._refusal(
                call, result, budget, size.tokens, " It cannot be cut without violating its output schema."
            )
        return self._noted(call, result, reduced, budget.tokens, size.tokens)

    def _warned_of(self, call: Call, result: Mapping[str, Json], budget: Budget, total: int) -> Mapping[str, Json]:
        self.warned += 1
        _log.warning("%s returned %d tokens, its budget is %d", tool_of(call), total, budget.tokens)
        note = {"tokens": total, "limit": budget.tokens, "warn": budget.warn}
        return {**result, "_meta": {**as_object(result.get("_meta")), NEAR_LIMIT: note}}

    def _refusal(
        self, call: Call, result: Mapping[str, Json], budget: Budget, total: int, reason: str = ""
    ) -> LimitReached:
        uri = self._keep(call, result, budget.tokens, total)
        whole = f" The whole result can be read at {uri}." if uri else ""
        if self._modes is not None:
            whole = f' Or call it with "{ARGUMENT}": "summary".{whole}'
        figures: dict[str, Any] = {"uri": uri} if uri else {}
        return LimitReached(
            f"{tool_of(call)} ran, but its result of {total:,} tokens exceeds the budget of {budget.tokens:,} "
            f"and was not sent.{reason} Ask for less.{whole}",
            "token_budget",
            limit=budget.tokens,
            tokens=total,
            **figures,
        )

    def _noted(
        self, call: Call, whole: Mapping[str, Json], reduced: ReducedResult, limit: int, total: int
    ) -> Mapping[str, Json]:
        """The shortened result with the sizes in `_meta`, and the link to the whole one."""
        note: dict[str, Json] = {"tokens": total, "limit": limit}
        if reduced.cuts:
            note["cuts"] = [
                {"path": cut.path, "kept": cut.kept, "of": cut.of, "unit": cut.unit} for cut in reduced.cuts[:_CUTS]
            ]
        content = list(as_list(reduced.result["content"]))
        if reduced.cuts:
            # The text says in its middle what was left out; structured content cannot.
            content.append(note_block("cuts", _cut_lines(reduced.cuts), beside_structured=True))
        if self._modes is not None and limit < total <= self._modes.full:
            hint = f'For the whole result, call it with "{ARGUMENT}": "full".'
            content.append(note_block("responseMode", hint, beside_structured="structuredContent" in whole))
        uri = self._keep(call, whole, limit, total)
        if uri and self.kept is not None:
            note["uri"] = uri
            about = f"The whole result, {total:,} tokens, for {self.kept.seconds:g} s"
            content.append(link_block(uri, f"{call.name}-result", description=about))
        return {**reduced.result, "content": content, "_meta": {**as_object(whole.get("_meta")), TRUNCATED: note}}

    def _keep(self, call: Call, result: Mapping[str, Json], limit: int, total: int) -> str:
        """Keep the whole result of `total` tokens; returns the URI to send, if it is served."""
        if self.kept is None:
            return ""
        # A page has about as many tokens as the budget.
        size = sum(len(text) for text in texts_of(result))
        name = self.kept.keep(result, call.principal.id, max(_SMALLEST_PAGE, size * limit // max(1, total)))
        if name is None:
            return ""
        call.state["kept_result"] = name
        if not self.link:
            return ""
        return f"{SCHEME}{name}/1" if self.serves_resources else SCHEME + name


def _cut_lines(cuts: Sequence[Cut]) -> str:
    lines = [f"[cut] {cut.path or 'the result'}: {cut.kept:,} of {cut.of:,} {cut.unit}" for cut in cuts[:_NOTED]]
    if len(cuts) > _NOTED:
        lines.append(f"[cut] and {len(cuts) - _NOTED:,} more")
    return "\n".join(lines)


def _plain(reply: Done) -> Mapping[str, Json]:
    return reply.result.value if isinstance(reply.result, EncodedResult) else reply.result


def _fits_schema(call: Call, result: Mapping[str, Json]) -> bool:
    if call.tool.output_schema is None or "structuredContent" not in result:
        return True
    return Validator(call.tool.output_schema, formats=RESULT_FORMATS).is_valid(result["structuredContent"])


def _budget_of(mode: ResponseMode, budget: Budget | None, modes: ResponseModes) -> Budget | None:
    match mode:
        case "summary":
            return Budget(modes.summary if budget is None else min(modes.summary, budget.tokens))
        case "full":
            return None if budget is None else Budget(max(modes.full, budget.tokens), "refuse")
    return budget


def _read_modes(given: bool | ResponseModes) -> ResponseModes | None:
    modes = given if isinstance(given, ResponseModes) else ResponseModes() if given else None
    if modes is not None and not SMALLEST <= modes.summary <= modes.full:
        raise DeclarationError(
            f"modes: use at least {SMALLEST} tokens for a summary, and no fewer in full, got {modes}"
        )
    return modes


def _budget(given: int | Budget | None, action: Action) -> Budget | None:
    budget = Budget(given, action) if isinstance(given, int) else given
    # Python code may pass anything.
    checked: object = budget
    if checked is not None and not isinstance(checked, Budget):
        raise DeclarationError(f"A budget is a number of tokens, a Budget, or None for no limit, got {given!r:.80}")
    if budget is not None and budget.action not in ("warn", "refuse", "truncate"):
        raise DeclarationError(f'action={budget.action!r}: use "warn", "refuse" or "truncate"')
    if budget is not None and budget.tokens < (SMALLEST if budget.action == "truncate" else 1):
        raise DeclarationError(
            f"A budget with truncation needs at least {SMALLEST} tokens, any other at least 1, got {given!r}"
        )
    if budget is not None and budget.warn is not None and not 0 < budget.warn < budget.tokens:
        raise DeclarationError(
            f"warn={budget.warn!r}: use a number above 0 and below the {budget.tokens} tokens of the budget"
        )
    return budget
