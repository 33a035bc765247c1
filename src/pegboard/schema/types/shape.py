"""The tree that describes a value; schemas, binders and forms are derived from it."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import Any, Literal, TypeAlias

from msgspec import UNSET, Struct

from pegboard.call import Json
from pegboard.errors import DeclarationError
from pegboard.schema.types.constraints import NO_NOTES, ValueNotes


class UnsupportedType(DeclarationError):
    """A type without a known JSON form."""


class ShapeNode(Struct, frozen=True, kw_only=True):
    """What all shapes have: the constraints of this occurrence."""

    notes: ValueNotes = NO_NOTES


class AnyShape(ShapeNode, frozen=True):
    """Any JSON value; the author did not restrict the type."""


class ScalarShape(ShapeNode, frozen=True):
    """A JSON string, number, boolean or null, and the Python type it becomes.

    `make` is called with the JSON value if msgspec does not support the type.
    """

    type: Any
    kind: str
    format: str = ""
    make: Callable[[Any], Any] | None = None


class ChoiceShape(ShapeNode, frozen=True):
    """One of a few JSON values: a Literal, or an enum by value. `members` are their Python values, in the same order."""

    type: Any
    values: tuple[Json, ...]
    members: tuple[Any, ...]
    names: tuple[str, ...] = ()


class ListShape(ShapeNode, frozen=True):
    """A JSON array of items of one shape: list, set, frozenset or a tuple of any length."""

    type: Any
    item: Shape
    unique: bool = False


class TupleShape(ShapeNode, frozen=True):
    """A JSON array with a shape for each position: a tuple, or a NamedTuple (then with `names`)."""

    type: Any
    items: tuple[Shape, ...]
    least: int
    names: tuple[str, ...] = ()


class MapShape(ShapeNode, frozen=True):
    """A JSON object with names that the caller chooses."""

    type: Any
    key: Shape
    value: Shape


class FieldShape(Struct, frozen=True, kw_only=True):
    """A field of a record: `name` in JSON, `attribute` in Python, `keyword` in the call of its class."""

    name: str
    attribute: str
    keyword: str = ""
    shape: Shape
    required: bool
    default: Any = UNSET


Extras: TypeAlias = Literal["forbid", "drop", "read", "allow"]
"""What a record class does with names that it does not declare: reject, drop, read some itself, or keep them."""


class RecordShape(ShapeNode, frozen=True):
    """A JSON object with declared names; `maker` is the library of its class, which decides how it is built.

    `summary` describes the type, `notes` this occurrence of it.
    """

    type: Any
    name: str
    fields: tuple[FieldShape, ...]
    maker: str
    summary: str = ""
    extras: Extras = "drop"
    tag: tuple[str, Json] | None = None


class UnionShape(ShapeNode, frozen=True):
    """Several shapes, tried in the author's order."""

    options: tuple[Shape, ...]


class NullableShape(ShapeNode, frozen=True):
    """A shape, or null."""

    inner: Shape


class RefShape(ShapeNode, frozen=True):
    """A reference to a named shape that is being read further up: the cycle of a recursive type."""

    key: Hashable


class AliasShape(ShapeNode, frozen=True):
    """A recursive type alias: a shape with a name and no class."""

    key: Hashable
    name: str
    inner: Shape


class ForeignShape(ShapeNode, frozen=True):
    """A type that only pydantic understands; its schema is pydantic's own."""

    type: Any
    schema: Mapping[str, Json]


Shape: TypeAlias = (
    AnyShape
    | ScalarShape
    | ChoiceShape
    | ListShape
    | TupleShape
    | MapShape
    | RecordShape
    | UnionShape
    | NullableShape
    | RefShape
    | AliasShape
    | ForeignShape
)


class Shaped(Struct, frozen=True):
    """A shape with the named shapes that it refers to."""

    shape: Shape
    named: Mapping[Hashable, RecordShape | AliasShape] = {}


def children(shape: Shape) -> tuple[Shape, ...]:
    """The shapes directly inside another one; references are not followed."""
    match shape:
        case RecordShape(fields=fields):
            return tuple(field.shape for field in fields)
        case NullableShape(inner=inner) | AliasShape(inner=inner):
            return (inner,)
        case ListShape(item=item):
            return (item,)
        case MapShape(key=key, value=value):
            return key, value
        case TupleShape(items=parts) | UnionShape(options=parts):
            return parts
    return ()


def walk(shape: Shape) -> Iterator[Shape]:
    """A shape and everything inside it, each occurrence once."""
    yield shape
    for part in children(shape):
        yield from walk(part)
