"""Derives the types of configuration values from annotations: of constructors, and of Structs whose fields are keys."""

from __future__ import annotations

import collections.abc
import dataclasses
import inspect
import re
import types
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, Literal, Union, get_args, get_origin

import msgspec
from msgspec import Struct, UnsetType

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
_DESCRIBED: Final = re.compile(r"^(\w+): (.+(?:\n +.+)*)", re.MULTILINE)


def parameters_of(made_by: Any) -> tuple[dict[str, tuple[Any, bool]], bool]:
    """The annotation of each parameter of a class and whether it has no default; and whether any name is allowed."""
    is_record = issubclass(made_by, Struct) or dataclasses.is_dataclass(made_by)
    hints = hints_of(made_by if is_record else made_by.__init__)
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


def kind_of(hint: Any) -> ValueType | None:
    """How values of this annotation are read from a file; None if a file cannot contain them."""
    if isinstance(hint, collections.abc.Hashable) and hint in _SCALARS:
        return _SCALARS[hint]
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Union or origin is types.UnionType:
        kinds = [kind for kind in map(kind_of, arguments) if kind is not None]
        # Null alone stands for the objects that a file cannot contain.
        usable = [kind for kind in kinds if not isinstance(kind, NullValue)]
        return UnionValue(tuple(kinds)) if usable else None
    if origin is Literal:
        return ChoiceValue({word: word for word in arguments})
    if isinstance(origin, type) and issubclass(origin, collections.abc.Mapping) and arguments[:1] == (str,):
        item = kind_of(arguments[1])
        return None if item is None else MapValue(item)
    if isinstance(origin, type) and issubclass(origin, collections.abc.Iterable) and arguments:
        item = kind_of(arguments[0])
        return None if item is None else ListValue(item, f"a list{' of strings' if arguments[0] is str else ''}")
    if isinstance(hint, type) and (issubclass(hint, Struct) or dataclasses.is_dataclass(hint)):
        return _record_kind(hint)
    return None


def object_of(
    what: str,
    record: type[Struct],
    kinds: Mapping[str, ValueType] = {},
    *,
    short: str = "",
    make: Callable[..., Any] = dict,
) -> ObjectValue:
    """An object with the fields of a Struct as keys, in camel case, which the docstring of the Struct describes.

    A field that may be None or unset may be absent. `kinds` are the types that the annotations do not say.
    """
    described, hints = dict(_DESCRIBED.findall(inspect.getdoc(record) or "")), hints_of(record)
    fields: dict[str, ObjectField] = {}
    required: dict[str, str] = {}
    for field in msgspec.structs.fields(record):
        key = re.sub(r"_(\w)", lambda found: found[1].upper(), field.name)
        kind = kinds.get(field.name) or kind_of(_present(hints[field.name]))
        if kind is None:
            raise TypeError(f"{record.__name__}.{field.name}: a file cannot contain {field.type}")
        about, default = " ".join(described.get(field.name, "").split()).rstrip("."), field.default
        if default and type(default) in (int, float, str):
            about += f"; default: {default:g}" if isinstance(default, float) else f"; default: {default}"
        fields[key] = ObjectField(field.name, kind, about)
        if field.required:
            required[key] = f"{what} has no {key!r}"
    return ObjectValue(what, fields, required, short, make)


def _present(hint: Any) -> Any:
    """The annotation of a field that is set."""
    if get_origin(hint) in (Union, types.UnionType):
        options = [option for option in get_args(hint) if option not in (types.NoneType, UnsetType)]
        return Union[tuple(options)]  # noqa: UP007 — of as many as there are
    return hint


def _record_kind(record: type) -> ValueType | None:
    """How an object is read for a struct or dataclass, by its constructor."""
    fields: dict[str, ObjectField] = {}
    required: dict[str, str] = {}
    for name, (hint, is_required) in parameters_of(record)[0].items():
        kind = kind_of(hint)
        if kind is None:
            return None
        fields[name] = ObjectField(name, kind, "")
        if is_required:
            required[name] = f"{name!r} is missing"
    return ObjectValue(f"a {record.__name__}", fields, required, make=record)
