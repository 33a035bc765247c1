"""Types for msgspec: the author's where it decodes them directly, and some that check declared names."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, TypeAlias, Union

import msgspec
from msgspec import UNSET, Raw

from pegboard.schema.types.shape import (
    AliasShape,
    AnyShape,
    ChoiceShape,
    FieldShape,
    ListShape,
    MapShape,
    NullableShape,
    RecordShape,
    RefShape,
    ScalarShape,
    Shape,
    TupleShape,
    UnionShape,
    children,
    walk,
)

Named: TypeAlias = Mapping[Hashable, RecordShape | AliasShape]


def native_type(shape: Shape) -> Any:
    """The type to pass to msgspec for a native shape."""
    match shape:
        case RecordShape(type=wanted) | ScalarShape(type=wanted) | ChoiceShape(type=wanted) | RefShape(key=wanted):
            return wanted
        case TupleShape(type=wanted, names=names, items=items):
            return wanted if names else tuple.__class_getitem__(tuple(map(native_type, items)) or ((),))
        case NullableShape(inner=inner):
            return either_type((native_type(inner), None))
        case UnionShape(options=options):
            return either_type(tuple(map(native_type, options)))
        case ListShape(type=wanted, item=item):
            return list_type(wanted, native_type(item))
        case MapShape(key=key, value=value):
            return dict.__class_getitem__((native_type(key), native_type(value)))
    return Any


def either_type(options: tuple[Any, ...]) -> Any:
    """`Union` of types known at run time."""
    union: Any = Union
    return union[options]


def list_type(kind: Any, item: Any) -> Any:
    """`list`, `set` or `tuple` of a type known at run time."""
    return kind.__class_getitem__((item, ...) if kind is tuple else item)


def is_native(shape: Shape, named: Named, known: dict[Hashable, bool]) -> bool:
    """Whether msgspec needs no help; `known` caches the answer for records, and ends recursion."""
    match shape:
        case AnyShape():
            return True
        case ScalarShape(make=make):
            return make is None
        case ChoiceShape(values=values):
            return {type(value) for value in values} in ({str}, {int})
        case RefShape(key=key):
            return known.get(key, True) and isinstance(named.get(key), RecordShape)
        case RecordShape(type=key, maker=maker):
            if key not in known:
                known[key] = not maker.startswith("pydantic") and not _is_half_read(shape)
                known[key] = (
                    known[key] and all(is_native(part, named, known) for part in children(shape)) and is_known(key)
                )
            return known[key]
        case NullableShape() | ListShape() | MapShape() | TupleShape() | UnionShape():
            return all(is_native(part, named, known) for part in children(shape)) and is_known(native_type(shape))
    return False


def is_known(wanted: Any) -> bool:
    """Whether msgspec can build a decoder for the type."""
    try:
        msgspec.json.Decoder(wanted)
    except (TypeError, RecursionError, NameError):
        return False
    return True


def _is_half_read(record: RecordShape) -> bool:
    """Dataclasses that msgspec decodes differently from their `__init__`.

    It would let a caller set fields that the author excluded from `__init__`. It leaves a default on the class and not
    on the instance, and then does not encode it either: a tool that returns its argument would lose the field.
    """
    declared = getattr(record.type, "__dataclass_fields__", None)
    if declared is None:
        return False
    on_the_class = (
        field.default is not dataclasses.MISSING and getattr(record.type, name, None) is field.default
        for name, field in declared.items()
    )
    return len(declared) != len(record.fields) or any(on_the_class)


def drops_names(shape: Shape) -> bool:
    """Whether a value of this shape may contain names that its class drops."""
    return any(
        isinstance(part, RefShape) or (isinstance(part, RecordShape) and part.extras == "drop") for part in walk(shape)
    )


def compile_names(fields: Sequence[FieldShape]) -> Callable[[bytes | Raw], Any] | None:
    """A decoder that fails if a name is not declared; None for shapes that only the JSON Schema can check.

    msgspec rejects undeclared names only for structs that ask for it. So the same bytes are decoded a second time, into
    structs that do ask and skip all values: a quarter of the time that the JSON Schema takes.
    """
    wanted = _struct_of(fields)
    return None if wanted is None else msgspec.json.Decoder(wanted).decode


def _struct_of(fields: Sequence[FieldShape], tag: str | None = None) -> Any:
    parts = [_type_of(field.shape) for field in fields]
    if None in parts:
        return None
    names = [field.name for field in fields]
    if tag is not None:
        names, parts = [*names, tag], [*parts, Raw]
    return msgspec.defstruct(
        "Names",
        [(f"p{number}", part, UNSET) for number, part in enumerate(parts)],
        rename={f"p{number}": name for number, name in enumerate(names)},
        forbid_unknown_fields=True,
        gc=False,
    )


def _type_of(shape: Shape) -> Any:
    """The type whose decoder checks the names inside a value; None if there is no such type."""
    if not drops_names(shape):
        return Raw
    inner: Any = None
    match shape:
        case RecordShape(fields=fields, tag=tag):
            return _struct_of(fields, None if tag is None else tag[0])
        case NullableShape(inner=part):
            inner = _type_of(part)
            return None if inner is None else either_type((inner, None))
        case ListShape(item=part):
            inner = _type_of(part)
            return None if inner is None else list.__class_getitem__(inner)
        case MapShape(value=part):
            inner = _type_of(part)
            return None if inner is None else dict.__class_getitem__((str, inner))
    # Unions, tuples and recursive types.
    return None
