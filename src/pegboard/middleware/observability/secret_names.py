"""Finds the names in a JSON Schema whose values are secrets: `format: password`, `writeOnly` and `x-sensitive`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Final

from pegboard.call import Json
from pegboard.protocol.json_values import as_object
from pegboard.schema.cost.references import MAPS, subschemas

EVERYTHING: Final = "*"
"""Stands for all names: the value as a whole is secret."""

_DEFINITIONS: Final = ("$defs", "definitions")


def declared_names(schema: Mapping[str, Json]) -> frozenset[str]:
    """The names of all fields that a schema declares, at any depth."""
    properties = (as_object(part.get("properties")) for _, part, _ in subschemas(schema))
    return frozenset(name for named in properties for name in named)


def secret_names(schema: Mapping[str, Json]) -> frozenset[str]:
    """The names of the fields that a schema marks as secret, at any depth.

    A mark on a part of a field, such as the items of an array or one of several alternatives, marks the whole field.
    """
    found: list[str] = []
    referring: defaultdict[str, list[str]] = defaultdict(list)
    for pointer, part, _ in subschemas(schema):
        if part.get("format") == "password" or part.get("writeOnly") is True or part.get("x-sensitive") is True:
            found.append(pointer)
        if isinstance(reference := part.get("$ref"), str) and reference.startswith("#/"):
            referring[reference[1:]].append(pointer)
    names: set[str] = set()
    while found:
        owner = _owner(found.pop())
        if owner.startswith("/"):
            # A definition is followed once.
            found += referring.pop(owner, ())
        else:
            names.add(owner)
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
