"""A reply of a middleware's own."""

from __future__ import annotations

from typing import Any

from pegboard.call import Reply
from pegboard.tools.result import Teller

_TELLER = Teller(name="a middleware")


def answer(value: Any) -> Reply:
    """The reply of a call whose tool returned this: text, any JSON value, content, or a ToolResult."""
    return _TELLER.tell(value)
