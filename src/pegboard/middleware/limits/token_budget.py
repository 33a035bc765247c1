"""Limits the tokens of a result: warn, reject or truncate."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Literal, TypeAlias

from msgspec import Struct

from pegboard.call import Call, Done, EncodedResult, Handler, Json, Reply
from pegboard.errors import DeclarationError, LimitReached
from pegboard.hooks.middleware import Middleware
from pegboard.middleware.call_keys import resolve, tool_of
from pegboard.middleware.limits.kept_results import SCHEME, KeptResults
from pegboard.middleware.limits.truncation import SMALLEST, truncate
from pegboard.middleware.observability.token_count import Counter, count_tokens, measure
from pegboard.protocol.content import Block, link_block
from pegboard.protocol.json_values import as_object, objects_in

TRUNCATED = "dev.pegboard/truncated"

Action: TypeAlias = Literal["warn", "refuse", "truncate"]

_log = logging.getLogger("pegboard.tokens")


class Budget(Struct, frozen=True):
    """How many tokens the texts of a result may have, and what happens to a larger one."""

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
        """Run the call, and apply the budget to its result."""
        reply = await proceed(call)
        budget = resolve(call, self._tools, self._categories, self._default)
        if budget is None:
            return reply
        result = reply.result.value if isinstance(reply.result, EncodedResult) else reply.result
        blocks = [block for block in objects_in(result.get("content")) if _text_of(block)]
        texts = [_text_of(block) for block in blocks]
        if self._bytes_suffice and sum(map(_bytes, texts)) <= budget.tokens:
            return reply
        sizes = [await measure(text, self._count) for text in texts]
        total = sum(sizes)
        if total <= budget.tokens:
            return reply
        self.exceeded += 1
        match budget.action:
            case "refuse":
                raise LimitReached(
                    f"{tool_of(call)} ran, but its result of {total:,} tokens exceeds the budget of {budget.tokens:,} "
                    "and was not sent. Ask for less.",
                    "token_budget",
                    limit=budget.tokens,
                    tokens=total,
                )
            case "warn":
                _log.warning("%s returned %d tokens, its budget is %d", tool_of(call), total, budget.tokens)
                return reply
            case _:
                cut = dict(zip(map(id, blocks), truncate(texts, sizes, budget.tokens, self._count), strict=True))
                return Done(self._shortened(call, result, cut, budget.tokens, total), reply.wrapped)

    def _shortened(
        self, call: Call, result: Mapping[str, Json], cut: Mapping[int, str | None], limit: int, total: int
    ) -> Mapping[str, Json]:
        content: list[Mapping[str, Json]] = []
        for block in objects_in(result["content"]):
            text = cut.get(id(block), "")
            if text == "":
                content.append(block)
            elif text is not None:
                content.append(_with_text(block, text))
        shortened = {**result, "content": content}
        if call.tool.output_schema is None:
            # Structured content is required only with an output schema; otherwise it would undo the cut.
            shortened.pop("structuredContent", None)
        note: dict[str, Json] = {"tokens": total, "limit": limit}
        name = None if self.kept is None else self.kept.keep(result, call.principal.id)
        if name is not None and self.kept is not None:
            call.state["kept_result"] = name
            if self.link:
                note["uri"] = SCHEME + name
                about = f"The whole result, {total:,} tokens, for {self.kept.seconds:g} s"
                content.append(link_block(SCHEME + name, f"{call.name}-result", description=about))
        shortened["_meta"] = {**as_object(result.get("_meta")), TRUNCATED: note}
        return shortened


def _budget(given: int | Budget | None, action: Action) -> Budget | None:
    budget = Budget(given, action) if isinstance(given, int) else given
    if budget is not None and budget.action not in ("warn", "refuse", "truncate"):
        raise DeclarationError(f'action={budget.action!r}: use "warn", "refuse" or "truncate"')
    if budget is not None and budget.tokens < (SMALLEST if budget.action == "truncate" else 1):
        raise DeclarationError(
            f"A budget with truncation needs at least {SMALLEST} tokens, any other at least 1, got {given!r}"
        )
    return budget


def _text_of(block: Mapping[str, Json]) -> str:
    match block.get("type"):
        case "text":
            return str(block["text"])
        case "resource":
            return str(as_object(block["resource"]).get("text", ""))
        case _:
            return ""


def _with_text(block: Mapping[str, Json], text: str) -> Block:
    if block["type"] == "text":
        return {**block, "text": text}
    return {**block, "resource": {**as_object(block["resource"]), "text": text}}


def _bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "replace"))
