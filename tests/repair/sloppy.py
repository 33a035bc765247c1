"""Sloppy calls as models make them, with what each becomes or that it is refused.

Independent of any board: a schema per tool and plain JSON arguments, so that tests drive the engine with them and the
bench drives the peers. `codes` are the codes of the warnings in order, or of the errors when `becomes` is REFUSED.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

REFUSED: Final = object()


@dataclass(frozen=True)
class Sloppy:
    """One call: which kind of slip it is, what was sent, and what it should come to."""

    kind: str
    tool: str
    sent: Any
    becomes: Any
    codes: tuple[str, ...]


ADDRESS = {
    "type": "object",
    "properties": {"street": {"type": "string"}, "zip_code": {"type": "string"}, "floor": {"type": "integer"}},
    "required": ["street"],
}

# One tool a family of slips: numbers, lists, choices, objects, times, unions.
TOOLS: Final[dict[str, dict[str, Any]]] = {
    "search": {
        "type": "object",
        "properties": {
            "query": {"type": "string"},
            "limit": {"type": "integer", "minimum": 1, "maximum": 100, "default": 10},
            "min_score": {"type": "number"},
            "exact": {"type": "boolean", "default": False},
            "page_token": {"type": "string"},
        },
        "required": ["query"],
        "additionalProperties": False,
    },
    "tag": {
        "type": "object",
        "properties": {
            "ids": {"type": "array", "items": {"type": "integer"}},
            "tags": {"type": "array", "items": {"type": "string"}},
            "labels": {"type": "array", "items": {"type": "string"}, "uniqueItems": True},
            "point": {
                "type": "array",
                "prefixItems": [{"type": "number"}, {"type": "number"}],
                "minItems": 2,
                "maxItems": 2,
            },
            "matrix": {"type": "array", "items": {"type": "array", "items": {"type": "integer"}}},
        },
        "additionalProperties": False,
    },
    "paint": {
        "type": "object",
        "properties": {
            "color": {
                "type": "string",
                "enum": ["red", "green", "dark-blue"],
                "x-pegboard-names": {"NIGHT": "dark-blue"},
            },
            "finish": {"oneOf": [{"const": "matt", "title": "Matt finish"}, {"const": "gloss", "title": "Glossy"}]},
            "coats": {"enum": [1, 2, 3]},
            "case": {"enum": ["A", "a", "b"]},
            "note": {"type": ["string", "null"]},
        },
        "required": ["color"],
        "additionalProperties": False,
    },
    "register": {
        "type": "object",
        "properties": {
            "user": {
                "type": "object",
                "properties": {
                    "name": {"type": "string"},
                    "age": {"type": "integer"},
                    "address": ADDRESS,
                    "emails": {"type": "array", "items": {"type": "string"}},
                },
                "required": ["name"],
            },
            "contacts": {"type": "array", "items": ADDRESS},
            "settings": {"type": "object", "additionalProperties": {"type": "integer"}},
            "notify": {"type": "boolean"},
        },
        "additionalProperties": False,
    },
    "schedule": {
        "type": "object",
        "properties": {
            "at": {"type": "string", "format": "date-time"},
            "day": {"type": "string", "format": "date"},
            "time": {"type": "string", "format": "time"},
            "lasts": {"type": "string", "format": "duration"},
            "event": {"type": "string", "format": "uuid"},
            "link": {"type": "string", "format": "uri"},
        },
        "additionalProperties": False,
    },
    "query": {
        "type": "object",
        "properties": {
            "maybe": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
            "flag_or_count": {"anyOf": [{"type": "integer"}, {"type": "boolean"}]},
            "one_or_many": {"anyOf": [{"type": "integer"}, {"type": "array", "items": {"type": "integer"}}]},
            "text_or_number": {"type": ["string", "number"]},
            "shape": {
                "oneOf": [
                    {
                        "type": "object",
                        "properties": {"kind": {"const": "circle"}, "radius": {"type": "number"}},
                        "required": ["kind", "radius"],
                    },
                    {
                        "type": "object",
                        "properties": {"kind": {"const": "square"}, "side": {"type": "number"}},
                        "required": ["kind", "side"],
                    },
                ]
            },
            "tree": {"$ref": "#/$defs/Node"},
            "anything": {},
            "level": {"type": "integer"},
        },
        "required": ["level"],
        "$defs": {
            "Node": {
                "type": "object",
                "properties": {
                    "value": {"type": "integer"},
                    "children": {"type": "array", "items": {"$ref": "#/$defs/Node"}},
                },
                "required": ["value"],
            }
        },
    },
}


def _one(kind: str, tool: str, name: str, sent: Any, becomes: Any, *codes: str) -> Sloppy:
    """A slip in one argument; the others that the tool requires are given."""
    required: dict[str, dict[str, Any]] = {"search": {"query": "q"}, "paint": {"color": "red"}, "query": {"level": 1}}
    rest = required.get(tool, {})
    whole = REFUSED if becomes is REFUSED else {**rest, name: becomes}
    return Sloppy(kind, tool, {**rest, name: sent}, whole, codes)


_TO_BOOLEAN = "string_literal_converted_to_boolean"
_TO_INTEGER = "string_literal_converted_to_integer"
_TO_NUMBER = "string_literal_converted_to_number"
_TO_OBJECT = "string_literal_converted_to_object"
_TO_ARRAY = "string_literal_converted_to_array"
_KEPT_TEXT = "non_string_literal_retained"
_LIST = "scalar_coerced_to_list"
_DEFAULT = "null_replaced_by_default"
_NAME = "property_name_matched"
_TOKEN = "enum_token_matched"

CALLS: Final[tuple[Sloppy, ...]] = (
    # Booleans.
    _one("boolean as text", "search", "exact", "true", True, _TO_BOOLEAN),
    _one("boolean as text", "search", "exact", "False", False, _TO_BOOLEAN),
    _one("boolean with space", "search", "exact", " true ", True, _TO_BOOLEAN),
    _one("boolean as word", "search", "exact", "yes", True, _TO_BOOLEAN),
    _one("boolean as word", "search", "exact", "NO", False, _TO_BOOLEAN),
    _one("boolean as word", "search", "exact", "on", True, _TO_BOOLEAN),
    _one("boolean as word", "search", "exact", "off", False, _TO_BOOLEAN),
    _one("boolean as digit text", "search", "exact", "1", True, _TO_BOOLEAN),
    _one("boolean as digit", "search", "exact", 1, True, "number_coerced_to_boolean"),
    _one("boolean as digit", "search", "exact", 0, False, "number_coerced_to_boolean"),
    _one("boolean as other number", "search", "exact", 2, REFUSED, "invalid_boolean_number"),
    _one("boolean as other text", "search", "exact", "maybe", REFUSED, "invalid_boolean_string"),
    _one("boolean as empty text", "search", "exact", "", REFUSED, "invalid_boolean_string"),
    _one("boolean as list", "search", "exact", [True], REFUSED, "unsupported_boolean_literal"),
    # Integers.
    _one("integer as text", "search", "limit", "42", 42, _TO_INTEGER),
    _one("integer with space", "search", "limit", " 42\n", 42, _TO_INTEGER),
    _one("integer with sign", "search", "limit", "+42", 42, _TO_INTEGER),
    _one("integer with exponent", "search", "limit", "1e2", 100, _TO_INTEGER),
    _one("integer as decimal text", "search", "limit", "5.0", 5, _TO_INTEGER),
    _one("thousands", "query", "level", "1,000", 1000, _TO_INTEGER),
    _one("thousands", "query", "level", "12,345,678", 12345678, _TO_INTEGER),
    _one("comma that is not thousands", "query", "level", "1,5", REFUSED, "invalid_integer_string"),
    _one("fraction for integer", "search", "limit", 42.7, 42, "fractional_number_truncated_to_integer"),
    _one("fraction as text", "search", "limit", "3.7", REFUSED, "invalid_integer_string"),
    _one("integer in words", "search", "limit", "ten", REFUSED, "invalid_integer_string"),
    _one("integer out of range as text", "search", "limit", "500", REFUSED, "invalid_integer_string"),
    _one("integer out of range", "search", "limit", 500, REFUSED, "number_above_maximum"),
    _one("boolean for integer", "search", "limit", True, REFUSED, "unsupported_integer_literal"),
    _one("infinite integer", "search", "limit", "1e999", REFUSED, "invalid_integer_string"),
    _one("underscored integer", "search", "limit", "1_0", REFUSED, "invalid_integer_string"),
    # Numbers.
    _one("number as text", "search", "min_score", "4.25", 4.25, _TO_NUMBER),
    _one("number as text", "search", "min_score", "-3", -3, _TO_NUMBER),
    _one("number with exponent", "search", "min_score", "1e3", 1000, _TO_NUMBER),
    _one("number with thousands", "search", "min_score", "1,000.5", 1000.5, _TO_NUMBER),
    _one("not a number", "search", "min_score", "NaN", REFUSED, "invalid_number_string"),
    _one("not a number", "search", "min_score", "Infinity", REFUSED, "invalid_number_string"),
    _one("boolean for number", "search", "min_score", False, REFUSED, "unsupported_number_literal"),
    # Text.
    _one("number for text", "search", "page_token", 12, "12", _KEPT_TEXT),
    _one("number for text", "search", "page_token", 1.5, "1.5", _KEPT_TEXT),
    _one("boolean for text", "search", "page_token", True, "true", _KEPT_TEXT),
    _one("object for text", "search", "page_token", {"a": 1}, '{"a":1}', _KEPT_TEXT),
    _one("list for text", "search", "page_token", ["a"], '["a"]', _KEPT_TEXT),
    Sloppy("null for required text", "search", {"query": None}, REFUSED, ("null_not_allowed",)),
    # Null.
    Sloppy("null where a default exists", "search", {"query": "q", "limit": None}, {"query": "q", "limit": 10}, (_DEFAULT,)),
    Sloppy("null for something optional", "search", {"query": "q", "page_token": None}, {"query": "q"}, ("null_left_out",)),
    Sloppy("null beside another spelling", "search", {"query": None, "Query": "q"}, REFUSED, ("null_not_allowed", "unknown_parameter")),
    Sloppy("null beside another spelling", "search", {"query": "q", "limit": None, "Limit": 3}, {"query": "q", "limit": 3}, ("null_left_out", _NAME)),
    Sloppy("null for an optional list", "tag", {"tags": None}, {}, ("null_left_out",)),
    _one("null as text", "query", "maybe", "null", None, "string_literal_converted_to_null"),
    _one("null as text", "query", "maybe", "None", None, "string_literal_converted_to_null"),
    Sloppy("null as text for something optional", "search", {"query": "q", "limit": "None"}, {"query": "q", "limit": 10}, ("string_literal_converted_to_null", _DEFAULT)),
    Sloppy("null as text for text", "search", {"query": "q", "page_token": 0, "limit": "null"}, {"query": "q", "page_token": "0", "limit": 10}, (_KEPT_TEXT, "string_literal_converted_to_null", _DEFAULT)),
    _one("null in a list", "tag", "ids", [1, None], REFUSED, "null_not_allowed"),
    # Lists.
    _one("scalar for a list", "tag", "tags", "news", ["news"], _LIST),
    _one("scalar for a set", "tag", "labels", "news", ["news"], _LIST),
    _one("scalar for a list", "tag", "ids", 3, [3], _LIST),
    _one("text for a list of numbers", "tag", "ids", "3", [3], _LIST, _TO_INTEGER),
    _one("number for a list of text", "tag", "tags", 3, ["3"], _LIST, _KEPT_TEXT),
    _one("JSON text for a list", "tag", "tags", '["a", "b"]', ["a", "b"], _TO_ARRAY),
    _one("JSON text for a list", "tag", "ids", "[1, 2]", [1, 2], _TO_ARRAY),
    _one("fenced JSON for a list", "tag", "ids", "```json\n[1, 2]\n```", [1, 2], _TO_ARRAY),
    _one("trailing comma", "tag", "ids", "[1, 2,]", [1, 2], _TO_ARRAY),
    _one("empty text for a list", "tag", "tags", "", [], "empty_array_string"),
    _one("text items for numbers", "tag", "ids", ["1", 2, "3"], [1, 2, 3], _TO_INTEGER, _TO_INTEGER),
    _one("number items for text", "tag", "tags", ["a", 1], ["a", "1"], _KEPT_TEXT),
    _one("JSON text of text items", "tag", "ids", '["1"]', [1], _TO_ARRAY, _TO_INTEGER),
    _one("twice for a set", "tag", "labels", ["a", "b", "a"], ["a", "b"], "duplicate_items_dropped"),
    _one("pair as text", "tag", "point", ["1.5", "2"], [1.5, 2], _TO_NUMBER, _TO_NUMBER),
    _one("commas in text", "tag", "tags", "a,b", REFUSED, "array_parse_error"),
    _one("broken JSON", "tag", "tags", '["a", "b"', REFUSED, "array_parse_error"),
    _one("object for a list of text", "tag", "tags", {"a": 1}, REFUSED, "array_requires_json_array"),
    _one("list for a list of lists", "tag", "matrix", [1, 2], REFUSED, "array_requires_json_array", "array_requires_json_array"),
    _one("bad item", "tag", "ids", [1, "x", 3], REFUSED, "invalid_integer_string"),
    # Choices.
    _one("choice by case", "paint", "color", "RED", "red", _TOKEN),
    _one("choice with space", "paint", "color", " green ", "green", _TOKEN),
    _one("choice by separator", "paint", "color", "dark_blue", "dark-blue", _TOKEN),
    _one("choice by separator", "paint", "color", "Dark Blue", "dark-blue", _TOKEN),
    _one("choice by name", "paint", "color", "NIGHT", "dark-blue", _TOKEN),
    _one("choice by title", "paint", "finish", "glossy", "gloss", _TOKEN),
    _one("choice by case", "paint", "finish", "Matt", "matt", _TOKEN),
    _one("number choice as text", "paint", "coats", "2", 2, _TO_INTEGER),
    _one("choice by case", "paint", "case", "B", "b", _TOKEN),
    _one("choice misspelt", "paint", "color", "gren", REFUSED, "enum_out_of_range"),
    _one("choice that two spell", "paint", "case", " A ", REFUSED, "ambiguous_value"),
    _one("choice unknown", "paint", "coats", 7, REFUSED, "enum_out_of_range"),
    # Names.
    Sloppy("name by case", "search", {"Query": "q"}, {"query": "q"}, (_NAME,)),
    Sloppy("name in camel", "search", {"query": "q", "pageToken": "x"}, {"query": "q", "page_token": "x"}, (_NAME,)),
    Sloppy("name with hyphen", "search", {"query": "q", "min-score": 1}, {"query": "q", "min_score": 1}, (_NAME,)),
    Sloppy("name and value", "search", {"QUERY": 5}, {"query": "5"}, (_NAME, _KEPT_TEXT)),
    Sloppy("name misspelt", "search", {"query": "q", "limt": 3}, REFUSED, ("unknown_parameter",)),
    Sloppy("name twice", "search", {"query": "q", "Query": "r"}, REFUSED, ("unknown_parameter",)),
    Sloppy("name unknown", "search", {"query": "q", "colour": "red"}, REFUSED, ("unknown_parameter",)),
    Sloppy("name unknown where allowed", "query", {"level": 1, "more": 2}, {"level": 1, "more": 2}, ("unknown_parameter",)),
    Sloppy("name by case where others are allowed", "query", {"Level": 1}, {"level": 1}, (_NAME,)),
    Sloppy("name missing", "search", {"limit": 3}, REFUSED, ("missing_required",)),
    # Objects.
    _one("JSON text for an object", "register", "user", '{"name": "Ada"}', {"name": "Ada"}, _TO_OBJECT),
    _one("fenced JSON for an object", "register", "user", '```json\n{"name": "Ada"}\n```', {"name": "Ada"}, _TO_OBJECT),
    _one("fenced JSON without language", "register", "user", '```\n{"name": "Ada"}\n```', {"name": "Ada"}, _TO_OBJECT),
    _one("JSON text twice", "register", "user", '"{\\"name\\": \\"Ada\\"}"', {"name": "Ada"}, _TO_OBJECT),
    _one("commented JSON", "register", "user", '{"name": "Ada", // she\n}', {"name": "Ada"}, _TO_OBJECT),
    _one("JSON text nested", "register", "user", {"name": "Ada", "address": '{"street": "Main"}'}, {"name": "Ada", "address": {"street": "Main"}}, _TO_OBJECT),
    _one("JSON text in JSON text", "register", "user", '{"name": "Ada", "address": "{\\"street\\": \\"Main\\"}"}', {"name": "Ada", "address": {"street": "Main"}}, _TO_OBJECT, _TO_OBJECT),
    _one("JSON text in a list", "register", "contacts", ['{"street": "Main"}'], [{"street": "Main"}], _TO_OBJECT),
    _one("object for a list of objects", "register", "contacts", {"street": "Main"}, [{"street": "Main"}], _LIST),
    _one("JSON text of an object for a list", "register", "contacts", '{"street": "Main", "floor": 1}', [{"street": "Main", "floor": 1}], _LIST, _TO_OBJECT),
    _one("nested scalar", "register", "user", {"name": "Ada", "age": "36"}, {"name": "Ada", "age": 36}, _TO_INTEGER),
    _one("nested list", "register", "user", {"name": "Ada", "emails": "a@b"}, {"name": "Ada", "emails": ["a@b"]}, _LIST),
    _one("nested name", "register", "user", {"Name": "Ada"}, {"name": "Ada"}, _NAME),
    _one("nested name in camel", "register", "contacts", [{"street": 1, "zipCode": "9"}], [{"street": "1", "zip_code": "9"}], _NAME, _KEPT_TEXT),
    _one("nested null", "register", "user", {"name": "Ada", "age": None}, {"name": "Ada"}, "null_left_out"),
    _one("map of text", "register", "settings", {"a": "1", "b": 2}, {"a": 1, "b": 2}, _TO_INTEGER),
    _one("empty text for a map", "register", "settings", "", {}, "empty_map_string"),
    _one("empty text for an object with required fields", "register", "user", "", REFUSED, "missing_required"),
    _one("words for an object", "register", "user", "Ada", REFUSED, "object_parse_error"),
    _one("number for an object", "register", "user", 5, REFUSED, "object_requires_json_object"),
    _one("bad field in JSON text", "register", "user", '{"name": "Ada", "age": "old"}', REFUSED, "invalid_integer_string"),
    Sloppy("fields sent beside", "register", {"name": "Ada", "age": "36"}, {"user": {"name": "Ada", "age": 36}}, ("fields_gathered_into_object", _TO_INTEGER)),
    Sloppy("fields sent beside, one unknown", "register", {"name": "Ada", "size": 3}, REFUSED, ("unknown_parameter", "unknown_parameter")),
    # The arguments as a whole.
    Sloppy("arguments as JSON text", "search", '{"query": "q"}', {"query": "q"}, (_TO_OBJECT,)),
    Sloppy("arguments as fenced JSON", "search", '```json\n{"query": "q", "limit": "3"}\n```', {"query": "q", "limit": 3}, (_TO_OBJECT, _TO_INTEGER)),
    Sloppy("arguments as empty text", "tag", "", {}, ("empty_object_string",)),
    Sloppy("arguments null", "tag", None, {}, ("null_arguments",)),
    Sloppy("arguments as words", "search", "find me", REFUSED, ("json_parse_error",)),
    Sloppy("arguments as a list", "search", ["q"], REFUSED, ("arguments_must_be_object",)),
    # Times and other formats.
    _one("timestamp with a space", "schedule", "at", "2026-01-31 12:00:00Z", "2026-01-31T12:00:00+00:00", "timestamp_normalised"),
    _one("date for a timestamp", "schedule", "at", "2026-01-31", "2026-01-31T00:00:00", "timestamp_normalised", "timestamp_without_offset"),
    _one("timestamp without offset", "schedule", "at", "2026-01-31T12:00:00", "2026-01-31T12:00:00", "timestamp_without_offset"),
    _one("timestamp in words", "schedule", "at", "tomorrow", REFUSED, "invalid_timestamp_format"),
    _one("epoch for a timestamp", "schedule", "at", 1769860800, REFUSED, "timestamp_requires_string"),
    _one("compact date", "schedule", "day", "20260131", "2026-01-31", "date_normalised"),
    _one("time without seconds", "schedule", "time", "12:30", "12:30:00", "time_normalised"),
    _one("duration in words", "schedule", "lasts", "1h", "PT1H", "duration_text_converted"),
    _one("duration in words", "schedule", "lasts", "90 min", "PT1H30M", "duration_text_converted"),
    _one("duration in words", "schedule", "lasts", "2 days 3 hours", "P2DT3H", "duration_text_converted"),
    _one("duration by the clock", "schedule", "lasts", "01:30:00", "PT1H30M", "duration_text_converted"),
    _one("duration without unit", "schedule", "lasts", "90", REFUSED, "invalid_duration_format"),
    _one("bare identifier", "schedule", "event", "123E4567E89B12D3A456426614174000", "123e4567-e89b-12d3-a456-426614174000", "uuid_normalised"),
    _one("relative link", "schedule", "link", "notes/1", "notes/1", "uri_not_absolute"),
    # Unions.
    _one("union: one reading", "query", "maybe", "7", 7, _TO_INTEGER),
    _one("union: two readings", "query", "flag_or_count", "1", REFUSED, "ambiguous_value"),
    _one("union: one of two reads it", "query", "flag_or_count", "yes", True, _TO_BOOLEAN),
    _one("union: itself before a list of it", "query", "one_or_many", "5", 5, _TO_INTEGER),
    _one("union: JSON text for one branch", "query", "one_or_many", '[1, "2"]', [1, 2], _TO_ARRAY, _TO_INTEGER),
    _one("union: by discriminator", "query", "shape", {"kind": "Circle", "radius": "2"}, {"kind": "circle", "radius": 2}, _TOKEN, _TO_NUMBER),
    _one("union: JSON text", "query", "shape", '{"kind": "square", "side": 2}', {"kind": "square", "side": 2}, _TO_OBJECT),
    _one("union: bad field", "query", "shape", {"kind": "circle", "radius": "big"}, REFUSED, "invalid_number_string"),
    _one("recursion", "query", "tree", {"value": 1, "children": [{"value": "2", "children": "[]"}]}, {"value": 1, "children": [{"value": 2, "children": []}]}, _TO_INTEGER, _TO_ARRAY),
)  # fmt: skip

# What must pass as it is, though it looks like a slip.
FITTING: Final[tuple[tuple[str, Any], ...]] = (
    ("search", {"query": "true"}),
    ("search", {"query": '{"a": 1}'}),
    ("search", {"query": "[1, 2]"}),
    ("search", {"query": "q", "page_token": "null"}),
    ("search", {"query": "", "limit": 3.0}),
    ("tag", {"tags": ["1", "[2]", "a,b"]}),
    ("paint", {"color": "red", "note": "null"}),
    ("paint", {"color": "red", "note": None}),
    ("query", {"level": 1, "text_or_number": "12"}),
    ("query", {"level": 1, "anything": '{"a": 1}'}),
    ("schedule", {"at": "2026-01-31T12:00:00Z", "lasts": "PT1H", "link": "notes://1"}),
)
