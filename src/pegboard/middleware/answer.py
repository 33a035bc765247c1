"""Builds a reply for a middleware that answers by itself."""

from __future__ import annotations

from typing import Any

from pegboard.call import Reply
from pegboard.tools.tool_result import ResultWriter

_RESULT_WRITER = ResultWriter(name="a middleware")


def answer(value: Any) -> Reply:
    """The reply to a call as if its tool had returned this: text, any JSON value, content, or a ToolResult."""
    return _RESULT_WRITER.write(value)
