"""Schemas in the subsets providers take: what stays, what is said in words, what cannot be said."""

from __future__ import annotations

from typing import Any

import jsonschema_rs
import pytest

from pegboard.providers.schema_dialects import Inexpressible, gemini_schema, open_root, strict_schema

USER: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 3, "description": "Who", "x-mcp-header": "Name"},
        "age": {"type": "integer", "minimum": 0, "default": 18},
        "tags": {"type": "array", "items": {"type": "string"}, "uniqueItems": True},
        "role": {"type": "string", "enum": ["admin", "guest"]},
        "when": {"type": "string", "format": "date-time"},
        "site": {"type": "string", "format": "uri"},
        "boss": {"$ref": "#/$defs/Person"},
    },
    "required": ["name", "boss"],
    "additionalProperties": False,
    "$defs": {
        "Person": {
            "type": "object",
            "properties": {"name": {"type": "string"}, "boss": {"$ref": "#/$defs/Person"}},
            "required": ["name"],
        }
    },
}


def every_object(schema: Any) -> list[dict[str, Any]]:
    found = [schema] if isinstance(schema, dict) and "properties" in schema else []
    parts = schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ()
    return found + [inner for part in parts for inner in every_object(part)]


def test_strict_closes_every_object_and_requires_every_property() -> None:
    notes: list[str] = []
    schema = strict_schema(USER, notes)
    objects = every_object(schema)
    assert len(objects) == 2
    for part in objects:
        assert part["additionalProperties"] is False
        assert part["required"] == list(part["properties"])
    jsonschema_rs.meta.validate(schema)


def test_strict_makes_optional_properties_nullable() -> None:
    properties = strict_schema(USER, [])["properties"]
    assert properties["age"]["type"] == ["integer", "null"]
    assert properties["role"] == {"type": ["string", "null"], "enum": ["admin", "guest", None]}
    assert properties["name"]["type"] == "string"
    assert properties["boss"] == {"$ref": "#/$defs/Person"}
    boss = strict_schema(USER, [])["$defs"]["Person"]["properties"]["boss"]
    assert boss == {"anyOf": [{"$ref": "#/$defs/Person"}, {"type": "null"}]}


def test_strict_says_in_words_what_it_cannot_keep() -> None:
    notes: list[str] = []
    properties = strict_schema(USER, notes)["properties"]
    assert properties["name"]["description"] == "Who (minLength: 3)"
    assert properties["age"]["description"] == "default: 18"
    assert properties["age"]["minimum"] == 0
    assert properties["when"]["format"] == "date-time"
    assert properties["site"]["description"] == "format: uri"
    assert "name: minLength moved to the description" in notes
    assert not any("x-mcp-header" in note for note in notes)


def test_what_fits_the_original_with_every_name_given_fits_the_strict_form() -> None:
    value = {
        "name": "Ada",
        "age": 3,
        "tags": ["a"],
        "role": "admin",
        "when": "2026-07-28T00:00:00Z",
        "site": "https://example.com",
        "boss": {"name": "B", "boss": None},
    }
    strict = jsonschema_rs.validator_for(strict_schema(USER, []))
    assert strict.is_valid(value)
    assert strict.is_valid({**value, "age": None, "tags": None, "role": None, "when": None, "site": None})
    assert not strict.is_valid({**value, "boss": None})
    assert not strict.is_valid({**value, "more": 1})


@pytest.mark.parametrize(
    ("part", "reason"),
    [
        ({"type": "object"}, "p accepts any names"),
        ({"type": "object", "additionalProperties": {"type": "integer"}}, "p accepts any names"),
        ({"type": "array"}, "accepts any value"),
        ({}, "p accepts any value"),
        ({"description": "whatever"}, "p accepts any type"),
        ({"allOf": [{"type": "string"}, {"minLength": 1}]}, "allOf"),
    ],
)
def test_strict_refuses_what_it_would_change(part: dict[str, Any], reason: str) -> None:
    with pytest.raises(Inexpressible, match=reason):
        strict_schema({"type": "object", "properties": {"p": part}}, [])


def test_strict_takes_unions_tuples_and_single_allof() -> None:
    notes: list[str] = []
    schema = strict_schema(
        {
            "type": "object",
            "properties": {
                "u": {"oneOf": [{"type": "string"}, {"type": "integer"}]},
                "t": {"type": "array", "prefixItems": [{"type": "string"}, {"type": "integer"}], "maxItems": 2},
                "s": {"allOf": [{"type": "string"}], "description": "S"},
            },
            "required": ["t"],
            "additionalProperties": True,
        },
        notes,
    )
    properties = schema["properties"]
    assert properties["u"] == {"anyOf": [{"type": "string"}, {"type": "integer"}, {"type": "null"}]}
    assert properties["t"]["items"] == {"anyOf": [{"type": "string"}, {"type": "integer"}]}
    assert properties["s"] == {"type": ["string", "null"], "description": "S"}
    assert "the schema: only the declared names are accepted" in notes


def test_a_root_is_always_a_bare_object() -> None:
    notes: list[str] = []
    root = open_root({"anyOf": [{"required": ["a"]}], "properties": {"a": {"type": "string"}}}, notes)
    assert root == {"type": "object", "properties": {"a": {"type": "string"}}}
    assert notes == ["anyOf at the root was removed"]
    referred = open_root({"$ref": "#/$defs/A", "$defs": {"A": {"properties": {"a": {}}}}}, [])
    assert (referred["type"], referred["properties"]) == ("object", {"a": {}})


def test_gemini_writes_types_in_capitals_and_references_out() -> None:
    notes: list[str] = []
    schema = gemini_schema(USER, notes)
    assert schema["type"] == "OBJECT"
    assert schema["required"] == ["name", "boss"]
    assert "additionalProperties" not in schema
    assert schema["properties"]["name"] == {"type": "STRING", "minLength": 3, "description": "Who"}
    assert schema["properties"]["tags"]["items"] == {"type": "STRING"}
    assert schema["properties"]["site"] == {"type": "STRING", "description": "format: uri"}
    boss = schema["properties"]["boss"]
    assert boss["properties"]["boss"] == {"type": "OBJECT"}
    assert "boss.boss: the schema is recursive here, and accepts anything" in notes
    assert "$ref" not in str(schema)


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        ({"type": ["string", "null"]}, {"type": "STRING", "nullable": True}),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, {"type": "INTEGER", "nullable": True}),
        ({"type": ["string", "integer"]}, {"anyOf": [{"type": "STRING"}, {"type": "INTEGER"}]}),
        ({"const": "a"}, {"type": "STRING", "enum": ["a"]}),
        ({"type": ["string", "null"], "enum": ["a", None]}, {"type": "STRING", "nullable": True, "enum": ["a"]}),
        ({"enum": [1, 2]}, {"type": "INTEGER", "description": "enum: [1,2]"}),
        ({"enum": [True]}, {"type": "BOOLEAN", "description": "enum: [true]"}),
        ({"enum": [1, 2.5]}, {"type": "NUMBER", "description": "enum: [1,2.5]"}),
        ({"type": "integer", "exclusiveMinimum": 1}, {"type": "INTEGER", "description": "exclusiveMinimum: 1"}),
        ({"type": "array"}, {"type": "ARRAY", "items": {"type": "STRING"}}),
        ({"type": "object", "additionalProperties": {"type": "string"}}, {"type": "OBJECT"}),
        ({"allOf": [{"type": "string"}]}, {"type": "STRING"}),
        ({"allOf": [{"type": "string"}, {"minLength": 1}]}, {"type": "STRING"}),
        (True, {"type": "STRING"}),
    ],
)
def test_gemini_says_everything_some_way(part: Any, expected: dict[str, Any]) -> None:
    schema = gemini_schema({"type": "object", "properties": {"p": part}}, [])
    assert schema["properties"]["p"] == expected


def test_the_schema_that_is_given_is_left_alone() -> None:
    before = repr(USER)
    strict_schema(USER, [])
    gemini_schema(USER, [])
    open_root(USER, [])
    assert repr(USER) == before
