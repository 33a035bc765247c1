"""Limits the tokens of a result or an error: warn, reject or truncate."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

from msgspec import Struct

from pegboard.call import Call, Done, EncodedResult, Handler, Json, Reply
from pegboard.errors import DeclarationError, LimitReached, ToolError
from pegboard.hooks.middleware import Middleware
from pegboard.middleware.call_keys import resolve, tool_of
from pegboard.middleware.limits.json_reduction import Cut
from pegboard.middleware.limits.kept_results import SCHEME, KeptResults
from pegboard.middleware.limits.result_reduction import ReducedResult, fit_result, has_few_bytes, measure_result
from pegboard.middleware.limits.truncation import SMALLEST
from pegboard.middleware.observability.token_count import Counter, count_tokens
from pegboard.protocol.content import joined_text, link_block, note_block
from pegboard.protocol.json_values import as_list, as_object
from pegboard.schema.validator import Validator
from pegboard.tools.tool_result import RESULT_FORMATS, error_result

TRUNCATED = "dev.pegboard/truncated"

Action: TypeAlias = Literal["warn", "refuse", "truncate"]

# The cuts of structured content that `_meta` lists, and those that the note for the model lists.
_CUTS = 20
_NOTED = 5

_log = logging.getLogger("pegboard.tokens")


class Budget(Struct, frozen=True):
    """How many tokens a result may have, and what happens to a larger one."""

    tokens: int
    action: Action = "truncate"


class TokenBudget(Middleware):
    """Limits the tokens of the results of tools: by the budget of the tool, else of its category, else `default`.

    `tools` and `categories` map names to budgets, and `counter` counts the tokens of a text.

    A number is a Budget with the `action` given here; None means no budget. `kept` keeps the whole result when it is
    cut; `link` adds a link to it, for servers that answer `resources/read` with `kept.read`.
    """

    # Inside the counter, which then counts what is sent.
    order = 110
    kinds = ("tool",)

    def __init__(
        self,
        default: int | Budget | None = 10_000,
        *,
        tools: Mapping[str, int | Budget | None] | None = None,
        categories: Mapping[str, int | Budget | None] | None = None,
        action: Action = "truncate",
        counter: Counter | None = None,
        kept: KeptResults | None = None,
        link: bool = False,
    ) -> None:
        if link and kept is None:
            raise DeclarationError("link=True needs kept=KeptResults(), which the link points to")
        self._default = _budget(default, action)
        self._tools = {name: _budget(budget, action) for name, budget in (tools or {}).items()}
        self._categories = {name: _budget(budget, action) for name, budget in (categories or {}).items()}
        self._count = counter or count_tokens
        # No token is shorter than a byte, so most results need no counting; this does not hold for a custom counter.
        self._bytes_suffice = counter is None
        self.kept = kept
        self.link = link
        self.exceeded = 0

    async def around(self, call: Call, proceed: Handler) -> Reply:
        """Run the call, and apply the budget to its result, or to the text of the error that it raised."""
        budget = resolve(call, self._tools, self._categories, self._default)
        if budget is None:
            return await proceed(call)
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
        shortened = await self._apply(call, result, budget)
        return reply if shortened is result else Done(shortened, reply.wrapped, reply.metadata)

    async def _apply(self, call: Call, result: Mapping[str, Json], budget: Budget) -> Mapping[str, Json]:
        if self._bytes_suffice and has_few_bytes(result, budget.tokens):
            return result
        size = await measure_result(result, self._count)
        if size.tokens <= budget.tokens:
            return result
        self.exceeded += 1
        if budget.action == "warn":
            _log.warning("%s returned %d tokens, its budget is %d", tool_of(call), size.tokens, budget.tokens)
            return result
        failed = bool(result.get("isError"))
        if budget.action == "refuse" and not failed:
            raise self._refusal(call, result, budget, size.tokens)
        # The model needs the error, so even a budget that refuses results only shortens it.
        reduced = await fit_result(result, size, max(budget.tokens, SMALLEST), self._count)
        if not failed and not _fits_schema(call, reduced.result):
            raise self._refusal(
                call, result, budget, size.tokens, " It cannot be cut without violating its output schema."
            )
        return self._noted(call, result, reduced, budget.tokens, size.tokens)

    def _refusal(
        self, call: Call, result: Mapping[str, Json], budget: Budget, total: int, reason: str = ""
    ) -> LimitReached:
        uri = self._keep(call, result)
        whole = f" The whole result can be read at {uri}." if uri else ""
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
        uri = self._keep(call, whole)
        if uri and self.kept is not None:
            note["uri"] = uri
            about = f"The whole result, {total:,} tokens, for {self.kept.seconds:g} s"
            content.append(link_block(uri, f"{call.name}-result", description=about))
        return {**reduced.result, "content": content, "_meta": {**as_object(whole.get("_meta")), TRUNCATED: note}}

    def _keep(self, call: Call, result: Mapping[str, Json]) -> str:
        """Keep the whole result; returns the URI to send, if the author serves it."""
        name = None if self.kept is None else self.kept.keep(result, call.principal.id)
        if name is None:
            return ""
        call.state["kept_result"] = name
        return SCHEME + name if self.link else ""


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


def _budget(given: int | Budget | None, action: Action) -> Budget | None:
    budget = Budget(given, action) if isinstance(given, int) else given
    if budget is not None and budget.action not in ("warn", "refuse", "truncate"):
        raise DeclarationError(f'action={budget.action!r}: use "warn", "refuse" or "truncate"')
    if budget is not None and budget.tokens < (SMALLEST if budget.action == "truncate" else 1):
        raise DeclarationError(
            f"A budget with truncation needs at least {SMALLEST} tokens, any other at least 1, got {given!r}"
        )
    return budget
