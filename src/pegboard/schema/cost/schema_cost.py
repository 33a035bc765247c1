"""The steps that validating one part of a value takes in the worst case.

Theory of operation. A schema is a graph. An edge leads from a subschema to one that is applied to the same place of the
value (`$ref`, `allOf`, `anyOf`, `if`, …) or to a part of it (`properties`, `items`, …). The validation library follows
an edge each time it reaches it, so 28 definitions that each use the next one twice cost 2^28 steps. They are counted
here in one pass over the graph:

- Edges to the same place add up. Of the edges to named parts only the most expensive one counts, because a part has one
  name.
- A cycle of edges at the same place says nothing about a value, and the library can loop over it for hours. It is
  rejected.
- Any other cycle goes one level deeper into the value each time. If a subschema enters its own cycle at most once for
  each part, the work stays linear. If it enters more often (a union of types that all have a field `left`), the work
  multiplies with each level, unless results are cached.

The library caches the result of a definition that refers back to itself, for each part of the value. So the subschemas
at which a cycle is entered become one definition where they are worded alike (`shared`): a union that every type repeats
is then evaluated once for each part. Between two visits of the same definition the library takes every path through the
others. Where there are too many paths, the entries are cut out of the schema (`cuts`), and the validator evaluates each
of them from Python, once for each part of the value.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from itertools import chain
from typing import Final, NamedTuple, TypeAlias

import msgspec

from pegboard.call import Json
from pegboard.protocol.json_values import as_object
from pegboard.schema.cost.references import DIALECTS, REFERENCES, References, join, lookup
from pegboard.schema.types.constraints import REMARKS

# Numbers are exact up to here; schemas with a higher cost are rejected anyway.
MOST_STEPS = 10**12
# The cost of a step through Python in steps of the library, which take about ten nanoseconds.
CALL = 50
# Comparing a value with a list or an object takes about as long as this many steps.
COMPARE = 30
# The steps that the library may take for each part of a value in a branching cycle, and its most definitions.
NATIVE_STEPS = 5_000
HUBS = 32
# A schema for schemas, which the library has built in.
DIALECT = 500

_SAME_ONE: Final = ("not", "if", "then", "else")
_SAME_LIST: Final = ("allOf", "anyOf", "oneOf")
_SAME_MAP: Final = ("dependentSchemas", "dependencies")
_UNIONS: Final = ("anyOf", "oneOf")
_OBJECT: Final = ("properties", "patternProperties", "additionalProperties", "unevaluatedProperties", "propertyNames")
_LIST: Final = ("prefixItems", "items", "additionalItems", "contains", "unevaluatedItems")
_LEADING: Final = frozenset(
    {*REFERENCES, *_SAME_ONE, *_SAME_LIST, *_SAME_MAP, *_OBJECT, *_LIST, "dependentRequired", "enum", "const"}
)


class LoopingSchema(ValueError):
    """A schema that applies itself to the same value."""

    def __init__(self, pointer: str) -> None:
        super().__init__("applies itself to the same value")
        self.pointer = pointer


class Cost(NamedTuple):
    """The cost of checking each part of a value: `steps` to validate it, `listing_steps` to list its problems."""

    steps: int
    listing_steps: int
    shared: Mapping[str, str] = {}
    cuts: Mapping[str, str] = {}
    """The entries of cycles, each with the identical one that represents it."""


_Costs: TypeAlias = dict[str, tuple[int, int]]


class _Part(NamedTuple):
    """A subschema and the subschemas it leads to: at the same place, and for the parts of objects and of lists.

    A part is checked by one of `each` and by all of `every`.
    """

    own: int
    doubled: bool
    same: tuple[str, ...]
    unions: tuple[str, ...]
    each: tuple[tuple[str, ...], tuple[str, ...]]
    every: tuple[tuple[str, ...], tuple[str, ...]]

    def edges(self) -> Iterator[str]:
        return chain(self.same, self.unions, self.children())

    def children(self) -> Iterator[str]:
        return chain(*self.each, *self.every)


_LEAF: Final = _Part(1, False, (), (), ((), ()), ((), ()))


def measure(schema: Mapping[str, Json]) -> Cost:
    """The cost of a schema; LoopingSchema if it is infinite, ValueError if it cannot be computed."""
    references = References(schema)
    parts = _read(schema, references)
    costs: _Costs = {}
    more = 0
    shared: dict[str, str] = {}
    cuts: dict[str, str] = {}
    for component in _components(parts):
        first = parts[component[0]]
        if len(component) == 1 and component[0] not in first.edges():
            costs[component[0]] = _add(first, costs, {})
            continue
        cycle = _Cycle({pointer: parts[pointer] for pointer in component}, costs)
        if not cycle.branches():
            continue
        entries = cycle.entries if references.embedded else _same_wordings(schema, cycle.entries)
        steps = cycle.native_steps(entries)
        if steps <= NATIVE_STEPS:
            # A part with another base URI cannot be moved to where it would be shared.
            shared |= {} if references.embedded else entries
        elif references.embedded:
            raise ValueError("a recursive union in a schema with parts that have an $id; refer to parts by $defs only")
        else:
            steps = cycle.cut_steps(entries)
            cuts |= entries
        more += steps
    steps, listing_steps = costs[""]
    return Cost(min(steps + more, MOST_STEPS), listing_steps, shared, cuts)


def _same_wordings(schema: Mapping[str, Json], pointers: Iterable[str]) -> dict[str, str]:
    """Each subschema with the first identical one, ignoring annotations."""
    wordings: dict[bytes, str] = {}
    found = {}
    for pointer in sorted(pointers):
        part = lookup(schema, pointer)
        if isinstance(part, Mapping):
            part = {key: inner for key, inner in part.items() if key not in REMARKS}
        found[pointer] = wordings.setdefault(msgspec.json.encode(part), pointer)
    return found


class _Cycle:
    """Subschemas that lead to each other; their costs are added to `costs`, without the next round of the cycle."""

    def __init__(self, parts: Mapping[str, _Part], costs: _Costs) -> None:
        self._parts, self._costs = parts, costs
        self._order = _order(parts)
        entered = [child for part in parts.values() for child in part.children() if child in parts]
        self.entries = {pointer: pointer for pointer in entered}

    def branches(self) -> bool:
        """Whether one round checks a part more than once; if not, the costs are added."""
        if any(max(self._meetings(kind, unions=True).values()) > 1 for kind in (0, 1)):
            return True
        self._add_all(dict.fromkeys(self.entries, (1, 1)))
        most = [max(self._costs[pointer][kind] for pointer in self._parts) for kind in (0, 1)]
        self._costs.update(dict.fromkeys(self._parts, (most[0], most[1])))
        return False

    def native_steps(self, entries: Mapping[str, str]) -> int:
        """The additional steps of the library for each part, or more than NATIVE_STEPS."""
        hubs = frozenset(entries.values())
        if len(hubs) > HUBS:
            return MOST_STEPS
        flat = self._flat()
        self._add_all({pointer: (flat[pointer], 1) for pointer in entries})
        if any(max(self._meetings(kind, unions=False).values()) > 1 for kind in (0, 1)):
            # The library does not cache while it lists problems.
            self._costs.update({pointer: (self._costs[pointer][0], MOST_STEPS) for pointer in self._parts})
        met = self._hubs_met(entries)
        total, paths = 0, [(hub, 1, frozenset((hub,))) for hub in hubs]
        while paths:
            hub, times, path = paths.pop()
            total += times * self._costs[hub][0]
            if total > NATIVE_STEPS:
                return MOST_STEPS
            paths += [(other, times * again, path | {other}) for other, again in met[hub].items() if other not in path]
        return total

    def cut_steps(self, entries: Mapping[str, str]) -> int:
        """The additional steps for each part if the entries are evaluated from Python."""
        self._add_all(dict.fromkeys(entries, (CALL, 1)))
        return sum(CALL + self._costs[hub][0] for hub in frozenset(entries.values()))

    def _add_all(self, again: _Costs) -> None:
        for pointer in self._order:
            self._costs[pointer] = _add(self._parts[pointer], self._costs, again)

    def _meetings(self, kind: int, *, unions: bool) -> dict[str, int]:
        """How often a subschema checks one part of an object (0) or a list (1) through the cycle again."""
        met: dict[str, int] = {}
        for pointer in self._order:
            part = self._parts[pointer]
            own = int(any(child in self._parts for child in part.each[kind]))
            own += sum(child in self._parts for child in part.every[kind])
            beside = (*part.same, *part.unions) if unions else part.same
            met[pointer] = min(own + sum(met.get(other, 0) for other in beside), MOST_STEPS)
        return met

    def _hubs_met(self, entries: Mapping[str, str]) -> dict[str, Counter[str]]:
        """How often each subschema checks a part by each of the entries."""
        met: dict[str, Counter[str]] = {}
        for pointer in self._order:
            part = self._parts[pointer]
            met[pointer] = Counter({entries[child] for child in chain(*part.each) if child in entries})
            met[pointer].update(entries[child] for child in chain(*part.every) if child in entries)
            for other in (*part.same, *part.unions):
                for hub, times in met.get(other, Counter()).items():
                    met[pointer][hub] = min(met[pointer][hub] + times, MOST_STEPS)
        return met

    def _flat(self) -> dict[str, int]:
        """The cost of each subschema for a value without parts, whose results are not cached."""
        flat: dict[str, int] = {}
        for pointer in self._order:
            part = self._parts[pointer]
            beside = sum(
                flat[other] if other in flat else self._costs[other][0] for other in (*part.same, *part.unions)
            )
            flat[pointer] = min(part.own + beside, MOST_STEPS)
        return flat


def _read(schema: Mapping[str, Json], references: References) -> dict[str, _Part]:
    """Every subschema that is reachable from the root."""
    parts: dict[str, _Part] = {}
    queue = [""]
    while queue:
        pointer = queue.pop()
        if pointer not in parts:
            parts[pointer] = found = _read_part(pointer, lookup(schema, pointer), references)
            queue.extend(found.edges())
    return parts


def _read_part(pointer: str, part: Json, references: References) -> _Part:
    if not isinstance(part, Mapping) or _LEADING.isdisjoint(part):
        return _LEAF
    own = 1
    same: list[str] = []
    for reference, target in references.targets(pointer, part):
        if target is not None:
            same.append(target)
        elif reference.rstrip("#") in DIALECTS:
            own += DIALECT
        else:
            raise ValueError(f"{reference[:80]!r} leaves the document, and is not fetched")
    same += [join(pointer, key) for key in _SAME_ONE if key in part]
    same += [join(pointer, key, name) for key in _SAME_MAP for name in _schemas_of(part.get(key))]
    same += [join(pointer, "allOf", index) for index in range(_length(part, "allOf"))]
    unions = [join(pointer, key, index) for key in _UNIONS for index in range(_length(part, key))]
    own += _own_steps(part)
    return _Part(
        own,
        # To find what is unevaluated, the library evaluates everything beside it again.
        "unevaluatedProperties" in part or "unevaluatedItems" in part,
        tuple(same),
        tuple(unions),
        (
            (*_below(pointer, part, "properties"), *_below(pointer, part, "additionalProperties")),
            (*_below(pointer, part, "prefixItems"), *_below(pointer, part, "items", "additionalItems")),
        ),
        (
            tuple(_below(pointer, part, "patternProperties", "unevaluatedProperties", "propertyNames")),
            tuple(_below(pointer, part, "contains", "unevaluatedItems")),
        ),
    )


def _own_steps(part: Mapping[str, Json]) -> int:
    steps = sum(len(as_object(part.get(key))) for key in ("dependentRequired", "dependencies"))
    listed = part.get("enum")
    values = [*(listed if isinstance(listed, list) else ()), part.get("const")]
    return steps + COMPARE * sum(isinstance(value, dict | list) for value in values)


def _length(part: Mapping[str, Json], key: str) -> int:
    listed = part.get(key)
    return len(listed) if isinstance(listed, list) else 0


def _schemas_of(named: Json) -> list[str]:
    return [name for name, inner in named.items() if isinstance(inner, Mapping)] if isinstance(named, Mapping) else []


def _below(pointer: str, part: Mapping[str, Json], *keys: str) -> Iterator[str]:
    for key in keys:
        match part.get(key):
            case list() as listed:
                yield from (join(pointer, key, index) for index in range(len(listed)))
            case Mapping() as named if key in ("properties", "patternProperties"):
                yield from (join(pointer, key, name) for name in named)
            case Mapping():
                yield join(pointer, key)


def _components(parts: Mapping[str, _Part]) -> list[list[str]]:
    """The strongly connected components (Tarjan), each after those that it leads to."""
    found: list[list[str]] = []
    numbers: dict[str, int] = {}
    lowest: dict[str, int] = {}
    places: dict[str, int] = {}
    stack: list[str] = []
    waiting: set[str] = set()
    path: list[tuple[str, Iterator[str]]] = []

    def enter(pointer: str) -> None:
        numbers[pointer] = lowest[pointer] = len(numbers)
        places[pointer] = len(stack)
        stack.append(pointer)
        waiting.add(pointer)
        path.append((pointer, parts[pointer].edges()))

    enter("")
    while path:
        pointer, edges = path[-1]
        for other in edges:
            if other not in numbers:
                enter(other)
                break
            if other in waiting:
                lowest[pointer] = min(lowest[pointer], numbers[other])
        else:
            path.pop()
            if path:
                above = path[-1][0]
                lowest[above] = min(lowest[above], lowest[pointer])
            if lowest[pointer] == numbers[pointer]:
                component = stack[places[pointer] :]
                del stack[places[pointer] :]
                waiting.difference_update(component)
                found.append(component)
    return found


def _order(component: Mapping[str, _Part]) -> list[str]:
    """The subschemas of a component, each after those that it applies at the same place."""
    before = {
        pointer: [other for other in (*part.same, *part.unions) if other in component]
        for pointer, part in component.items()
    }
    try:
        return list(TopologicalSorter(before).static_order())
    except CycleError as error:
        raise LoopingSchema(error.args[1][0]) from error


def _add(part: _Part, costs: _Costs, again: _Costs) -> tuple[int, int]:
    """The cost of a subschema, given the costs of those it leads to."""
    if part is _LEAF:
        return 1, 1
    totals = []
    for kind in (0, 1):
        # While problems are listed, a union is only validated.
        unions = sum(costs[other][0] for other in part.unions) if kind == 0 else len(part.unions)
        same = sum(costs[other][kind] for other in part.same) + unions
        children = max(
            max(((again.get(child) or costs[child])[kind] for child in each), default=0)
            + sum((again.get(child) or costs[child])[kind] for child in every)
            for each, every in zip(part.each, part.every, strict=True)
        )
        totals.append(min(part.own + same * (2 if part.doubled else 1) + children, MOST_STEPS))
    return totals[0], totals[1]


def weigh(value: Json, most: int) -> int:
    """How many parts a value has, 64 characters of text counting as one more; counted not much further than `most`."""
    total, queue = 1, [value]
    for part in queue:
        if isinstance(part, dict):
            total += len(part) + sum(len(name) for name in part) // 64
            queue += part.values()
        elif isinstance(part, list):
            total += len(part)
            queue += part
        elif isinstance(part, str):
            total += len(part) // 64
        if total > most:
            break
    return total
