"""The `@tool` decorator for functions outside a board."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, Unpack, overload

from msgspec import Struct

from pegboard.errors import DeclarationError
from pegboard.tools.signature import source_of
from pegboard.tools.tool import ToolOptions

F = TypeVar("F", bound=Callable[..., Any])

_ATTRIBUTE = "__pegboard_tool__"


class ToolMark(Struct, frozen=True):
    """The options of the decorator."""

    name: str | None
    options: ToolOptions


@overload
def tool(name: F, /) -> F: ...
@overload
def tool(name: str | None = None, /, **options: Unpack[ToolOptions]) -> Callable[[F], F]: ...
def tool(name: Any = None, /, **options: Any) -> Any:
    """Mark a function or method as a tool, for a board that discovers it later."""
    if name is not None and not isinstance(name, str):
        return tool()(name)
    given = options.pop("name", name)

    def leave_mark(function: F) -> F:
        try:
            setattr(function, _ATTRIBUTE, ToolMark(given, options))  # type: ignore[arg-type]  # checked when the tool is made
        except (AttributeError, TypeError) as problem:
            raise DeclarationError(
                f"{source_of(function)}: {function!r} cannot be marked with @tool; pass it to board.tool"
            ) from problem
        return function

    return leave_mark


def mark_of(function: Any) -> ToolMark | None:
    """The mark on a function, or on the function of a bound method."""
    mark = getattr(function, _ATTRIBUTE, None)
    return mark if isinstance(mark, ToolMark) else None
