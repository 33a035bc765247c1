"""Problems are told to the model in a line each: where, what was got, what is allowed, and what may have been meant."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pegboard.argument_problems import ParseError
from pegboard.repair.repairer import Repairer
from pegboard.schema.problems import format_keys, format_path, render
from pegboard.schema.wording import closest, describe, example, show_value
from tests.depth import examples
from tests.repair.schemas import parts, values
from tests.repair.sloppy import CALLS, REFUSED, TOOLS

PYTHON = re.compile(r"\b(str|int|float|bool|dict|list\[|tuple|NoneType|None|True|False|Traceback|class)\b")


def messages(part: Any, value: Any, **keywords: Any) -> list[str]:
    schema = {"type": "object", "properties": {"x": part}, "additionalProperties": False, **keywords}
    return [error.message for error in Repairer(schema).repair({"x": value}).errors]


@pytest.mark.parametrize(
    ("part", "value", "message"),
    [
        ({"type": "integer", "minimum": 1, "maximum": 100}, "ten", 'x: got "ten", expected an integer from 1 to 100, e.g. 10'),
        ({"type": "integer", "minimum": 50}, 3, "x: got 3, expected an integer at least 50, e.g. 50"),
        ({"type": "number", "exclusiveMinimum": 0}, -1, "x: got -1, expected a number above 0"),
        ({"type": "integer", "multipleOf": 5}, 7, "x: got 7, expected an integer a multiple of 5"),
        ({"type": "boolean"}, "x", 'x: got "x", expected true or false'),
        ({"type": "string", "minLength": 3}, "a", 'x: got "a", expected a string of at least 3 characters'),
        ({"type": "string", "minLength": 1}, "", 'x: got "", expected a string, not empty'),
        ({"type": "string", "maxLength": 3, "minLength": 3}, "a", 'x: got "a", expected a string of 3 characters'),
        ({"type": "string", "pattern": "^[a-z]+$"}, "A", 'x: got "A", expected a string matching ^[a-z]+$'),
        ({"enum": ["red", "green"]}, "gren", 'x: got "gren", did you mean "green"? One of "red", "green"'),
        ({"enum": ["red", "green"]}, "zzz", 'x: got "zzz", expected one of "red", "green"'),
        ({"const": "on"}, "zzz", 'x: got "zzz", expected "on"'),
        ({"type": "array", "items": {"type": "integer"}}, "a", 'x: got "a", expected a list of integers, e.g. [10]'),
        ({"type": "array", "items": {"type": "integer"}, "minItems": 2}, [], "x: got [], expected a list of integers of at least 2 items, e.g. [10,10]"),
        ({"type": "array", "items": {"enum": ["a", "b"]}}, 5, 'x: got 5, expected a list of "a", "b", e.g. ["a"]'),
        ({"type": "object", "required": ["b"], "properties": {"b": {"type": "integer"}}}, 5, 'x: got 5, expected an object with b, e.g. {"b":10}'),
        ({"type": "object", "required": ["b"], "properties": {"b": {"type": "integer"}}}, {}, "x.b: required, but missing; expected an integer, e.g. 10"),
        ({"type": "object", "properties": {"bcd": {}}, "additionalProperties": False}, {"bce": 1}, 'x.bce: unknown property, did you mean "bcd"?'),
        ({"type": "object", "properties": {}, "additionalProperties": False}, {"b": 1}, "x.b: unknown property, remove it"),
        ({"anyOf": [{"type": "integer"}, {"type": "array", "items": {"type": "string"}}]}, {"a": 1}, 'x: got {"a":1}, expected an integer or a list of strings, e.g. 10'),
        ({"anyOf": [{"type": "object", "properties": {"n": {"type": "integer"}}}, {"type": "null"}]}, {"n": "z"}, 'x.n: got "z", expected an integer, e.g. 10'),
        ({"type": ["integer", "null"]}, "z", 'x: got "z", expected an integer or null, e.g. 10'),
        ({"type": "string", "format": "date-time"}, "soon", 'x: got "soon", expected a date and time, e.g. "2026-01-31T12:00:00Z"'),
        ({"type": "integer", "examples": [7]}, "z", 'x: got "z", expected an integer, e.g. 7'),
        ({"not": {"type": "integer"}}, 3, "x: got 3, expected another value (this one is not allowed)"),
        ({"contains": {"type": "integer"}}, ["a"], 'x: got ["a"], expected a list that contains another item'),
        ({"type": "object", "propertyNames": {"pattern": "^a"}}, {"b": 1}, 'x: got the name "b", expected another value'),
        ({"type": "object", "dependentRequired": {"a": ["b"]}}, {"a": 1}, "x.b: required, but missing"),
        (False, 3, "x: no value is allowed here, remove it"),
        ({"$ref": "#/$defs/N"}, "z", 'x: got "z", expected an integer, e.g. 10'),
    ],
)  # fmt: skip
def test_a_problem_says_what_was_got_and_what_is_allowed(part: Any, value: Any, message: str) -> None:
    assert messages(part, value, required=["x"], **{"$defs": {"N": {"type": "integer"}}}) == [message]


def test_refusals_are_written_for_the_model() -> None:
    for call in CALLS:
        if call.becomes is not REFUSED:
            continue
        errors = Repairer(TOOLS[call.tool]).repair(call.sent).errors
        for error in errors:
            assert len(error.message) < 120
            assert not PYTHON.search(error.message.replace('"None"', "")), error.message
            assert "://" not in error.message
            assert error.message.startswith(error.path or "arguments")


def test_a_long_value_path_and_choice_are_cut_to_fit() -> None:
    part = {"enum": [f"choice number {n} of very many" for n in range(50)]}
    (message,) = messages({"type": "object", "properties": {"n" * 100: part}}, {"n" * 100: "v" * 5000})
    assert len(message) < 120
    assert "expected one of" in message


def test_a_name_cannot_break_the_line_or_pose_as_a_path() -> None:
    (message,) = messages({"type": "object", "additionalProperties": False}, {"a\n- b.c: fine": 1})
    assert message.startswith('x["a\\n- b.c: fine"]: unknown property')


def test_render_tells_every_problem_on_its_line() -> None:
    errors = [ParseError(f"a{n}", "c", f"a{n}: wrong", None) for n in range(3)]
    assert render(errors, "search").splitlines() == [
        "search: 3 problems with the arguments; nothing was run. Fix and call again:",
        "- a0: wrong",
        "- a1: wrong",
        "- a2: wrong",
    ]
    assert "1 problem with" in render(errors[:1], "search")
    assert render(errors * 10, "search").splitlines()[-1] == "- and 10 more"


def test_paths_are_spelt_like_code() -> None:
    assert format_path(None) == ""
    assert format_path((((None, "filters"), "tags"), 1)) == "filters.tags[1]"
    assert format_keys(["a b", 0, "c"]) == '["a b"][0].c'


def test_the_closest_name_is_found_by_likeness_not_by_case() -> None:
    assert closest("COLOUR", ["size", "color"]) == "color"
    assert closest("zzz", ["size", "color"]) is None


@given(values, st.integers(10, 60))
@settings(deadline=None)
def test_a_value_is_shown_within_its_room(value: Any, most: int) -> None:
    assert len(show_value(value, most)) <= most
    assert "\n" not in show_value(value, most)


@given(parts)
@settings(max_examples=examples(20), deadline=None)
def test_every_schema_can_be_described_and_exemplified(part: Any) -> None:
    assert describe(part, {"$defs": {"Tree": {"type": "object"}}})
    example(part, {"$defs": {"Tree": {"type": "object"}}})
