"""The result of a tool call as a value: with its parts, or of a given type."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import msgspec
from msgspec import Struct

from pegboard.argument_problems import ParseError
from pegboard.call import Json
from pegboard.errors import MalformedMessage
from pegboard.protocol.content import joined_text
from pegboard.protocol.definitions import ContentBlock
from pegboard.protocol.json_values import as_object, objects_in
from pegboard.tools.tool import Tool, tool_from_function


class CallResult(Struct, frozen=True):
    """The result of a tool call.

    content: the content blocks.
    structured: the structured content, or None.
    is_error: whether the tool reports an error; `text` then says which.
    meta: the `_meta` of the result.
    task: the id of the task that the call became; only with `wait=False`.
    """

    content: list[ContentBlock]
    structured: Any = None
    is_error: bool = False
    meta: Mapping[str, Any] = {}
    task: str | None = None

    @property
    def text(self) -> str:
        """The text blocks, joined by newlines."""
        return joined_text(self.content)


def read_result(result: Mapping[str, Json]) -> CallResult:
    """A tools/call result as a value."""
    task = result.get("taskId") if result.get("resultType") == "task" else None
    blocks: list[Any] = objects_in(result.get("content"))
    return CallResult(
        content=blocks,
        structured=result.get("structuredContent"),
        is_error=bool(result.get("isError")),
        meta=as_object(result.get("_meta")),
        task=task if isinstance(task, str) else None,
    )


def read_typed(structured: Json, text: str, wanted: Any, where: str) -> Any:
    """The structured content, or else the text as JSON or plain, as a value of the type; MalformedMessage if it does not fit."""
    problems: Sequence[ParseError] = ()
    for candidate in _candidates(structured, text):
        value, errors = _read(_reader_tool(wanted), candidate)
        if not errors:
            return value
        problems = problems or errors
    reasons = "; ".join(error.message for error in problems[:3])
    name = getattr(wanted, "__name__", str(wanted))
    raise MalformedMessage(f"{where}: its result is not a {name}: {reasons or 'it is empty'}")


def _candidates(structured: Json, text: str) -> list[Json]:
    """The possible values: older revisions wrap a value that is not an object."""
    if structured is not None:
        if isinstance(structured, dict) and structured.keys() == {"result"}:
            return [structured, structured["result"]]
        return [structured]
    try:
        return [msgspec.json.decode(text), text]
    except msgspec.DecodeError:
        return [text]


def _reader_tool(wanted: Any) -> Tool:
    try:
        return _cached_reader_tool(wanted)
    except TypeError:
        # Not hashable: for example an Annotated that contains a list.
        return _cached_reader_tool.__wrapped__(wanted)


@lru_cache(maxsize=256)
def _cached_reader_tool(wanted: Any) -> Tool:
    def take(value: Any) -> Any:
        return value

    take.__annotations__ = {"value": wanted}
    return tool_from_function(take)


def _read(tool: Tool, value: Json) -> tuple[Any, Sequence[ParseError]]:
    parsed = tool.parse(msgspec.json.encode({"value": value}))
    return (None, parsed.errors) if parsed.errors else (tool.invoke(parsed.value, {}), ())
