"""Repair of arguments: what is repaired fits the schema, and a value that fits is never touched."""

from __future__ import annotations

import msgspec

from pegboard.repair.repairer import Repairer

TREE = {
    "type": "object",
    "properties": {"value": {"$ref": "#/$defs/tree"}},
    "required": ["value"],
    "$defs": {
        "tree": {
            "anyOf": [
                {"type": "object", "properties": {"next": {"$ref": "#/$defs/tree"}}, "required": ["next"]},
                {"type": "object", "properties": {"next": {"$ref": "#/$defs/tree"}, "tag": {"const": 1}}},
                {"type": "integer"},
            ]
        }
    },
}
SCHEMAS = (
    {
        "type": "object",
        "properties": {
            "count": {"type": "integer", "minimum": 0},
            "ratio": {"type": "number"},
            "sure": {"type": "boolean"},
            "name": {"type": "string", "maxLength": 8},
            "nothing": {"type": "null"},
            "mode": {"enum": ["read only", "readWrite"]},
            "tags": {"type": "array", "items": {"type": "string"}, "uniqueItems": True},
            "when": {"type": "string", "format": "date-time"},
            "many": {"type": "object", "additionalProperties": {"type": "integer"}},
        },
        "required": ["count"],
    },
    {
        "type": "object",
        "properties": {"one": {"oneOf": [{"type": "integer"}, {"type": "boolean"}, {"const": "x"}, {"type": "array"}]}},
        "additionalProperties": False,
    },
    TREE,
    {
        "type": "object",
        "properties": {
            "of": {"anyOf": [{"$ref": "#"}, {"type": "array", "items": {"$ref": "#"}}, {"type": ["string", "null"]}]}
        },
    },
    {
        "type": "object",
        "properties": {"only": {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "string"}}}},
        "required": ["only"],
    },
)
REPAIRERS = tuple(Repairer(schema) for schema in SCHEMAS)


def check(data: bytes) -> None:
    """The first byte chooses the schema, the rest is the value."""
    try:
        value = msgspec.json.decode(data[1:])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return
    repairer = REPAIRERS[data[0] % len(REPAIRERS)]
    before = msgspec.json.encode(value)
    fitted = isinstance(value, dict) and repairer.fits(value)
    repaired = repairer.repair(value)
    assert msgspec.json.encode(value) == before, "what was sent is left as it was"
    if fitted:
        assert repaired.value == value
        assert not repaired.warnings
    if not repaired.errors:
        again = repairer.repair(repaired.value)
        assert again.value == repaired.value, "a repaired value fits"
        assert not again.errors
