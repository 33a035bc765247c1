"""Forms: a type becomes what a client can show, and what comes back becomes a value of the type."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import date
from enum import Enum, IntEnum
from typing import Annotated, Any, Literal, TypedDict

import msgspec
import pytest

from pegboard import MaxLength, Range
from pegboard.asking.form import form_of
from pegboard.errors import DeclarationError


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


@dataclass
class Order:
    """An order."""

    name: Annotated[str, MaxLength(20)]
    colour: Colour
    count: Annotated[int, Range(1, 9)] = 1
    when: date | None = None
    gift: bool = False
    extras: list[Literal["bag", "card"]] = field(default_factory=list)


@dataclass
class Inner:
    text: str


@dataclass
class Nested:
    inner: Inner


class Mixed(Enum):
    WORD = "word"
    NUMBER = 1


@dataclass
class Choices:
    first: Literal["a", "b"] | None = None
    second: Literal["c"] | None = None


@dataclass
class Texts:
    text: str = "something"
    choice: Literal["", "a"] = "a"


@dataclass
class Undated:
    when: date | None


class Size(IntEnum):
    SMALL = 1
    LARGE = 2


@dataclass
class Numbered:
    size: Literal[1, 2] = 2


class Typed(TypedDict):
    name: str


class Packed(msgspec.Struct):
    name: str


def test_a_dataclass_is_shown_as_a_flat_object_of_plain_fields() -> None:
    assert form_of(Order).schema == {
        "type": "object",
        "properties": {
            "name": {"type": "string", "maxLength": 20},
            "colour": {"type": "string", "enum": ["red", "blue"]},
            "count": {"type": "integer", "minimum": 1, "maximum": 9, "default": 1},
            "when": {"type": "string", "format": "date"},
            "gift": {"type": "boolean", "default": False},
            "extras": {"type": "array", "items": {"type": "string", "enum": ["bag", "card"]}},
        },
        "required": ["name", "colour"],
    }


def test_what_was_filled_in_is_a_value_of_the_type_and_forgiven_as_arguments_are() -> None:
    content = {"name": "Ada", "colour": "RED", "count": "2", "gift": "yes", "extras": ["Bag"], "when": "2026-11-16"}
    assert form_of(Order).read(content) == (Order("Ada", Colour.RED, 2, date(2026, 11, 16), True, ["bag"]), ())


def test_invalid_values_are_reported_field_by_field() -> None:
    value, errors = form_of(Order).read({"colour": "green", "count": 12})
    assert value is None
    assert {error.path for error in errors} >= {"colour", "count"}
    assert all(error.message.startswith(error.path) for error in errors)


@pytest.mark.parametrize(
    ("wanted", "part", "content", "value"),
    [
        (bool, {"type": "boolean"}, {"value": "no"}, False),
        (str, {"type": "string"}, {"value": "x"}, "x"),
        (Literal["a", "b"], {"type": "string", "enum": ["a", "b"]}, {"value": "B"}, "b"),
        (Annotated[int, Range(1, 3)], {"type": "integer", "minimum": 1, "maximum": 3}, {"value": 2}, 2),
    ],
)
def test_one_plain_value_is_a_form_of_one_field(wanted: Any, part: Any, content: Any, value: Any) -> None:
    form = form_of(wanted)
    assert form.schema == {"type": "object", "properties": {"value": part}, "required": ["value"]}
    assert form.read(content) == (value, ())


@pytest.mark.parametrize(("wanted", "value"), [(Typed, {"name": "Ada"}), (Packed, Packed("Ada"))])
def test_every_kind_of_record_can_be_asked_for(wanted: Any, value: Any) -> None:
    assert form_of(wanted).read({"name": "Ada"}) == (value, ())


def test_nothing_but_consent_is_an_empty_form() -> None:
    assert form_of(None).schema == {"type": "object", "properties": {}}
    assert form_of(None).read({}) == ({}, ())


def test_a_schema_is_shown_as_it_is_and_its_answer_stays_json() -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer", "title": "N"}}, "required": ["n"]}
    form = form_of(schema)
    assert form.schema == schema
    assert form.read({"n": "4"}) == ({"n": 4}, ())


@pytest.mark.parametrize(
    "wanted", [Nested, list[Inner], dict[str, int], {"type": "string"}, {"type": "objct"}, int | str, Mixed]
)
def test_what_a_form_cannot_show_is_refused_when_it_is_asked_for(wanted: Any) -> None:
    with pytest.raises(DeclarationError, match=r"cannot be a form field|^A form must be an object"):
        form_of(wanted)


@pytest.mark.parametrize("wanted", [["yes", "no"], Order("Ada", Colour.RED)])
def test_a_value_in_place_of_a_type_is_rejected_with_what_to_write_instead(wanted: Any) -> None:
    with pytest.raises(DeclarationError, match=r"Literal\['yes', 'no'\]"):
        form_of(wanted)


def test_what_may_stay_empty_is_left_out_and_never_null() -> None:
    form = form_of(Choices)
    assert form.schema["properties"] == {
        "first": {"type": "string", "enum": ["a", "b"]},
        "second": {"type": "string", "enum": ["c"]},
    }
    assert "required" not in form.schema
    assert form.read({}) == (Choices(), ())
    one = form_of(str | None)
    assert one.schema == {"type": "object", "properties": {"value": {"type": "string"}}}
    assert one.read({}) == (None, ())


def test_an_empty_field_that_may_stay_empty_was_not_filled_in() -> None:
    empty = {"name": "Ada", "colour": "red", "count": "", "when": "", "gift": "", "extras": ""}
    assert form_of(Order).read(empty) == (Order("Ada", Colour.RED), ())
    assert form_of(Choices).read({"first": "", "second": "c"}) == (Choices(None, "c"), ())
    assert form_of(date | None).read({"value": ""}) == (None, ())
    schema = {"type": "object", "properties": {"n": {"type": "integer"}, "s": {"type": "string", "minLength": 1}}}
    assert form_of(schema).read({"n": "", "s": ""}) == ({}, ())
    titled = {"type": "object", "properties": {"c": {"type": "string", "oneOf": [{"const": "a", "title": "A"}]}}}
    assert form_of(titled).read({"c": ""}) == ({}, ())


def test_an_empty_text_is_what_a_user_may_want() -> None:
    form = form_of(Texts)
    assert form.read({"text": "", "choice": ""}) == (Texts("", ""), ())


def test_an_empty_required_field_is_reported() -> None:
    value, errors = form_of(Order).read({"name": "Ada", "colour": ""})
    assert (value, [error.path for error in errors]) == (None, ["colour"])


def test_what_may_be_none_need_not_be_filled_in_though_it_has_no_default() -> None:
    form = form_of(Undated)
    assert "required" not in form.schema
    assert form.read({}) == form.read({"when": ""}) == (Undated(None), ())


@pytest.mark.parametrize(
    ("wanted", "part", "content", "value"),
    [
        (Literal[1, 2], {"type": "string", "enum": ["1", "2"]}, "2", 2),
        (Literal[1, 2], {"type": "string", "enum": ["1", "2"]}, 2, 2),
        (Size, {"type": "string", "enum": ["1", "2"]}, "2", Size.LARGE),
        (list[Literal[1, 2]], {"type": "array", "items": {"type": "string", "enum": ["1", "2"]}}, ["1", "2"], [1, 2]),
    ],
)
def test_a_choice_of_numbers_is_shown_as_one_of_texts(wanted: Any, part: Any, content: Any, value: Any) -> None:
    form = form_of(wanted)
    assert form.schema["properties"] == {"value": part}
    assert form.read({"value": content}) == (value, ())


def test_what_a_choice_of_numbers_proposes_is_a_text_too() -> None:
    form = form_of(Numbered)
    assert form.schema["properties"] == {"size": {"type": "string", "enum": ["1", "2"], "default": "2"}}
    assert form.read({"size": "1"}) == (Numbered(1), ())
    assert form.read({"size": ""}) == (Numbered(2), ())


@pytest.mark.parametrize(
    ("wanted", "value"),
    [
        (bool, True),
        (Typed, {"name": "Ada"}),
        (
            {"type": "object", "properties": {"name": {"type": "string"}}, "additionalProperties": False},
            {"value": True, "name": "Ada"},
        ),
    ],
)
def test_fields_that_the_form_does_not_forbid_are_no_mistake(wanted: Any, value: Any) -> None:
    form = form_of(wanted)
    assert "additionalProperties" not in form.schema
    assert form.read({"value": True, "name": "Ada"}) == (value, ())


def test_a_type_that_cannot_be_hashed_is_asked_for_all_the_same() -> None:
    assert form_of(Annotated[str, ["not hashable"]]).read({"value": "x"}) == ("x", ())


def test_a_form_is_made_once_for_each_type() -> None:
    assert form_of(Order) is form_of(Order)
