"""The one tree that says what a value looks like; schema, binder, forms and exports are read from it."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import Any, TypeAlias

from msgspec import UNSET, Struct

from pegboard.call import Json
from pegboard.tools.constraints import BARE, Notes


class Node(Struct, frozen=True, kw_only=True):
    """What all shapes have: the notes made at this place."""

    notes: Notes = BARE


class Anything(Node, frozen=True):
    """Any JSON value; the author left the type open."""


class Scalar(Node, frozen=True):
    """A JSON string, number, boolean or null, and the Python type it becomes.

    `make` is called with the JSON value where msgspec does not know the type.
    """

    type: Any
    kind: str
    format: str = ""
    make: Callable[[Any], Any] | None = None


class Choice(Node, frozen=True):
    """One of a few JSON values: a Literal, or an enum by value. `members` are their Python values, in the same order."""

    type: Any
    values: tuple[Json, ...]
    members: tuple[Any, ...]
    names: tuple[str, ...] = ()


class Items(Node, frozen=True):
    """A JSON array of like items: list, set, frozenset or a tuple of any length."""

    type: Any
    item: Shape
    unique: bool = False


class Fixed(Node, frozen=True):
    """A JSON array with its own shape at each place: a tuple, or a NamedTuple (then with `names`)."""

    type: Any
    items: tuple[Shape, ...]
    least: int
    names: tuple[str, ...] = ()


class Map(Node, frozen=True):
    """A JSON object with names of the caller's choice."""

    type: Any
    key: Shape
    value: Shape


class Field(Struct, frozen=True, kw_only=True):
    """A named part of a record: `name` in JSON, `attribute` in Python, `keyword` where its class is called."""

    name: str
    attribute: str
    keyword: str = ""
    shape: Shape
    required: bool
    default: Any = UNSET


class Record(Node, frozen=True):
    """A JSON object with declared names; `maker` says whose class it is and so how it is built."""

    type: Any
    name: str
    fields: tuple[Field, ...]
    maker: str
    closed: bool = False
    tag: tuple[str, Json] | None = None


class Either(Node, frozen=True):
    """Several shapes, tried in the order the author wrote them."""

    options: tuple[Shape, ...]


class Nullable(Node, frozen=True):
    """A shape, or null."""

    inner: Shape


class Ref(Node, frozen=True):
    """A named shape that is being read further up: the knot of a recursive type."""

    key: Hashable


class Alias(Node, frozen=True):
    """A recursive type alias: a shape with a name and no class."""

    key: Hashable
    name: str
    inner: Shape


class Foreign(Node, frozen=True):
    """A type only pydantic understands; its schema is pydantic's own."""

    type: Any
    schema: Mapping[str, Json]


Shape: TypeAlias = Anything | Scalar | Choice | Items | Fixed | Map | Record | Either | Nullable | Ref | Alias | Foreign


class Shaped(Struct, frozen=True):
    """A shape with the named shapes its knots refer to."""

    shape: Shape
    named: Mapping[Hashable, Record | Alias] = {}


def children(shape: Shape) -> tuple[Shape, ...]:
    """The shapes directly inside another one; a knot is not followed."""
    match shape:
        case Record(fields=fields):
            return tuple(field.shape for field in fields)
        case Nullable(inner=inner) | Alias(inner=inner):
            return (inner,)
        case Items(item=item):
            return (item,)
        case Map(key=key, value=value):
            return key, value
        case Fixed(items=parts) | Either(options=parts):
            return parts
    return ()


def walk(shape: Shape) -> Iterator[Shape]:
    """A shape and everything inside it, each place once."""
    yield shape
    for part in children(shape):
        yield from walk(part)
