"""The result of a tool call as a value."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from pegboard.call import Json
from pegboard.protocol.content import joined_text
from pegboard.protocol.definitions import ContentBlock
from pegboard.protocol.json_values import as_object, objects_in


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
