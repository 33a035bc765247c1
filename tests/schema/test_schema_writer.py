"""The JSON Schema of every kind of type an author may write."""

from __future__ import annotations

import datetime as dt
import decimal
import enum
import ipaddress
import pathlib
import typing
import uuid
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Annotated, Any, Generic, Literal, NamedTuple, NewType, NotRequired, Optional, TypedDict, TypeVar

import annotated_types
import attrs
import msgspec
import pydantic
import pytest
import typing_extensions

from pegboard.schema.types.constraints import Description, EnumConstraint, Header, MaxLength, MinLength, Pattern, Range
from pegboard.schema.validator import Validator
from pegboard.tools.signature import schema_of
from tests.depth import every_case

pytestmark = every_case

DECIMAL_TEXT = {"type": "string", "pattern": r"^[+-]?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?$"}


class Colour(enum.Enum):
    RED = "red"
    DARK_BLUE = "dark-blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Access(enum.Flag):
    READ = 1
    WRITE = 2


UserId = NewType("UserId", int)
T = TypeVar("T")


@dataclass
class Point:
    x: float
    y: float = 0.0
    label: str | None = None


@dataclass
class Page(Generic[T]):
    items: list[T]
    total: int


@dataclass
class Tree:
    value: int
    children: list[Tree] = field(default_factory=list)


@dataclass
class Line:
    start: Point
    end: Point


class Options(TypedDict, total=False):
    depth: typing.Required[int]
    wide: NotRequired[bool]
    note: str


class ReadOnlyOptions(typing_extensions.TypedDict):
    depth: typing_extensions.ReadOnly[int]
    wide: typing_extensions.NotRequired[bool]


class Size(NamedTuple):
    width: int
    height: int = 1


Json = typing_extensions.TypeAliasType("Json", "dict[str, Json] | list[Json] | int | None")
Plain = typing_extensions.TypeAliasType("Plain", list[int])
Box = typing_extensions.TypeAliasType("Box", list[T], type_params=(T,))


class Cat(msgspec.Struct, tag="cat"):
    lives: int = 9


class Closed(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    first_name: str


POINT = {
    "type": "object",
    "properties": {
        "x": {"type": "number"},
        "y": {"type": "number", "default": 0.0},
        "label": {"type": ["string", "null"]},
    },
    "required": ["x"],
}

# Every row of the design's table of types, then everything beyond it.
TYPES: list[tuple[Any, dict[str, Any]]] = [
    (int, {"type": "integer"}),
    (float, {"type": "number"}),
    (decimal.Decimal, {"anyOf": [{"type": "number"}, DECIMAL_TEXT]}),
    (str, {"type": "string"}),
    (bool, {"type": "boolean"}),
    (dt.datetime, {"type": "string", "format": "date-time"}),
    (uuid.UUID, {"type": "string", "format": "uuid"}),
    (Colour, {"type": "string", "enum": ["red", "dark-blue"]}),
    (list[int], {"type": "array", "items": {"type": "integer"}}),
    (dict, {"type": "object"}),
    (Point, POINT),
    (dt.date, {"type": "string", "format": "date"}),
    (dt.time, {"type": "string", "format": "time"}),
    (dt.timedelta, {"type": "string", "format": "duration"}),
    (pathlib.Path, {"type": "string", "format": "path"}),
    (pathlib.PurePosixPath, {"type": "string", "format": "path"}),
    (bytes, {"type": "string", "contentEncoding": "base64"}),
    (ipaddress.IPv4Address, {"type": "string", "format": "ipv4"}),
    (None, {"type": "null"}),
    (Any, {}),
    (object, {}),
    (list, {"type": "array"}),
    (Sequence[str], {"type": "array", "items": {"type": "string"}}),
    (set[str], {"type": "array", "items": {"type": "string"}, "uniqueItems": True}),
    (AbstractSet[str], {"type": "array", "items": {"type": "string"}, "uniqueItems": True}),
    (frozenset, {"type": "array", "uniqueItems": True}),
    (tuple[int, ...], {"type": "array", "items": {"type": "integer"}}),
    (
        tuple[int, str],
        {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}], "minItems": 2, "maxItems": 2},
    ),
    (tuple[()], {"type": "array", "minItems": 0, "maxItems": 0}),
    (
        Size,
        {
            "type": "array",
            "prefixItems": [{"title": "width", "type": "integer"}, {"title": "height", "type": "integer"}],
            "minItems": 1,
            "maxItems": 2,
        },
    ),
    (dict[str, int], {"type": "object", "additionalProperties": {"type": "integer"}}),
    (Mapping[str, Any], {"type": "object"}),
    (
        dict[int, str],
        {
            "type": "object",
            "propertyNames": {"pattern": "^-?(0|[1-9][0-9]*)$"},
            "additionalProperties": {"type": "string"},
        },
    ),
    (
        dict[Colour, int],
        {
            "type": "object",
            "propertyNames": {"enum": ["red", "dark-blue"]},
            "additionalProperties": {"type": "integer"},
        },
    ),
    (Level, {"type": "integer", "enum": [1, 2]}),
    (Access, {"type": "integer"}),
    (Literal["a", "b"], {"type": "string", "enum": ["a", "b"]}),
    (Literal["a", 1, None], {"type": ["string", "integer", "null"], "enum": ["a", 1, None]}),  # noqa: PYI061 (people write it)
    (Literal[Colour.RED], {"type": "string", "enum": ["red"]}),
    (Optional[int], {"type": ["integer", "null"]}),  # noqa: UP045 (both spellings are read)
    (Colour | None, {"type": ["string", "null"], "enum": ["red", "dark-blue", None]}),
    (int | str, {"anyOf": [{"type": "integer"}, {"type": "string"}]}),
    (int | str | None, {"anyOf": [{"type": "integer"}, {"type": "string"}, {"type": "null"}]}),
    (UserId, {"type": "integer"}),
    (Annotated[str, "what it is"], {"type": "string", "description": "what it is"}),
    (
        Page[UserId],
        {
            "type": "object",
            "properties": {"items": {"type": "array", "items": {"type": "integer"}}, "total": {"type": "integer"}},
            "required": ["items", "total"],
        },
    ),
    (
        Options,
        {
            "type": "object",
            "properties": {"depth": {"type": "integer"}, "wide": {"type": "boolean"}, "note": {"type": "string"}},
            "required": ["depth"],
        },
    ),
    (
        ReadOnlyOptions,
        {
            "type": "object",
            "properties": {"depth": {"type": "integer"}, "wide": {"type": "boolean"}},
            "required": ["depth"],
        },
    ),
    (Cat, {"type": "object", "properties": {"type": {"const": "cat"}, "lives": {"type": "integer", "default": 9}}}),
    (
        Closed,
        {
            "type": "object",
            "properties": {"firstName": {"type": "string"}},
            "required": ["firstName"],
            "additionalProperties": False,
        },
    ),
    (
        Tree,
        {
            "$ref": "#/$defs/Tree",
            "$defs": {
                "Tree": {
                    "type": "object",
                    "properties": {
                        "value": {"type": "integer"},
                        "children": {"type": "array", "items": {"$ref": "#/$defs/Tree"}},
                    },
                    "required": ["value"],
                }
            },
        },
    ),
    (
        Line,
        {
            "type": "object",
            "properties": {"start": {"$ref": "#/$defs/Point"}, "end": {"$ref": "#/$defs/Point"}},
            "required": ["start", "end"],
            "$defs": {"Point": POINT},
        },
    ),
    (Plain, {"type": "array", "items": {"type": "integer"}}),
    (Box[str], {"type": "array", "items": {"type": "string"}}),
    (
        Json,
        {
            "$ref": "#/$defs/Json",
            "$defs": {
                "Json": {
                    "anyOf": [
                        {"type": "object", "additionalProperties": {"$ref": "#/$defs/Json"}},
                        {"type": "array", "items": {"$ref": "#/$defs/Json"}},
                        {"type": "integer"},
                        {"type": "null"},
                    ]
                }
            },
        },
    ),
    (pydantic.HttpUrl, {"type": "string", "format": "uri", "minLength": 1, "maxLength": 2083}),
]


@pytest.mark.parametrize(("annotation", "schema"), TYPES, ids=[str(annotation) for annotation, _ in TYPES])
def test_a_type_has_this_schema(annotation: Any, schema: dict[str, Any]) -> None:
    assert schema_of(annotation) == schema
    Validator(schema)


# One bound in the words of each library.
BOUNDS: list[tuple[Any, dict[str, Any]]] = [
    (Annotated[int, Range(1, 100)], {"type": "integer", "minimum": 1, "maximum": 100}),
    (Annotated[int, Range(1)], {"type": "integer", "minimum": 1}),
    (Annotated[int, annotated_types.Interval(ge=1, le=100)], {"type": "integer", "minimum": 1, "maximum": 100}),
    (Annotated[int, annotated_types.Ge(1), annotated_types.Le(100)], {"type": "integer", "minimum": 1, "maximum": 100}),
    (Annotated[int, pydantic.Field(ge=1, le=100)], {"type": "integer", "minimum": 1, "maximum": 100}),
    (Annotated[int, msgspec.Meta(ge=1, le=100)], {"type": "integer", "minimum": 1, "maximum": 100}),
    (
        Annotated[float, annotated_types.Gt(0), annotated_types.Lt(1)],
        {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1},
    ),
    (Annotated[int, annotated_types.MultipleOf(5)], {"type": "integer", "multipleOf": 5}),
    (Annotated[str, MinLength(3), MaxLength(50)], {"type": "string", "minLength": 3, "maxLength": 50}),
    (Annotated[str, annotated_types.Len(3, 50)], {"type": "string", "minLength": 3, "maxLength": 50}),
    (Annotated[str, pydantic.Field(min_length=3, max_length=50)], {"type": "string", "minLength": 3, "maxLength": 50}),
    (Annotated[str, msgspec.Meta(min_length=3, max_length=50)], {"type": "string", "minLength": 3, "maxLength": 50}),
    (Annotated[list[int], MinLength(1)], {"type": "array", "items": {"type": "integer"}, "minItems": 1}),
    (
        Annotated[dict[str, int], MaxLength(4)],
        {"type": "object", "additionalProperties": {"type": "integer"}, "maxProperties": 4},
    ),
    (list[Annotated[int, Range(0)]], {"type": "array", "items": {"type": "integer", "minimum": 0}}),
    (Annotated[str, Pattern(r"^[A-Z]+$")], {"type": "string", "pattern": "^[A-Z]+$"}),
    (Annotated[str, pydantic.Field(pattern=r"^[A-Z]+$")], {"type": "string", "pattern": "^[A-Z]+$"}),
    (Annotated[str, pydantic.StringConstraints(pattern=r"^[A-Z]+$")], {"type": "string", "pattern": "^[A-Z]+$"}),
    (Annotated[str, msgspec.Meta(pattern=r"^[A-Z]+$")], {"type": "string", "pattern": "^[A-Z]+$"}),
    (Annotated[str, Description("Words")], {"type": "string", "description": "Words"}),
    (Annotated[str, annotated_types.doc("Words")], {"type": "string", "description": "Words"}),
    (Annotated[str, pydantic.Field(description="Words")], {"type": "string", "description": "Words"}),
    (Annotated[str, msgspec.Meta(description="Words")], {"type": "string", "description": "Words"}),
    (Annotated[str, Header("Region")], {"type": "string", "x-mcp-header": "Region"}),
    (Annotated[str, EnumConstraint(["a", "b"])], {"type": "string", "enum": ["a", "b"]}),
    (Annotated[int, pydantic.Field(examples=[1, 2])], {"type": "integer", "examples": [1, 2]}),
    (Annotated[int, msgspec.Meta(examples=[1, 2])], {"type": "integer", "examples": [1, 2]}),
    (Annotated[int, pydantic.Field(json_schema_extra={"x-unit": "m"})], {"type": "integer", "x-unit": "m"}),
    (Annotated[int, msgspec.Meta(extra_json_schema={"x-unit": "m"})], {"type": "integer", "x-unit": "m"}),
    (
        Annotated[decimal.Decimal, annotated_types.Ge(decimal.Decimal("0.5"))],
        {"anyOf": [{"type": "number", "minimum": 0.5}, DECIMAL_TEXT]},
    ),
    (Annotated[dt.date, annotated_types.Ge(dt.date(2000, 1, 1))], {"type": "string", "format": "date"}),
    (
        Annotated[Annotated[int, Range(1, 5)], "outer"],
        {"type": "integer", "minimum": 1, "maximum": 5, "description": "outer"},
    ),
    (Optional[Annotated[int, Range(1)]], {"type": ["integer", "null"], "minimum": 1}),  # noqa: UP045 (both spellings are read)
]


@pytest.mark.parametrize(("annotation", "schema"), BOUNDS, ids=[str(annotation) for annotation, _ in BOUNDS])
def test_a_constraint_is_read_from_any_library(annotation: Any, schema: dict[str, Any]) -> None:
    assert schema_of(annotation) == schema
    Validator(schema)


class Kind(enum.Enum):
    SMALL = "small"
    LARGE = "large"


@dataclass
class DataOrder:
    id: Annotated[int, annotated_types.Ge(1)]
    kind: Kind
    tags: list[str] = field(default_factory=list)
    note: str | None = None
    placed: dt.date = dt.date(2026, 1, 1)


class StructOrder(msgspec.Struct):
    id: Annotated[int, msgspec.Meta(ge=1)]
    kind: Kind
    tags: list[str] = []
    note: str | None = None
    placed: dt.date = dt.date(2026, 1, 1)


@attrs.define
class AttrsOrder:
    id: Annotated[int, Range(1)]
    kind: Kind
    tags: list[str] = attrs.Factory(list)
    note: str | None = None
    placed: dt.date = dt.date(2026, 1, 1)


class ModelOrder(pydantic.BaseModel):
    id: int = pydantic.Field(ge=1)
    kind: Kind
    tags: list[str] = pydantic.Field(default_factory=list)
    note: str | None = None
    placed: dt.date = dt.date(2026, 1, 1)


@pydantic.dataclasses.dataclass
class ModelDataOrder:
    id: Annotated[int, pydantic.Field(ge=1)]
    kind: Kind
    tags: list[str] = field(default_factory=list)
    note: str | None = None
    placed: dt.date = dt.date(2026, 1, 1)


@pytest.mark.parametrize("order", [DataOrder, StructOrder, AttrsOrder, ModelOrder, ModelDataOrder])
def test_one_record_has_one_schema_whichever_library_it_is_from(order: Any) -> None:
    assert schema_of(order) == {
        "type": "object",
        "properties": {
            "id": {"type": "integer", "minimum": 1},
            "kind": {"type": "string", "enum": ["small", "large"]},
            "tags": {"type": "array", "items": {"type": "string"}},
            "note": {"type": ["string", "null"]},
            "placed": {"type": "string", "format": "date", "default": "2026-01-01"},
        },
        "required": ["id", "kind"],
    }


def test_parameters_are_closed_at_any_depth() -> None:
    def move(to: Point, speed: float = 1.5) -> None: ...

    assert schema_of(move) == {
        "type": "object",
        "properties": {
            "to": {**POINT, "additionalProperties": False},
            "speed": {"type": "number", "default": 1.5},
        },
        "required": ["to"],
        "additionalProperties": False,
    }


def test_no_parameters_take_only_an_empty_object() -> None:
    assert schema_of(lambda: None) == {"type": "object", "properties": {}, "additionalProperties": False}


def test_an_optional_parameter_is_shown_as_its_plain_type() -> None:
    def greet(name: str, prefix: str | None = None, suffix: Optional[str] = None, mood: str | None = "good") -> str: ...  # noqa: UP045

    assert schema_of(greet) == {
        "type": "object",
        "properties": {
            "name": {"type": "string"},
            "prefix": {"type": "string"},
            "suffix": {"type": "string"},
            # Here null is not the same as nothing, so the schema says that it is taken.
            "mood": {"type": ["string", "null"], "default": "good"},
        },
        "required": ["name"],
        "additionalProperties": False,
    }


def test_an_optional_without_a_default_is_not_required() -> None:
    def greet(prefix: str | None, name: str) -> str: ...

    assert schema_of(greet)["required"] == ["name"]


def test_a_default_of_none_makes_any_parameter_optional() -> None:
    def greet(name: str = None) -> str: ...  # type: ignore[assignment]  # noqa: RUF013 (people write it)

    assert schema_of(greet) == {
        "type": "object",
        "properties": {"name": {"type": "string"}},
        "additionalProperties": False,
    }


def test_untyped_parameters_take_anything() -> None:
    def f(a, b=3):  # type: ignore[no-untyped-def]
        ...

    assert schema_of(f) == {
        "type": "object",
        "properties": {"a": {}, "b": {"default": 3}},
        "required": ["a"],
        "additionalProperties": False,
    }


def test_defaults_are_shown_in_their_json_form() -> None:
    def f(
        colour: Colour = Colour.RED,
        day: dt.date = dt.date(2026, 7, 28),
        where: pathlib.Path = pathlib.Path("a/b"),
        point: Point = Point(1.0),  # noqa: B008 (what is tested)
        strange: Any = object(),  # noqa: B008
    ) -> None: ...

    properties = schema_of(f)["properties"]
    assert {name: part.get("default") for name, part in properties.items()} == {
        "colour": "red",
        "day": "2026-07-28",
        "where": "a/b",
        "point": {"x": 1.0, "y": 0.0, "label": None},
        "strange": None,
    }


def test_the_design_table_of_parameter_attributes() -> None:
    def divide(
        numerator: Annotated[float, Description("Numerator")],
        denominator: Annotated[
            float, Description("Denominator (cannot be zero)"), Range(0.001, 1.7976931348623157e308)
        ],
    ) -> float: ...

    assert schema_of(divide) == {
        "type": "object",
        "properties": {
            "numerator": {"type": "number", "description": "Numerator"},
            "denominator": {
                "type": "number",
                "description": "Denominator (cannot be zero)",
                "minimum": 0.001,
                "maximum": 1.7976931348623157e308,
            },
        },
        "required": ["numerator", "denominator"],
        "additionalProperties": False,
    }


def test_an_alias_is_the_name_in_the_schema() -> None:
    def send(from_: Annotated[str, pydantic.Field(alias="from")]) -> None: ...

    assert schema_of(send)["required"] == ["from"]


def test_a_pydantic_field_may_stand_for_the_default() -> None:
    def f(limit: int = pydantic.Field(10, ge=1, description="How many")) -> None: ...

    assert schema_of(f)["properties"] == {
        "limit": {"type": "integer", "minimum": 1, "description": "How many", "default": 10}
    }


def test_a_model_pydantic_alone_understands_keeps_its_schema_without_titles() -> None:
    class Odd(pydantic.RootModel[list[int]]): ...

    Upper = Annotated[str, pydantic.AfterValidator(str.upper)]  # noqa: N806 (a type)

    def f(odd: Odd, word: Upper) -> None: ...

    assert schema_of(f)["properties"] == {
        "odd": {"type": "array", "items": {"type": "integer"}},
        "word": {"type": "string"},
    }


def test_two_classes_of_one_name_get_two_definitions() -> None:
    def make() -> type:
        @dataclass
        class Node:
            next: Node | None = None

        return Node

    One, Two = make(), make()  # noqa: N806 (types)
    schema = schema_of(tuple[One, One, Two, Two])  # type: ignore[valid-type]
    assert sorted(schema["$defs"]) == ["Node", "Node_2"]


def test_descriptions_of_fields_come_from_the_docstring_of_their_class() -> None:
    @dataclass
    class Place:
        """Somewhere.

        Attributes:
            street: Where the house stands
        """

        street: str

    assert schema_of(Place) == {
        "type": "object",
        "properties": {"street": {"type": "string", "description": "Where the house stands"}},
        "required": ["street"],
        "description": "Somewhere.",
    }
