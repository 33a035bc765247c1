"""Calls that a tool makes to other tools and resources of its board: `ctx.call` and `ctx.read`.

A nested call takes the whole way of a call: the rules of the caller, middleware, repair, the check of the output. It has the
caller, the channel and the deadlines of the outer call, so that cancelling the outer call cancels it, and its questions are
questions of the outer call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec import UNSET, Raw, Struct, structs

from pegboard.call import EMPTY_OBJECT, Call, CallNotes, Done, EncodedResult, Handler, InputRequired, Json, NeedInput
from pegboard.call_target import UNKNOWN_ITEM
from pegboard.errors import Refusal, ToolError
from pegboard.protocol.content import joined_text
from pegboard.protocol.json_values import objects_in
from pegboard.schema.plain_json import encode

MAX_DEPTH: Final = 16
"""How deep calls that tools make to other tools may be nested."""


class NestedResult(Struct, frozen=True):
    """The result of a nested call.

    result: the result as in the protocol.
    """

    result: Mapping[str, Json]

    @property
    def content(self) -> Sequence[Mapping[str, Json]]:
        """The content blocks of a tool, or the contents of a resource."""
        return objects_in(self.result.get("content", self.result.get("contents")))

    @property
    def text(self) -> str:
        """The text of the content, joined by line breaks, without notes for the model."""
        if "content" in self.result:
            return joined_text(self.result["content"])
        return "\n".join(text for part in self.content if isinstance(text := part.get("text"), str))

    @property
    def value(self) -> Any:
        """The structured content of a tool, or the text if there is none."""
        return self.result.get("structuredContent", self.text)


async def call_nested(
    outer: Call, dispatch: Handler, method: str, name: str, arguments: Mapping[str, Any] | None = None
) -> NestedResult:
    """Make a call for the caller of another one; ToolError with the reason if it fails."""
    if outer._depth >= MAX_DEPTH:
        raise ToolError(f"{name[:128]} was not called: tools call each other more than {MAX_DEPTH} levels deep")
    inner = structs.replace(
        outer,
        method=method,
        name=name,
        raw=EMPTY_OBJECT if arguments is None else Raw(encode(dict(arguments))),
        params=Raw(msgspec.json.encode({"uri": name})) if arguments is None else EMPTY_OBJECT,
        # Headers mirror the arguments of the outer call; progress counts its steps.
        headers=None,
        token=None,
        stream=None,
        tool=UNKNOWN_ITEM,
        parsed=None,
        failed=False,
        rule="",
        _sent=UNSET,
        _raw_as_sent=None,
        _state={},
        _origin=outer,
        _notes=CallNotes(outer.log_id, outer.notes.trace_id),
        _depth=outer._depth + 1,
    )
    try:
        reply = await dispatch(inner)
    except Refusal as refusal:
        raise ToolError(refusal.message) from None
    if isinstance(reply, InputRequired):
        rounds = outer.origin._rounds
        if rounds is not None and rounds.open:
            raise NeedInput(reply.questions)
        raise ToolError(f"{name} asks its caller in a way that another tool cannot pass on; call it directly")
    if not isinstance(reply, Done):
        raise ToolError(f"{name} runs as a task, for which another tool cannot wait; call it directly")
    result = reply.result.value if isinstance(reply.result, EncodedResult) else reply.result
    answered = NestedResult(result)
    if result.get("isError") is True:
        raise ToolError(answered.text or f"{name} failed")
    return answered
