"""Strategies for JSON values, and for schemas with values that nearly fit them."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st

NAMES = ["a", "user_name", "userName", "limit", "B"]
WORDS = [
    "",
    " ",
    "a",
    "red",
    "RED",
    "Dark Blue",
    "true",
    "no",
    "1",
    "0",
    "42",
    "4.5",
    "1e3",
    "1,000",
    "null",
    "NaN",
    "[1]",
    "a,b",
]
TEXTS = [*WORDS, '{"a": 1}', '["a", "b"]', '```json\n{"limit": "3"}\n```', "2026-01-01", "1h", "x/y", "\ud800"]

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 120),
    st.integers(-(2**70), 2**70),
    st.floats(-1e6, 1e6),
    st.sampled_from(TEXTS),
    st.text(max_size=6),
)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(NAMES) | st.text(max_size=3), inner, max_size=4)
    ),
    max_leaves=12,
)

_enums = st.lists(
    st.sampled_from(["red", "dark-blue", "Dark_Blue", "RED", "1", "true", 1, 2, True, None, 1.5]),
    min_size=1,
    max_size=4,
    unique_by=repr,
)
_leaves = st.one_of(
    st.just({}),
    st.sampled_from(["string", "boolean", "integer", "number", "null"]).map(lambda kind: {"type": kind}),
    st.lists(
        st.sampled_from(["string", "boolean", "integer", "number", "null", "array", "object"]),
        min_size=1,
        max_size=3,
        unique=True,
    ).map(lambda kinds: {"type": kinds}),
    st.fixed_dictionaries(
        {"type": st.just("integer")},
        optional={
            "minimum": st.integers(0, 5),
            "maximum": st.integers(6, 100),
            "multipleOf": st.integers(1, 3),
            "default": st.just(7),
        },
    ),
    st.fixed_dictionaries(
        {"type": st.just("string")},
        optional={
            "minLength": st.integers(0, 2),
            "maxLength": st.integers(3, 8),
            "pattern": st.sampled_from(["^a", "[0-9]+", "^(?=x)"]),
        },
    ),
    st.sampled_from(["date-time", "date", "time", "duration", "uuid", "uri", "email"]).map(
        lambda form: {"type": "string", "format": form}
    ),
    _enums.map(lambda values: {"enum": values}),
    st.sampled_from(["red", 1, True, None]).map(lambda value: {"const": value, "title": "Choice"}),
    st.just({"$ref": "#/$defs/Tree"}),
    st.just({"type": "string", "enum": ["red", "blue"], "x-pegboard-names": {"ROUGE": "red"}}),
)


def _containers(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    parts = inner | st.booleans()
    properties = st.dictionaries(st.sampled_from(NAMES), parts, max_size=3)
    return st.one_of(
        st.fixed_dictionaries(
            {"type": st.just("array"), "items": parts},
            optional={"minItems": st.integers(0, 2), "uniqueItems": st.booleans()},
        ),
        st.fixed_dictionaries(
            {"type": st.just("array"), "prefixItems": st.lists(parts, min_size=1, max_size=2)},
            optional={"items": parts},
        ),
        st.fixed_dictionaries(
            {"type": st.just("object"), "properties": properties},
            optional={
                "required": st.lists(st.sampled_from(NAMES), max_size=2, unique=True),
                "additionalProperties": parts,
                "patternProperties": st.dictionaries(st.sampled_from(["^u", "t$"]), parts, max_size=1),
                "dependentRequired": st.just({"a": ["limit"]}),
                "dependentSchemas": st.just({"a": {"properties": {"limit": {"type": "integer"}}}}),
            },
        ),
        st.lists(inner, min_size=1, max_size=3).map(lambda branches: {"anyOf": branches}),
        st.lists(inner, min_size=1, max_size=3).map(lambda branches: {"oneOf": branches}),
        st.lists(inner, min_size=1, max_size=2).map(lambda branches: {"allOf": branches}),
        st.tuples(inner, inner).map(lambda pair: {"if": pair[0], "then": pair[1]}),
        inner.map(lambda one: {"not": one}),
    )


parts = st.recursive(_leaves, _containers, max_leaves=8)

TREE = {
    "type": "object",
    "properties": {"v": {"type": "integer"}, "next": {"anyOf": [{"$ref": "#/$defs/Tree"}, {"type": "null"}]}},
    "required": ["v"],
}


@st.composite
def schemas(draw: st.DrawFn) -> dict[str, Any]:
    """An input schema: an object with properties of every make."""
    schema: dict[str, Any] = {
        "type": "object",
        "properties": draw(st.dictionaries(st.sampled_from(NAMES), parts, min_size=1, max_size=4)),
    }
    if draw(st.booleans()):
        schema["required"] = draw(st.lists(st.sampled_from(NAMES), max_size=2, unique=True))
    if draw(st.booleans()):
        schema["additionalProperties"] = draw(st.booleans())
    if draw(st.integers(0, 5)) == 0:
        schema["anyOf"] = [{"required": ["a"]}, draw(parts.filter(lambda part: isinstance(part, dict)))]
    schema["$defs"] = {"Tree": TREE}
    return schema


@st.composite
def near_values(draw: st.DrawFn, schema: Any, depth: int = 0) -> Any:
    """A value that was meant for a schema, perhaps in the wrong words."""
    if not isinstance(schema, dict) or depth > 4 or draw(st.integers(0, 9)) == 0:
        return draw(values)
    value = _meant(draw, schema, depth)
    match draw(st.integers(0, 11)):
        case 0:
            try:
                return json.dumps(value)
            except (TypeError, ValueError):
                return value
        case 1:
            return str(value)
        case 2:
            return [value]
        case 3 if isinstance(value, list) and value:
            return value[0]
    return value


def _meant(draw: st.DrawFn, schema: dict[str, Any], depth: int) -> Any:
    if "$ref" in schema:
        return draw(near_values(TREE, depth + 1))
    for key in ("anyOf", "oneOf", "allOf"):
        if key in schema:
            return draw(near_values(draw(st.sampled_from(schema[key])), depth + 1))
    if "enum" in schema:
        value = draw(st.sampled_from(schema["enum"]))
        return value.upper() if isinstance(value, str) and draw(st.booleans()) else value
    if "const" in schema:
        return schema["const"]
    kind = schema.get("type")
    kind = draw(st.sampled_from(kind)) if isinstance(kind, list) else kind
    match kind:
        case "object":
            names = draw(st.lists(st.sampled_from([*schema.get("properties", {}), *NAMES]), max_size=4, unique=True))
            return {name: draw(near_values(schema.get("properties", {}).get(name, True), depth + 1)) for name in names}
        case "array":
            return [draw(near_values(schema.get("items", True), depth + 1)) for _ in range(draw(st.integers(0, 3)))]
        case "integer":
            return draw(st.integers(0, 120) | st.sampled_from([4.5, 3.0, "7", " 8 "]))
        case "boolean":
            return draw(st.booleans() | st.sampled_from(["yes", "FALSE", 1, 0]))
        case "null":
            return None
        case "string":
            return draw(st.sampled_from(TEXTS))
    return draw(scalars)


@st.composite
def cases(draw: st.DrawFn) -> tuple[dict[str, Any], Any]:
    """A schema and arguments that were meant for it."""
    schema = draw(schemas())
    return schema, draw(near_values(schema) | values)
