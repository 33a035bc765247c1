"""Literals are read as models write them, and nothing else is."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pegboard.schema.literals import (
    Names,
    fold_name,
    kind_of,
    to_boolean,
    to_duration,
    to_integer,
    to_json,
    to_number,
    to_timestamp,
    to_uuid,
)

pytestmark = pytest.mark.same_on_every_python


@pytest.mark.parametrize(
    ("text", "number"),
    [("42", 42), ("-1", -1), ("+7", 7), (" 8\t", 8), ("1e3", 1000), ("5.0", 5), ("1,000", 1000), ("007", 7), ("1e30", 10**30)],
)  # fmt: skip
def test_integers_are_read(text: str, number: int) -> None:
    assert to_integer(text) == number


@pytest.mark.parametrize(
    "text",
    [
        "",
        "-",
        "3.7",
        "1_000",
        "1,00",
        "0,100",
        ",100",
        "1.000,5",
        "0x10",
        "٣",
        "NaN",
        "inf",
        "1e99999",
        "1 2",
        "9" * 401,
    ],
)
def test_other_text_is_not_converted_to_an_integer(text: str) -> None:
    assert to_integer(text) is None


@given(st.integers(-(10**60), 10**60))
def test_every_integer_reads_back(number: int) -> None:
    assert to_integer(str(number)) == number
    assert to_number(f"{number:,}") == number


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_every_number_reads_back(number: float) -> None:
    assert to_number(repr(number)) == number


@given(st.text())
def test_a_number_that_is_read_is_finite(text: str) -> None:
    number = to_number(text)
    assert number is None or math.isfinite(number)


@pytest.mark.parametrize("text", ["y", "t", "ja", "truee", "2", "", "true false", "null"])
def test_other_words_are_no_boolean(text: str) -> None:
    assert to_boolean(text) is None


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": 1}', {"a": 1}),
        ("  [1]\n", [1]),
        ("```json\n[1]\n```", [1]),
        ("```JSON\r\n[1]\r\n```", [1]),
        ("```\n[1]```", [1]),
        ("[1, 2, ]", [1, 2]),
        ('{"a": [1,], /* why */ "b": "// no, }",}', {"a": [1], "b": "// no, }"}),
        ('["a\\",]"]', ['a",]']),
    ],
)  # fmt: skip
def test_json_text_is_read_with_what_people_add_to_it(text: str, value: Any) -> None:
    assert to_json(text) == (value,)


@pytest.mark.parametrize(
    "text", ["", "```\n```", "{", "{'a': 1}", "[1 2]", "NaN", "[1e999]", "[" * 200 + "]" * 200, '["\\ud800"]x']
)
def test_other_text_is_not_parsed_as_json(text: str) -> None:
    assert to_json(text) is None


@pytest.mark.parametrize(
    ("text", "spelt"),
    [("1h", "PT1H"), ("90 min", "PT1H30M"), ("1h30m", "PT1H30M"), ("1.5 hours", "PT1H30M"), ("45s", "PT45S"), ("2 days", "P2D"), ("1 week and 2 days", "P9D"), ("0.25s", "PT0.25S"), ("0 sec", "PT0S"), ("01:02:03", "PT1H2M3S"), ("pt5m", "PT5M")],
)  # fmt: skip
def test_durations_are_read_in_words(text: str, spelt: str) -> None:
    assert to_duration(text) == spelt


@pytest.mark.parametrize("text", ["", "90", "h", "1 fortnight", "1h 2h", "-1h", "1:30", "1h!", "9" * 200 + "h"])
def test_durations_without_one_meaning_are_not_read(text: str) -> None:
    assert to_duration(text) is None


def test_timestamps_keep_their_offset_and_get_none() -> None:
    assert to_timestamp("2026-01-31 10:00+02:00") == "2026-01-31T10:00:00+02:00"
    assert to_timestamp(" 20260131T100000 ") == "2026-01-31T10:00:00"
    assert to_timestamp("31/01/2026") is None


def test_identifiers_are_read_in_every_usual_dress() -> None:
    spelt = "123e4567-e89b-12d3-a456-426614174000"
    assert {to_uuid(text) for text in (spelt, f"{{{spelt}}}", f"urn:uuid:{spelt}", spelt.replace("-", "").upper())} == {
        spelt
    }
    assert to_uuid("123") is None


def test_names_match_by_case_first_and_by_separators_after() -> None:
    names = Names({"dark-blue": 1, "darkblue": 2, "RED": 3, "Red ": 3})
    assert names.match("DarkBlue") == [2]
    assert names.match("dark_blue") == [1, 2]
    assert names.match(" red") == [3]
    assert Names({"": 1}).match(" ") == []


def test_spellings_of_one_name_fold_together() -> None:
    assert {fold_name(name) for name in ("userName", "user_name", "user-name", "User Name", "USER.NAME")} == {
        "username"
    }


def test_kinds_are_those_of_json_schema() -> None:
    assert [kind_of(value) for value in ("", True, 1, 1.0, 1.5, None, [], {})] == [
        "string", "boolean", "integer", "integer", "number", "null", "array", "object",
    ]  # fmt: skip
