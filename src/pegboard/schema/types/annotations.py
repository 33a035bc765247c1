"""Resolves annotations, including those written as strings, to types."""

from __future__ import annotations

import inspect
import sys
import typing
from collections.abc import Callable, Mapping
from typing import Any

UNRESOLVED = object()


def hints_of(owner: Any) -> dict[str, Any]:
    """The annotations of a class or function; a name that cannot be resolved is `UNRESOLVED`."""
    try:
        return typing.get_type_hints(owner, include_extras=True)
    except (NameError, AttributeError, TypeError, SyntaxError):
        return _hints_one_by_one(owner)


def _hints_one_by_one(owner: Any) -> dict[str, Any]:
    namespace = _locals_around(owner)
    if isinstance(owner, type):
        namespace = {**namespace, owner.__name__: owner}
        carriers: list[tuple[Any, Mapping[str, Any]]] = [
            (base, vars(sys.modules.get(base.__module__, typing))) for base in reversed(owner.__mro__)
        ]
    else:
        carriers = [(owner, _globals_of(owner))]
    hints: dict[str, Any] = {}
    for carrier, names in carriers:
        for name, annotation in _annotations_of(carrier).items():
            hints[name] = resolve(annotation, names, namespace)
    return hints


def _annotations_of(carrier: Any) -> Mapping[str, Any]:
    try:
        return inspect.get_annotations(carrier)
    except (NameError, TypeError):
        return {}


def resolve(annotation: Any, names: Mapping[str, Any], namespace: Mapping[str, Any]) -> Any:
    """Resolve one annotation, text or not, among global and local names."""

    def carrier() -> None: ...

    carrier.__annotations__ = {"it": annotation}
    try:
        return typing.get_type_hints(carrier, dict(names), dict(namespace), include_extras=True)["it"]
    except (NameError, AttributeError, TypeError, SyntaxError):
        return UNRESOLVED


def _globals_of(function: Callable[..., Any]) -> Mapping[str, Any]:
    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    return getattr(function, "__globals__", {})


def _locals_around(owner: Any) -> dict[str, Any]:
    """The local names of the functions that are defining `owner` right now, outermost first."""
    parts = getattr(owner, "__qualname__", "").split(".<locals>.")[:-1]
    around = {".<locals>.".join(parts[: count + 1]) for count in range(len(parts))}
    found: list[Mapping[str, Any]] = []
    frame = sys._getframe() if around else None  # the only way to reach local classes named in text
    while frame is not None:
        if frame.f_code.co_qualname in around:
            found.append(frame.f_locals)
        frame = frame.f_back
    return {name: value for names in reversed(found) for name, value in names.items()}
