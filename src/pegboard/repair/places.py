"""The places of a value by its schema: which names an object declares, and where a number must be whole.

A place is everything that may apply to one part of a value: a subschema with what it refers to, and all of its
branches. A name that any of them declares is declared. Places are compiled once per schema, without those that have
nothing to check; recursion in the schema is a cycle of places.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple, TypeAlias

from msgspec import Struct

from pegboard.call import Json
from pegboard.protocol.json_values import as_list
from pegboard.repair.schema_graph import ANY, FACETS, NODES, SchemaGraph, item_pointers
from pegboard.schema.cost.references import join, lookup
from pegboard.schema.problems import Path

_Parts: TypeAlias = list[tuple[str, Mapping[str, Json]]]

_DECIDES = frozenset({"additionalProperties", "unevaluatedProperties", "patternProperties"})


class Place(Struct, eq=False, kw_only=True):
    """One place; `members`, `others`, `first` and `rest` are the places inside its objects and lists.

    schema: the subschema, to find suggestions in.
    declared: the names that an object may have; None if it declares none, or says itself what others may be.
    is_integer: whether a number must be whole.
    """

    schema: Mapping[str, Json] = {}
    declared: frozenset[str] | None = None
    is_integer: bool = False
    members: dict[str, Place] = {}
    others: Place | None = None
    first: tuple[Place, ...] = ()
    rest: Place | None = None

    def inside(self) -> Iterator[Place]:
        """The places inside."""
        yield from self.members.values()
        yield from self.first
        yield from (place for place in (self.others, self.rest) if place is not None)


class Undeclared(NamedTuple):
    """An object with names that its place does not declare."""

    path: Path
    value: Mapping[str, Json]
    place: Place


_NOTHING = Place()
_ROOT = frozenset({""})


class Places:
    """The places of one schema, made when they are first asked for."""

    def __init__(self, graph: SchemaGraph) -> None:
        self._graph = graph
        self._known: dict[frozenset[str], Place] = {}

    def at(self, pointers: Iterable[str]) -> Place:
        """The place where these subschemas apply."""
        queue: list[frozenset[str]] = []
        place = self._find(pointers, queue) or _NOTHING
        for key in queue:
            self._fill(self._known[key], key, queue)
        return place

    def with_names(self) -> Place:
        """The arguments, with the objects inside that declare names."""
        return self._pruned(lambda place: place.declared is not None)

    def with_integers(self) -> Place | None:
        """The arguments, with the places inside where a number must be whole; None if there are none."""
        root = self._pruned(lambda place: place.is_integer)
        return root if any(root.inside()) else None

    def _pruned(self, is_wanted: Callable[[Place], bool]) -> Place:
        fresh = Places(self._graph)
        root = fresh.at([""])
        _prune(list(fresh._known.values()), is_wanted)
        return root

    def _find(self, pointers: Iterable[str], queue: list[frozenset[str]]) -> Place | None:
        key = frozenset(pointers)
        if not key or (key not in self._known and len(self._known) >= NODES):
            return None
        if key not in self._known:
            self._known[key] = Place()
            queue.append(key)
        return self._known[key]

    def _fill(self, place: Place, pointers: frozenset[str], queue: list[frozenset[str]]) -> None:
        parts = _parts_of(self._graph, sorted(pointers))
        place.schema = parts[0][1] if parts else {}
        # An object that declares nothing takes any name; arguments are not such an object.
        declared = _declared_names(parts)
        place.declared = declared if declared or pointers == _ROOT else None
        place.is_integer = _is_integer(self._graph, pointers)
        names = dict.fromkeys(name for _, part in parts for name in _mapping(part, "properties"))
        place.members = {name: self._find(_member_pointers(name, parts), queue) or _NOTHING for name in names}
        place.others = self._find((found for at, part in parts for found in _other_pointers(at, part)), queue)
        *first, place.rest = (
            self._find((found for at, part in parts for found in item_pointers(index, at, part)), queue)
            for index in range(1 + max((_count_first(part) for _, part in parts), default=0))
        )
        place.first = tuple(inner or _NOTHING for inner in first)


def find_undeclared(root: Place, value: Json, *, in_open: bool = False) -> Iterator[Undeclared]:
    """The objects that contain undeclared names; with `in_open` also objects that allow other names."""
    queue: list[tuple[Place, Json, Path]] = [(root, value, None)]
    for place, part, path in queue:
        if isinstance(part, dict):
            declared = place.members.keys() if in_open and place.declared is None else place.declared
            if declared is not None and not part.keys() <= declared:
                yield Undeclared(path, part, place)
        queue += [(below, inner, (path, key)) for key, below, inner in _inside(place, part)]


def convert_integers(place: Place, value: Json) -> Json:
    """The value with whole floats as integers where the schema takes no other number; without any, the same object."""
    if isinstance(value, float):
        return int(value) if place.is_integer and value.is_integer() else value
    changed = {
        key: became
        for key, below, inner in _inside(place, value)
        if (became := convert_integers(below, inner)) is not inner
    }
    if not changed:
        return value
    if isinstance(value, dict):
        return {**value, **changed}
    return [changed.get(index, inner) for index, inner in enumerate(as_list(value))]


def _inside(place: Place, value: Json) -> Iterator[tuple[str | int, Place, Json]]:
    if isinstance(value, dict):
        if place.others is not None:
            for name, inner in value.items():
                yield name, place.members.get(name, place.others), inner
            return
        for name, below in place.members.items():
            if name in value:
                yield name, below, value[name]
    elif isinstance(value, list) and (place.first or place.rest is not None):
        for index, inner in enumerate(value):
            item = place.first[index] if index < len(place.first) else place.rest
            if item is None:
                break
            yield index, item, inner


def _prune(places: list[Place], is_wanted: Callable[[Place], bool]) -> None:
    """Remove the ways to places from which no wanted one can be reached."""
    above: dict[int, list[Place]] = {}
    for place in places:
        for inner in place.inside():
            above.setdefault(id(inner), []).append(place)
    queue = [place for place in places if is_wanted(place)]
    kept = {id(place) for place in queue}
    for place in queue:
        new = [outer for outer in above.get(id(place), ()) if id(outer) not in kept]
        kept.update(map(id, new))
        queue += new
    for place in places:
        members = {name: inner if id(inner) in kept else _NOTHING for name, inner in place.members.items()}
        place.others = place.others if id(place.others) in kept else None
        place.members = {name: inner for name, inner in members.items() if place.others or inner is not _NOTHING}
        place.first = tuple(inner if id(inner) in kept else _NOTHING for inner in place.first)
        place.rest = place.rest if id(place.rest) in kept else None
        if all(inner is _NOTHING for inner in place.first) and place.rest is None:
            place.first = ()


def _parts_of(graph: SchemaGraph, pointers: list[str]) -> _Parts:
    """The subschemas that may apply where these do."""
    queue, seen = list(pointers), set[str]()
    parts: _Parts = []
    for pointer in queue:
        if pointer in seen or len(seen) >= FACETS:
            continue
        seen.add(pointer)
        try:
            part = lookup(graph.schema, pointer)
        except LookupError:
            continue
        if not isinstance(part, Mapping):
            continue
        parts.append((pointer, part))
        queue.extend(graph.also(pointer, part))
        queue.extend(join(pointer, key) for key in ("then", "else") if key in part)
        for key in ("anyOf", "oneOf", "dependentSchemas"):
            inner = part.get(key, ())
            queue.extend(
                join(pointer, key, name) for name in (inner if isinstance(inner, Mapping) else range(len(inner)))
            )
    return parts


def _declared_names(parts: _Parts) -> frozenset[str] | None:
    """The declared names; None if the schema itself decides about others."""
    if any(part.keys() & _DECIDES for _, part in parts):
        return None
    return frozenset(name for _, part in parts for name in _mapping(part, "properties"))


def _is_integer(graph: SchemaGraph, pointers: Iterable[str]) -> bool:
    types = [found for pointer in pointers if (found := graph.summary(pointer).types) != ANY]
    return any("integer" in found for found in types) and not any("number" in found for found in types)


def _member_pointers(name: str, parts: _Parts) -> list[str]:
    return [join(pointer, "properties", name) for pointer, part in parts if name in _mapping(part, "properties")]


def _other_pointers(pointer: str, part: Mapping[str, Json]) -> Iterator[str]:
    if isinstance(part.get("additionalProperties"), Mapping):
        yield join(pointer, "additionalProperties")
    yield from (join(pointer, "patternProperties", pattern) for pattern in _mapping(part, "patternProperties"))


def _count_first(part: Mapping[str, Json]) -> int:
    return max(
        (len(listed) for key in ("prefixItems", "items") if isinstance(listed := part.get(key), list)), default=0
    )


def _mapping(part: Mapping[str, Json], key: str) -> Mapping[str, Json]:
    found = part.get(key)
    return found if isinstance(found, Mapping) else {}
