"""Finds tools in modules, classes and objects: what `@tool` marks, and declared Tools."""

from __future__ import annotations

import inspect
import logging
import pkgutil
from collections.abc import Callable, Iterator
from importlib import import_module
from types import ModuleType
from typing import Any, TypeVar, Unpack, overload

from msgspec import Struct

from pegboard.errors import DeclarationError
from pegboard.tools.signature import source_of
from pegboard.tools.tool import Tool, ToolOptions

_log = logging.getLogger("pegboard.tools")

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


class MarkedTool(Struct, frozen=True):
    """A marked function; `owner` is the class that its first parameter must be an instance of."""

    function: Callable[..., Any]
    mark: ToolMark
    owner: type | None = None


def find_tools(place: Any) -> list[MarkedTool | Tool | type[Tool]]:
    """All tools of a module, of every module of a package, of a class, or of an object, in the order of definition.

    What looks like a tool and is left out is logged with the reason.
    """
    places = [place]
    if isinstance(place, ModuleType):
        below = pkgutil.walk_packages(getattr(place, "__path__", ()), place.__name__ + ".")
        places += [import_module(module.name) for module in below]
    classes = [found_tool for where in places for found_tool in _classes_in(where)]
    bases = {base for found_tool in classes for base in found_tool.__mro__[1:]}
    found: dict[int, MarkedTool | Tool | type[Tool]] = {}
    for where in places:
        for found_tool in _tools_in(where, bases):
            # A Tool that one module imports from another is one tool.
            found.setdefault(id(found_tool), found_tool)
    made = {type(found_tool) for found_tool in found.values() if isinstance(found_tool, Tool)}
    return [found_tool for found_tool in found.values() if not (isinstance(found_tool, type) and found_tool in made)]


def _tools_in(place: Any, bases: set[type]) -> Iterator[MarkedTool | Tool | type[Tool]]:
    if isinstance(place, type):
        yield from _tools_of_class(place, set())
        return
    if not isinstance(place, ModuleType):
        for name, mark in _marks_of(type(place)):
            yield MarkedTool(getattr(place, name), mark)
        return
    for value in tuple(vars(place).values()):
        if isinstance(value, Tool):
            yield value
        elif not _is_defined_in(value, place):
            continue
        elif isinstance(value, type):
            yield from _tools_of_class(value, bases)
        elif (found := mark_of(value)) is not None:
            yield MarkedTool(value, found)


def _tools_of_class(owner: type, bases: set[type]) -> Iterator[MarkedTool | type[Tool]]:
    marks = list(_marks_of(owner))
    declared = issubclass(owner, Tool)
    if not marks and not declared:
        return
    reason = _reason_to_omit(owner, bases)
    if reason:
        _log.info("%s.%s is left out: %s", owner.__module__, owner.__qualname__, reason)
    elif issubclass(owner, Tool):
        yield owner
    else:
        for name, mark in marks:
            found = getattr(owner, name)
            bound = inspect.ismethod(found) or isinstance(inspect.getattr_static(owner, name), staticmethod)
            yield MarkedTool(found, mark, None if bound else owner)


def _reason_to_omit(owner: type, bases: set[type]) -> str:
    if owner in bases:
        return "it is the base of another class"
    if inspect.isabstract(owner):
        missing: frozenset[str] = vars(owner)["__abstractmethods__"]
        return f"it is abstract ({', '.join(sorted(missing))})"
    if issubclass(owner, Tool) and owner.execute is Tool.execute:
        return "it has no execute()"
    return ""


def _marks_of(owner: type) -> Iterator[tuple[str, ToolMark]]:
    """The marked methods of a class, inherited ones first; properties are not read, since that runs an author's code."""
    for name in dict.fromkeys(name for base in reversed(owner.__mro__) for name in vars(base)):
        raw = inspect.getattr_static(owner, name)
        mark = mark_of(raw)
        if mark is None and isinstance(raw, staticmethod | classmethod):
            mark = mark_of(raw.__func__)
        if mark is not None:
            yield name, mark


def _classes_in(place: Any) -> Iterator[type]:
    if isinstance(place, ModuleType):
        yield from (value for value in vars(place).values() if isinstance(value, type) and _is_defined_in(value, place))


def _is_defined_in(value: Any, module: ModuleType) -> bool:
    """Whether this module defines it; what it only imported belongs to the other module."""
    return getattr(value, "__module__", None) == module.__name__
