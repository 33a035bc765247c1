"""Reads the options that a configuration gives a middleware, by the annotations of its constructor."""

from __future__ import annotations

import collections.abc
import dataclasses
import inspect
import types
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, Literal, Union, get_args, get_origin

from msgspec import UNSET, Struct

from pegboard import middleware
from pegboard.call import Json
from pegboard.config.mistakes import ConfigReport, UnresolvedText, did_you_mean
from pegboard.config.source_file import KeyPath
from pegboard.config.value_types import (
    MAX_NUMBER,
    AnyValue,
    BooleanValue,
    ChoiceValue,
    IntegerValue,
    ListValue,
    MapValue,
    NullValue,
    NumberValue,
    ObjectField,
    ObjectValue,
    TextValue,
    UnionValue,
    ValueType,
)
from pegboard.schema.types.annotations import hints_of

MIDDLEWARE: Final = (
    "Audit", "Cache", "ConcurrencyLimit", "ErrorMessages", "HelperProcess", "History", "Logging", "Metrics", "RateLimit",
    "Retry", "Suggestions", "Timeout", "Timing", "TokenBudget", "TokenCount", "Tracing",
)  # fmt: skip
"""The built-in middleware that a configuration can name."""

_SCALARS: Final[Mapping[Any, ValueType]] = {
    str: TextValue(),
    Path: TextValue(),
    bool: BooleanValue(),
    int: IntegerValue(-MAX_NUMBER, MAX_NUMBER),
    float: NumberValue("a number", None),
    types.NoneType: NullValue(),
    Any: AnyValue(),
    object: AnyValue(),
    inspect.Parameter.empty: AnyValue(),
}
_VARIADIC: Final = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def check_middleware_entries(
    values: Mapping[str, Any], place: KeyPath, notes: ConfigReport, locate: Callable[[str], Path]
) -> None:
    """Check the middleware of a file, toolbox or server, and read the options of built-in ones in place.

    `locate` resolves a path of the file.
    """
    for position, found in enumerate(values.get("middleware", ())):
        use, where = found.get("use"), (*place, "middleware", position)
        if use in MIDDLEWARE:
            made_by = getattr(middleware, use)
            options = read_options(made_by, found.get("options", {}), where, notes)
            paths = {name for name, (hint, _) in _parameters_of(made_by)[0].items() if Path in get_args(hint)}
            found["options"] = {
                name: str(locate(value)) if name in paths and isinstance(value, str) else value
                for name, value in options.items()
            }
        elif use is not None:
            module, colon, name = use.partition(":")
            if not colon:
                notes.add_mistake(where, f"unknown middleware {use!r}", fix=did_you_mean(use, MIDDLEWARE))
            elif not name.isidentifier() or not all(part.isidentifier() for part in module.split(".")):
                notes.add_mistake(where, got=use, expected="a class as package.module:Name")


def read_options(made_by: Any, options: Mapping[str, Json], place: KeyPath, notes: ConfigReport) -> Mapping[str, Any]:
    """The arguments for the constructor of a middleware; what does not fit is reported and left out."""
    use = made_by.__name__
    parameters, takes_any = _parameters_of(made_by)
    kinds = {name: _kind_of(hint) for name, (hint, _) in parameters.items()}
    known = [name for name, kind in kinds.items() if kind is not None]
    values: dict[str, Any] = {}
    for name, value in options.items():
        where = (*place, "options", name)
        kind = kinds.get(name, AnyValue() if takes_any else None)
        if isinstance(value, UnresolvedText):
            continue
        if kind is not None:
            read = kind.read(value, where, notes)
            if read is not UNSET:
                values[name] = read
        elif name in parameters:
            problem = f"the option {name!r} of {use} is a Python object, which a file cannot contain"
            notes.add_mistake(where, problem, fix="remove it, or name a class of your own as module:Name")
        else:
            fix = did_you_mean(name, known) if known else "remove it"
            notes.add_mistake(where, f"{use} has no option {name!r}", fix=fix)
    for name, (_, is_required) in parameters.items():
        if is_required and name not in options:
            notes.add_mistake(place, f"{use} needs the option {name!r}", fix="add it to 'options'")
    return values


def _parameters_of(made_by: Any) -> tuple[dict[str, tuple[Any, bool]], bool]:
    """The annotation of each parameter of a class and whether it has no default; and whether any name is allowed."""
    hints = hints_of(made_by.__init__)
    try:
        parameters = inspect.signature(made_by).parameters
    except (TypeError, ValueError):
        return {}, True
    named = {
        name: (hints.get(name, parameter.empty), parameter.default is parameter.empty)
        for name, parameter in parameters.items()
        if parameter.kind not in _VARIADIC
    }
    return named, any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())


def _kind_of(hint: Any) -> ValueType | None:
    """How values of this annotation are read from a file; None if a file cannot contain them."""
    if isinstance(hint, collections.abc.Hashable) and hint in _SCALARS:
        return _SCALARS[hint]
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Union or origin is types.UnionType:
        kinds = [kind for kind in map(_kind_of, arguments) if kind is not None]
        # Null alone stands for the objects that a file cannot contain.
        usable = [kind for kind in kinds if not isinstance(kind, NullValue)]
        return UnionValue(tuple(kinds)) if usable else None
    if origin is Literal:
        return ChoiceValue({word: word for word in arguments})
    if isinstance(origin, type) and issubclass(origin, collections.abc.Mapping) and arguments[:1] == (str,):
        item = _kind_of(arguments[1])
        return None if item is None else MapValue(item)
    if isinstance(origin, type) and issubclass(origin, collections.abc.Iterable) and arguments:
        item = _kind_of(arguments[0])
        return None if item is None else ListValue(item, "a list")
    if isinstance(hint, type) and (issubclass(hint, Struct) or dataclasses.is_dataclass(hint)):
        return _record_kind(hint)
    return None


def _record_kind(record: type) -> ValueType | None:
    """How an object is read for a struct or dataclass, by its constructor."""
    fields: dict[str, ObjectField] = {}
    required: dict[str, str] = {}
    hints = hints_of(record)
    for name, (_, is_required) in _parameters_of(record)[0].items():
        kind = _kind_of(hints[name])
        if kind is None:
            return None
        fields[name] = ObjectField(name, kind, "")
        if is_required:
            required[name] = f"{name!r} is missing"
    return ObjectValue(f"a {record.__name__}", fields, required, make=record)
