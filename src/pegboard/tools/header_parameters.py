"""Parameters that are mirrored into HTTP headers (`x-mcp-header`)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from pegboard.call import Json
from pegboard.errors import DeclarationError

KEYWORD = "x-mcp-header"

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+\Z")
_PRIMITIVE = ("integer", "string", "boolean")
_VALUES = ("enum", "const", "default", "examples")


def mirrored(schema: Mapping[str, Json]) -> dict[str, tuple[str, ...]]:
    """Header name → the path of property names to its value."""
    return {name: path for name, path, _ in _reachable(schema, ()) if isinstance(name, str)}


def check_headers(schema: Mapping[str, Json], where: str) -> None:
    """Reject definitions that would make clients drop the whole tool from their list."""
    seen: set[str] = set()
    reached = 0
    for name, path, part in _reachable(schema, ()):
        reached += 1
        place = f"{where}: {KEYWORD} at {'.'.join(path)}"
        if not isinstance(name, str) or not _TOKEN.match(name):
            raise DeclarationError(
                f"{place}: {name!r} is not a valid HTTP header name; use letters, digits and hyphens"
            )
        if name.lower() in seen:
            raise DeclarationError(f"{place}: {name!r} is used twice; header names must differ in more than case")
        seen.add(name.lower())
        if part.get("type") not in _PRIMITIVE:
            raise DeclarationError(f"{place}: only strings, integers and booleans can be headers")
    if _count(schema) != reached:
        # "reachable via a chain consisting solely of `properties` keys"
        raise DeclarationError(f"{where}: {KEYWORD} is not allowed inside a list, a union or a $ref")


def _reachable(
    schema: Mapping[str, Json], path: tuple[str, ...]
) -> Iterator[tuple[Json, tuple[str, ...], Mapping[str, Json]]]:
    properties = schema.get("properties")
    if not isinstance(properties, Mapping):
        return
    for name, part in properties.items():
        if isinstance(part, Mapping):
            if KEYWORD in part:
                yield part[KEYWORD], (*path, name), part
            yield from _reachable(part, (*path, name))


def _count(part: Json) -> int:
    if isinstance(part, Mapping):
        inner = sum(_count(below) for keyword, below in part.items() if keyword not in _VALUES)
        return inner + isinstance(part.get(KEYWORD), str)
    return sum(map(_count, part)) if isinstance(part, list) else 0
