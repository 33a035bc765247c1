"""Schemas are checked when they are declared, and values against them without reaching outside."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pegboard.errors import DeclarationError
from pegboard.schema.cost.references import DIALECTS
from pegboard.schema.jsonschema_backend import LENIENT, STRICT
from pegboard.schema.schema_check import PATTERN_LENGTH, SCHEMA_PARTS, check_schema
from pegboard.schema.validator import DETAILED_ERRORS, Validator, count, has_soft_formats
from tests.depth import examples
from tests.repair.schemas import values


def with_property(part: Any, **keywords: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"a": part}, **keywords}


def deep(levels: int) -> dict[str, Any]:
    part: dict[str, Any] = {}
    for _ in range(levels):
        part = {"items": part}
    return with_property(part)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_dialect_we_name_is_read(dialect: str) -> None:
    check_schema({"$schema": dialect, **with_property({"type": "integer"})}, "tool")
    check_schema({"$schema": f"{dialect}#", **with_property({"type": "integer"})}, "tool")


@pytest.mark.requirement("modern/base/dialect-unknown", "legacy/base/dialect-unknown", "modern/base/ref-never-fetched")
@pytest.mark.parametrize(
    ("schema", "where", "fix"),
    [
        ({}, "/type", '"type": "object"'),
        ({"type": "string"}, "/type", '"type": "object"'),
        ({"type": ["object", "null"]}, "/type", '"type": "object"'),
        ({"$schema": "http://example.com/mine", "type": "object"}, "/$schema", "2020-12"),
        (with_property({"type": "int"}), "/properties/a/type", "keyword"),
        (with_property({"required": "b"}), "/properties/a/required", "keyword"),
        (with_property([]), "/properties/a", "keyword"),
        (with_property({"items": [{"type": "string"}]}), "/properties/a/items", "keyword"),
        (with_property({"pattern": "("}), "/properties/a/pattern", "keyword"),
        (with_property({"pattern": "a" * (PATTERN_LENGTH + 1)}), "/properties/a", "in the tool"),
        (with_property({"patternProperties": {"a" * (PATTERN_LENGTH + 1): {}}}), "/properties/a", "in the tool"),
        (with_property({"$ref": "https://example.com/a.json"}), "/properties/a/$ref", '"$defs"'),
        (with_property({"$ref": "file:///etc/passwd"}), "/properties/a/$ref", '"$defs"'),
        (with_property({"$ref": "other.json"}), "/properties/a/$ref", '"$defs"'),
        (with_property({"$ref": "#/$defs/Missing"}), "/properties/a/$ref", "fix the pointer"),
        (with_property({"anyOf": [{}, {"$ref": "#/$defs/Missing"}]}), "/properties/a/anyOf/1/$ref", "fix the pointer"),
        (with_property({"$id": "urn:x", "$ref": "http://example.com/b"}), "its root", "not fetched"),
        # It says nothing, and a few of them that refer to each other keep the library busy for hours.
        (with_property({"$ref": "#/$defs/x"}, **{"$defs": {"x": {"$ref": "#/$defs/x"}}}), "/$defs/x", "part of the value"),
        (with_property({"allOf": [{"$ref": "#/properties/a"}, {}]}), "/properties/a", "part of the value"),
        (deep(70), "/properties/a", '"$defs"'),
        (with_property({"enum": list(range(SCHEMA_PARTS + 1))}), "its root", "fewer"),
        ({"type": "object", "properties": {f"p{n}": {} for n in range(SCHEMA_PARTS + 1)}}, "its root", "fewer"),
        (with_property({"default": object()}), "its root", "JSON values"),
    ],
)  # fmt: skip
def test_a_schema_that_cannot_be_served_is_refused_with_its_place_and_the_fix(
    schema: dict[str, Any], where: str, fix: str
) -> None:
    with pytest.raises(DeclarationError) as refused:
        check_schema(schema, "server.py:12 tool 'x'")
    text = str(refused.value)
    assert text.startswith("server.py:12 tool 'x': schema at ")
    assert where in text
    assert fix in text


@pytest.mark.parametrize(
    "schema",
    [
        with_property(True),
        with_property({"properties": {"$ref": {"type": "string"}, "pattern": {}, "enum": {}}}),
        with_property({"default": {"$ref": "http://example.com"}}),
        with_property({"const": {"$ref": "http://example.com"}}),
        with_property({"pattern": "^(?!a)b"}),
        with_property({"$ref": "#"}),
        with_property({"$ref": "urn:x"}, **{"$defs": {"x": {"$id": "urn:x", "type": "integer"}}}),
        with_property({"x-mine": {"anything": 1}, "format": "made-up"}),
    ],
)  # fmt: skip
def test_a_schema_that_only_looks_odd_is_taken(schema: dict[str, Any]) -> None:
    check_schema(schema, "tool")
    Validator(schema).is_valid({"a": 1})


def test_patterns_that_backtrack_are_bounded() -> None:
    linear, bounded = Validator({"pattern": "^(a+)+$"}), Validator({"pattern": "^(?=(a+)+$)b"})
    began = time.process_time()
    assert not linear.is_valid("a" * 50_000 + "!")
    assert not bounded.is_valid("a" * 50_000 + "!")
    assert time.process_time() - began < 1


def test_a_part_of_a_schema_validates_like_the_whole() -> None:
    schema = with_property({"$ref": "#/$defs/a~1b%20c"}, **{"$defs": {"a/b c": {"type": "integer", "minimum": 3}}})
    part = Validator(schema).part("/properties/a")
    assert part.is_valid(3)
    assert not part.is_valid(2)
    (problem,) = part.problems(2)
    assert (problem.path, problem.keyword, problem.schema) == ((), "minimum", {"type": "integer", "minimum": 3})


def test_a_problem_names_its_place_and_the_schema_there() -> None:
    schema = with_property({"type": "array", "items": {"type": "integer"}}, required=["b"], additionalProperties=False)
    problems = {problem.keyword: problem for problem in Validator(schema).problems({"a": [1, "x"], "c": 1})}
    assert problems["type"].path == ("a", 1)
    assert problems["type"].schema == {"type": "integer"}
    assert problems["type"].got == "x"
    assert problems["required"].names == ("b",)
    assert problems["additionalProperties"].names == ("c",)


def test_a_union_is_one_problem_unless_one_branch_was_meant() -> None:
    point = {"properties": {"kind": {"const": "point"}, "x": {"type": "integer"}}, "type": "object"}
    line = {"properties": {"kind": {"const": "line"}, "y": {"type": "integer"}}, "type": "object"}
    validator = Validator({"properties": {"s": {"oneOf": [point, line, {"type": "null"}]}}})
    (problem,) = validator.problems({"s": "x"})
    assert (problem.path, problem.keyword) == (("s",), "oneOf")
    (problem,) = validator.problems({"s": {"kind": "line", "y": "z"}})
    assert (problem.path, problem.keyword, problem.got) == (("s", "y"), "type", "z")
    (problem,) = validator.problems({"s": {}})
    assert problem.keyword == "oneOf"
    assert list(validator.problems({"s": {"kind": "line"}})) == []


def test_problems_of_nested_unions_are_bounded() -> None:
    branches = [
        {"type": "object", "properties": {"of": {"$ref": "#"}, name: {}}, "required": ["of"]} for name in "abcdefgh"
    ]
    value: Any = "leaf"
    for _ in range(60):
        value = {"of": value}
    began = time.process_time()
    assert len(list(Validator({"anyOf": [{"type": "integer"}, *branches]}).problems(value))) == 1
    assert time.process_time() - began < 2


@pytest.mark.parametrize(
    ("form", "text", "strict", "lenient"),
    [
        ("date-time", "2026-01-31T12:00:00Z", True, True),
        ("date-time", "2026-01-31T12:00:00.123456789+01:00", True, True),
        ("date-time", "2016-12-31T23:59:60Z", True, True),
        ("date-time", "2026-01-31T12:00:00", False, True),
        ("date-time", "2026-01-31 12:00:00Z", False, False),
        ("date-time", "2026-02-31T12:00:00", False, False),
        ("date-time", "soon", False, False),
        ("date", "2026-01-31", True, True),
        ("date", "31.1.2026", False, False),
        ("time", "12:00:00", True, True),
        ("time", "12:00:00Z", True, True),
        ("time", "12:00", False, False),
        ("duration", "PT1H", True, True),
        ("duration", "-P1DT2H3M4.5S", True, True),
        ("duration", "P3W", True, True),
        ("duration", "P1Y2M", True, True),
        ("duration", "P", False, False),
        ("duration", "PT", False, False),
        ("duration", "P1DT", False, False),
        ("duration", "PT1.5H", False, False),
        ("duration", "1h", False, False),
        ("uuid", "123E4567-e89b-12d3-a456-426614174000", True, True),
        ("uuid", "123", False, False),
        ("uri", "notes://x", True, True),
        ("uri", "/x", False, True),
        ("email", "nobody", True, True),
        ("ipv4", "nowhere", True, True),
    ],
)  # fmt: skip
def test_only_the_formats_of_our_own_schemas_are_asserted(form: str, text: str, strict: bool, lenient: bool) -> None:
    schema = {"type": "string", "format": form}
    assert Validator(schema, formats=STRICT).is_valid(text) is strict
    assert Validator(schema, formats=LENIENT).is_valid(text) is lenient


def test_a_property_named_format_is_not_treated_as_a_format() -> None:
    schema = {"type": "object", "properties": {"format": {"type": "string"}, "x": {"enum": [{"format": "uri"}]}}}
    assert not has_soft_formats(schema)
    assert Validator(schema).is_valid({"format": "x", "x": {"format": "uri"}})
    assert not Validator(schema).is_valid({"format": 1})


def test_problems_of_a_large_value_are_not_listed_one_by_one() -> None:
    validator = Validator({"anyOf": [{"type": "array", "items": {"type": "integer"}}, {"type": "null"}]})
    began = time.process_time()
    assert len(list(validator.problems(["x"] * 500_000))) == 1
    assert list(validator.problems([1] * 500_000)) == []
    assert time.process_time() - began < 1
    assert len(list(Validator({"items": {"type": "integer"}}).problems(["x"] * 500))) == DETAILED_ERRORS


def test_what_json_cannot_carry_is_invalid() -> None:
    validator = Validator({"minLength": 1})
    assert not validator.is_valid("\ud800")
    assert [problem.keyword for problem in validator.problems("\ud800")] == ["encoding"]


@given(values)
@settings(max_examples=examples(20), deadline=None)
def test_counting_agrees_with_a_walk(value: Any) -> None:
    def walk(part: Any) -> int:
        inner = part.values() if isinstance(part, dict) else part if isinstance(part, list) else ()
        return 1 + sum(map(walk, inner))

    assert count(value, 10**9) == walk(value)


@given(st.integers(1, 50))
def test_counting_stops_soon_after_its_bound(most: int) -> None:
    assert most < count([[1] * 10] * 1000, most) <= most + 1001
