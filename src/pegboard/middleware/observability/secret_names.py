"""Finds the names in a JSON Schema whose values are secrets: `format: password`, `writeOnly` and `x-sensitive`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pegboard.call import Json
from pegboard.protocol.json_values import as_object
from pegboard.schema.cost.references import MAPS, subschemas

EVERYTHING: Final = "*"
"""Stands for all names: the value as a whole is secret."""

_MAX_SCHEMAS: Final = 20_000
_DEFINITIONS: Final = ("$defs", "definitions")


def declared_names(schema: Mapping[str, Json]) -> frozenset[str]:
    """The names of all fields that a schema declares, at any depth."""
    properties = (as_object(part.get("properties")) for _, part, _ in subschemas(schema))
    return frozenset(name for named in properties for name in named)


def secret_names(schema: Mapping[str, Json]) -> frozenset[str]:
    """The names of the fields that a schema marks as secret, at any depth.

    A mark on a part of a field, such as the items of an array or one of several alternatives, marks the whole field.
    """
    marked: dict[str, Mapping[str, Json]] = {}
    referring: dict[str, str] = {}
    for pointer, part, _ in subschemas(schema):
        if len(marked) + len(referring) > _MAX_SCHEMAS:
            return frozenset({EVERYTHING})
        if part.get("format") == "password" or part.get("writeOnly") is True or part.get("x-sensitive") is True:
            marked[pointer] = part
        if isinstance(reference := part.get("$ref"), str) and reference.startswith("#/"):
            referring[pointer] = reference[1:]
    names: set[str] = set()
    found = list(marked)
    definitions: set[str] = set()
    while found:
        owner = _owner(found.pop())
        if not owner.startswith("/"):
            names.add(owner)
        elif owner not in definitions:
            definitions.add(owner)
            found += [pointer for pointer, target in referring.items() if target == owner]
    return frozenset(names)


def _owner(pointer: str) -> str:
    """The innermost field or definition that a part of a schema belongs to: a name, or the pointer of a definition."""
    tokens = pointer.split("/")
    owner, position = EVERYTHING, 1
    while position < len(tokens):
        keyword = tokens[position]
        if keyword in MAPS and position + 1 < len(tokens):
            if keyword == "properties":
                owner = tokens[position + 1].replace("~1", "/").replace("~0", "~")
            elif keyword in _DEFINITIONS:
                owner = "/".join(tokens[: position + 2])
            position += 1
        position += 1
    return owner
