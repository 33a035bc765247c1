"""Counts how often the parts of a value are read by a decoder that tries every alternative of a union.

pydantic is such a reader: where the alternatives of a recursive union share the names of their fields, each level of a
value doubles its work, for values that fit as for others. The number is found without doing the work, since each part
is counted once for each subschema.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from pegboard.call import Json
from pegboard.protocol.json_values import as_list
from pegboard.schema.cost.references import References, join, lookup

MOST: Final = 10**9


class _Place(NamedTuple):
    """The relevant part of a subschema: what it applies to the same value, and to which parts of it."""

    same: tuple[str, ...] = ()
    tag: str | None = None
    tagged: Mapping[str, str] = {}
    properties: Mapping[str, str] = {}
    others: str | None = None
    first: tuple[str, ...] = ()
    items: str | None = None


class Visits:
    """Counts the visits of values by a schema, as pydantic writes it."""

    def __init__(self, schema: Mapping[str, Json]) -> None:
        self._schema = schema
        self._references = References(schema)
        self._places: dict[str, _Place] = {}

    def count(self, value: Json) -> int:
        """The visits of a value and all its parts, at most MOST."""
        return self._count("", value, {})

    def _count(self, pointer: str, value: Json, known: dict[tuple[str, int], int]) -> int:
        if not isinstance(value, dict | list):
            return 1
        key = (pointer, id(value))
        if key not in known:
            place = self._places.get(pointer) or self._read(pointer)
            total = 1
            for other, inner in _below(place, value):
                total += self._count(other, inner, known)
            known[key] = min(total, MOST)
        return known[key]

    def _read(self, pointer: str) -> _Place:
        part = lookup(self._schema, pointer)
        place = _Place()
        if isinstance(part, Mapping):
            same = [target for _, target in self._references.targets(pointer, part) if target is not None]
            discriminator = part.get("discriminator")
            if discriminator is None:
                unions = ("anyOf", "oneOf", "allOf")
                same += [join(pointer, key, index) for key in unions for index in range(len(part.get(key, ())))]
            place = _Place(
                tuple(same),
                discriminator["propertyName"] if discriminator else None,
                {name: target.removeprefix("#") for name, target in discriminator.get("mapping", {}).items()}
                if discriminator
                else {},
                {name: join(pointer, "properties", name) for name in part.get("properties", ())},
                join(pointer, "additionalProperties")
                if isinstance(part.get("additionalProperties"), Mapping)
                else None,
                tuple(join(pointer, "prefixItems", index) for index in range(len(part.get("prefixItems", ())))),
                join(pointer, "items") if isinstance(part.get("items"), Mapping) else None,
            )
        self._places[pointer] = place
        return place


def _below(place: _Place, value: Json) -> Iterator[tuple[str, Json]]:
    for other in place.same:
        yield other, value
    if isinstance(value, dict):
        if place.tag is not None and (chosen := place.tagged.get(str(value.get(place.tag)))) is not None:
            yield chosen, value
        for name, inner in value.items():
            below = place.properties.get(name, place.others)
            if below is not None:
                yield below, inner
        return
    for index, inner in enumerate(as_list(value)):
        below = place.first[index] if index < len(place.first) else place.items
        if below is not None:
            yield below, inner
