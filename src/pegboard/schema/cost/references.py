"""Resolves `$ref` within a schema, as JSON pointers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final
from urllib.parse import unquote, urldefrag, urljoin

from pegboard.call import Json

DIALECTS: Final = {
    "https://json-schema.org/draft/2020-12/schema": "2020-12",
    "https://json-schema.org/draft/2019-09/schema": "2019-09",
    "http://json-schema.org/draft-07/schema": "draft-07",
    "http://json-schema.org/draft-06/schema": "draft-06",
    "http://json-schema.org/draft-04/schema": "draft-04",
}
MAPS: Final = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
# Keywords that contain values, not schemas.
VALUES: Final = frozenset({"enum", "const", "default", "examples", "example"})

REFERENCES: Final = ("$ref", "$dynamicRef", "$recursiveRef")


def dialect_of(schema: Mapping[str, Json]) -> str | None:
    """The dialect that a schema names, if it is supported."""
    return DIALECTS.get(str(schema.get("$schema")).rstrip("#"))


def join(pointer: str, *tokens: str | int) -> str:
    """A pointer to something below another pointer."""
    return "/".join((pointer, *(str(token).replace("~", "~0").replace("/", "~1") for token in tokens)))


def lookup(document: Json, pointer: str) -> Json:
    """The part of a document at a JSON pointer; LookupError if there is none."""
    found = document
    for token in pointer.split("/")[1:]:
        name = token.replace("~1", "/").replace("~0", "~")
        if isinstance(found, Mapping):
            found = found[name]
        elif isinstance(found, list) and name.isascii() and name.isdecimal() and len(name) < 10:
            found = found[int(name)]
        else:
            raise LookupError(pointer)
    return found


def follow_local(part: Mapping[str, Json], root: Mapping[str, Json]) -> Mapping[str, Json] | None:
    """The target of the `$ref` of a subschema, if that is a JSON pointer to an object of the document."""
    reference = part.get("$ref")
    if not isinstance(reference, str) or not (reference == "#" or reference.startswith("#/")):
        return None
    try:
        found = lookup(root, unquote(reference[1:]))
    except LookupError:
        return None
    return found if isinstance(found, Mapping) else None


def subschemas(schema: Mapping[str, Json]) -> Iterator[tuple[str, Mapping[str, Json], int]]:
    """Every subschema of a document, with its pointer and nesting depth."""
    queue: list[tuple[str, Json, int]] = [("", schema, 1)]
    while queue:
        pointer, part, depth = queue.pop()
        if isinstance(part, list):
            queue.extend((join(pointer, index), inner, depth + 1) for index, inner in enumerate(part))
        elif isinstance(part, Mapping):
            yield pointer, part, depth
            for key, inner in part.items():
                if key in MAPS and isinstance(inner, Mapping):
                    queue.extend((join(pointer, key, name), below, depth + 1) for name, below in inner.items())
                elif key not in VALUES and isinstance(inner, Mapping | list):
                    queue.append((join(pointer, key), inner, depth + 1))


class References:
    """The references of one schema.

    The dialects disagree on an `$id` beside a reference, and the value decides a dynamic reference. So a reference has
    every target that it has in one of the readings: the computed cost is never too low.
    """

    def __init__(self, schema: Mapping[str, Json]) -> None:
        self._schema = schema
        self._known: dict[tuple[str, str, str], tuple[str, ...]] = {}
        self._anchors: dict[str, list[str]] = {}
        # The base URIs of the embedded resources, by pointer; the root always has one.
        self._bases: dict[str, str] = {"": ""}
        named: list[tuple[str, str]] = []
        key = "id" if dialect_of(schema) == "draft-04" else "$id"
        for pointer, part, _ in subschemas(schema):
            if isinstance(name := part.get(key), str):
                named.append((pointer, name))
            for anchor in (part.get("$anchor"), part.get("$dynamicAnchor")):
                if isinstance(anchor, str):
                    self._anchors.setdefault(anchor, []).append(pointer)
        # A resource is named relative to the enclosing one, which is nearer to the root.
        for pointer, name in sorted(named, key=lambda each: each[0].count("/")):
            address, fragment = urldefrag(name)
            if fragment and not fragment.startswith("/"):
                self._anchors.setdefault(fragment, []).append(pointer)
            if address:
                self._bases[pointer] = urljoin(self._bases[self._resource(pointer)], address)
        self.embedded = len(self._bases) > 1

    def targets(self, pointer: str, part: Mapping[str, Json]) -> Iterator[tuple[str, str | None]]:
        """Each reference of a subschema with the pointer to its target, or None if it leaves the document."""
        for key in REFERENCES:
            reference = part.get(key)
            if isinstance(reference, str) and reference:
                found = tuple(self._bases) if key == "$recursiveRef" else self._find(pointer, reference)
                yield from ((reference, target) for target in found)
                if not found:
                    yield reference, None

    def _find(self, pointer: str, reference: str) -> tuple[str, ...]:
        homes = self._resource(pointer), self._resource(pointer.rpartition("/")[0])
        found = self._known.get((*homes, reference))
        if found is None:
            found = self._known[*homes, reference] = tuple(dict.fromkeys(self._resolve(homes, reference)))
        return found

    def _resolve(self, homes: Sequence[str], reference: str) -> Iterator[str]:
        address, fragment = urldefrag(reference)
        fragment = unquote(fragment)
        if fragment and not fragment.startswith("/"):
            yield from self._anchors.get(fragment, ())
            return
        if not address:
            homes = (*homes, "")
        else:
            sought = {address, *(urljoin(self._bases[home], address) for home in homes)}
            homes = [home for home, base in self._bases.items() if base in sought]
        tokens = [token.replace("~1", "/").replace("~0", "~") for token in fragment.split("/")[1:]]
        for home in homes:
            # Written as `join` does, so that each subschema has one pointer.
            if self._has(pointer := join(home, *tokens)):
                yield pointer

    def _resource(self, pointer: str) -> str:
        while pointer and pointer not in self._bases:
            pointer = pointer.rpartition("/")[0]
        return pointer

    def _has(self, pointer: str) -> bool:
        try:
            lookup(self._schema, pointer)
        except LookupError:
            return False
        return True
