"""The result of a tool call as a value."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from pegboard.call import Json
from pegboard.protocol.definitions import ContentBlock


class CallResult(Struct, frozen=True):
    """The result of a tool call.

    content: the content blocks.
    structured: the structured content, or None.
    is_error: whether the tool reports an error; `text` then says which.
    meta: the `_meta` of the result.
    """

    content: list[ContentBlock]
    structured: Json = None
    is_error: bool = False
    meta: Mapping[str, Json] = {}

    @property
    def text(self) -> str:
        """The text blocks, joined by newlines."""
        return "\n".join(block["text"] for block in self.content if block.get("type") == "text")


def read_result(result: Mapping[str, Json]) -> CallResult:
    """A tools/call result as a value."""
    return CallResult(
        content=result.get("content", []),
        structured=result.get("structuredContent"),
        is_error=result.get("isError", False),
        meta=result.get("_meta", {}),
    )
