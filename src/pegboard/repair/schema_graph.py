"""A schema as a graph: at each position of a value, the subschemas that apply.

A node stands for all subschemas that apply at one position of a value: the one written there, what it refers to and its
allOf. Its key consists of the pointers of those subschemas, so recursion in the schema is a cycle in the graph.
Branches of anyOf and oneOf are nodes too: the position plus one branch, with that union resolved. Nodes are created
when a value first reaches them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, nullcontext
from functools import cached_property
from typing import Final, NamedTuple

from pegboard.call import Json
from pegboard.protocol.json_values import as_object, texts_in
from pegboard.schema.cost.references import REFERENCES, References, join, lookup
from pegboard.schema.jsonschema_backend import LENIENT, STRICT
from pegboard.schema.literals import Names, fold_name, kind_of
from pegboard.schema.schema_writer import EXACT, NAMES
from pegboard.schema.validator import Validator

ANY: Final = frozenset({"null", "boolean", "integer", "number", "string", "array", "object"})
# If more subschemas than this apply to one place, it is only validated, not repaired.
FACETS = 64
BRANCHES = 32
UNIONS = 16
NODES = 4_096

_NOTHING: Final = nullcontext()


class BranchGroup(NamedTuple):
    """A union at a place: its pointer, and those of its branches."""

    pointer: str
    branches: tuple[str, ...]


class Condition(NamedTuple):
    """A subschema that applies to some values only: if `test` is valid (or the property `name` exists)."""

    pointer: str
    test: str
    name: str | None
    then: str | None
    otherwise: str | None


class SchemaSummary(NamedTuple):
    """What is known of a subschema without a value."""

    types: frozenset[str]
    plain: bool


class SchemaGraph:
    """All nodes of one schema, and the validators they share."""

    def __init__(self, schema: Mapping[str, Json], strict: Validator, lenient: Validator) -> None:
        self.schema = schema
        self._strict, self._lenient = strict, lenient
        # A value may be accepted that does not fit.
        self.lenient = strict is not lenient
        self.steps = strict.cost.steps
        self.is_too_large = strict.is_too_large
        self._nodes: dict[tuple[tuple[str, ...], frozenset[str]], SchemaNode] = {}
        self._surfaces: dict[str, SchemaSummary] = {}
        self._patterns: dict[str, Validator] = {}
        self.root = self.node(("",))

    def node(self, pointers: tuple[str, ...], spent: frozenset[str] = frozenset()) -> SchemaNode:
        key = (pointers, spent)
        found = self._nodes.get(key)
        if found is None:
            found = SchemaNode(self, pointers, spent)
            if len(self._nodes) < NODES:
                self._nodes[key] = found
        return found

    def judge(self, pointer: str, *, strict: bool) -> Validator:
        return (self._strict if strict else self._lenient).part(pointer)

    def remembering(self) -> AbstractContextManager[object]:
        """Keep the validators' results for the parts of values during the block."""
        if not self._strict.cost.cuts:
            return _NOTHING
        stack = ExitStack()
        for judge in (self._strict, self._lenient):
            stack.enter_context(judge.remembering())
        return stack

    def summary(self, pointer: str, depth: int = 0) -> SchemaSummary:
        """The types of a subschema, and whether it is simple; a self-reference adds nothing."""
        found = self._surfaces.get(pointer)
        if found is not None:
            return found
        self._surfaces[pointer] = SchemaSummary(ANY, plain=True)
        try:
            part = lookup(self.schema, pointer)
        except LookupError:
            part = True
        if not isinstance(part, Mapping) or depth > FACETS:
            self._surfaces[pointer] = SchemaSummary(frozenset() if part is False else ANY, plain=part is not False)
            return self._surfaces[pointer]
        types = _types_of(part)
        plain = "enum" not in part and "const" not in part and part.get("format") not in LENIENT
        for also in self.also(pointer, part):
            below = self.summary(also, depth + 1)
            types, plain = types & below.types, plain and below.plain
        for key in ("anyOf", "oneOf"):
            branches = part.get(key)
            if isinstance(branches, list) and branches:
                each = [self.summary(join(pointer, key, index), depth + 1) for index in range(len(branches))]
                types &= frozenset().union(*(below.types for below in each))
                plain = plain and any(below.plain and "string" in below.types for below in each)
        self._surfaces[pointer] = SchemaSummary(types, plain)
        return self._surfaces[pointer]

    def also(self, pointer: str, part: Mapping[str, Json]) -> Iterator[str]:
        """The subschemas that apply wherever this one does."""
        if any(key in part for key in REFERENCES):
            # Of several readings of a reference, the first: only the validators decide.
            nearest: dict[str, str] = {}
            for reference, target in self._references.targets(pointer, part):
                if target is not None:
                    nearest.setdefault(reference, target)
            yield from nearest.values()
        every = part.get("allOf")
        if isinstance(every, list):
            yield from (join(pointer, "allOf", index) for index in range(len(every)))

    def matches(self, pattern: str, name: str) -> bool:
        """Whether a name matches a pattern of patternProperties, with the validator's own engine."""
        if pattern not in self._patterns:
            self._patterns[pattern] = Validator({"pattern": pattern})
        return self._patterns[pattern].is_valid(name)

    @cached_property
    def _references(self) -> References:
        return References(self.schema)


class SchemaNode:
    """The schema of one place of a value."""

    def __init__(self, graph: SchemaGraph, pointers: tuple[str, ...], spent: frozenset[str]) -> None:
        self._graph, self.pointers, self._spent = graph, pointers, spent
        # A valid value needs no message; an accepted one may get a warning.
        self.fits = _all([graph.judge(pointer, strict=True).is_valid for pointer in pointers])
        self.accepts = _all([graph.judge(pointer, strict=False).is_valid for pointer in pointers])
        self.lenient = graph.lenient
        self._children: dict[str, SchemaNode | None] = {}
        self._items: dict[int, SchemaNode | None] = {}
        self.facets: list[tuple[str, Mapping[str, Json]]] = []
        self.groups: list[BranchGroup] = []
        self.conditions: list[Condition] = []
        self._expand()

    def judges(self) -> list[Validator]:
        """The validators that decide here."""
        return [self._graph.judge(pointer, strict=False) for pointer in self.pointers]

    def branch(self, group: BranchGroup, pointer: str) -> SchemaNode:
        return self._graph.node((*self.pointers, pointer), self._spent | {group.pointer})

    def under(self, condition: Condition, pointer: str) -> SchemaNode:
        return self._graph.node((*self.pointers, pointer), self._spent | {condition.pointer})

    def holds(self, condition: Condition, value: Json) -> bool:
        if condition.name is not None:
            return isinstance(value, dict) and condition.name in value
        return self._graph.judge(condition.test, strict=False).is_valid(value)

    def _expand(self) -> None:
        queue, seen = list(self.pointers), set[str]()
        while queue and len(seen) < FACETS:
            pointer = queue.pop(0)
            if pointer in seen:
                continue
            seen.add(pointer)
            try:
                part = lookup(self._graph.schema, pointer)
            except LookupError:
                continue
            if isinstance(part, Mapping):
                self.facets.append((pointer, part))
                queue.extend(self._graph.also(pointer, part))
                self._add_choices(pointer, part)

    def _add_choices(self, pointer: str, part: Mapping[str, Json]) -> None:
        for key in ("anyOf", "oneOf"):
            branches, at = part.get(key), join(pointer, key)
            if isinstance(branches, list) and branches and at not in self._spent:
                self.groups.append(BranchGroup(at, tuple(join(at, index) for index in range(len(branches)))))
        if "if" in part and (at := join(pointer, "if")) not in self._spent:
            then, otherwise = (join(pointer, key) if key in part else None for key in ("then", "else"))
            self.conditions.append(Condition(at, at, None, then, otherwise))
        dependent = part.get("dependentSchemas")
        if isinstance(dependent, Mapping):
            for name in dependent:
                at = join(pointer, "dependentSchemas", name)
                if at not in self._spent:
                    self.conditions.append(Condition(at, at, name, at, None))

    @cached_property
    def options(self) -> list[SchemaNode]:
        """The branches of the first union, none if there are too many to try."""
        if not self.groups or len(self.groups[0].branches) > BRANCHES or len(self._spent) > UNIONS:
            return []
        return [self.branch(self.groups[0], pointer) for pointer in self.groups[0].branches]

    @cached_property
    def types(self) -> frozenset[str]:
        """The JSON types that are allowed here."""
        return frozenset.intersection(ANY, *(self._graph.summary(pointer).types for pointer in self.pointers))

    @cached_property
    def plain(self) -> bool:
        """Strings are meant literally here, so that none may be read as another type."""
        return "string" in self.types and all(self._graph.summary(pointer).plain for pointer in self.pointers)

    @cached_property
    def formats(self) -> frozenset[str]:
        """The formats that are checked here."""
        return frozenset(
            name for _, part in self.facets if isinstance(name := part.get("format"), str) and name in STRICT
        )

    @cached_property
    def names(self) -> Names | None:
        """The names of the listed values, each text being its own name; None if none are listed."""
        names: dict[str, Json] = {}
        for _, part in self.facets:
            listed = part.get("enum")
            values = [*(listed if isinstance(listed, list) else ()), *([part["const"]] if "const" in part else ())]
            names.update((value, value) for value in values if isinstance(value, str))
            title = part.get("title")
            if isinstance(title, str) and "const" in part:
                names.setdefault(title, part["const"])
            aliases = part.get(NAMES)
            if isinstance(aliases, Mapping):
                for name, value in aliases.items():
                    names.setdefault(name, value)
        # An author may require exact case and separators.
        return Names(names, exact=any(part.get(EXACT) is True for _, part in self.facets)) if names else None

    @cached_property
    def properties(self) -> dict[str, SchemaNode]:
        """The declared properties."""
        names = {name: None for _, part in self.facets for name in as_object(part.get("properties"))}
        return {name: node for name in names if (node := self.child(name)) is not None}

    @cached_property
    def spellings(self) -> dict[str, str]:
        """The declared properties by their normalized spelling."""
        return {name: fold_name(name) for name in self.properties}

    @cached_property
    def required(self) -> frozenset[str]:
        return frozenset(name for _, part in self.facets for name in texts_in(part.get("required")))

    @cached_property
    def unique(self) -> bool:
        """The items of a list must be unique."""
        return any(part.get("uniqueItems") is True for _, part in self.facets)

    @cached_property
    def patterns(self) -> int:
        """How many patterns each property name is matched with."""
        written = (part.get("patternProperties") for _, part in self.facets)
        return sum(len(named) for named in written if isinstance(named, Mapping))

    @cached_property
    def open(self) -> bool:
        """The author allows other properties explicitly."""
        return any(part.get("additionalProperties") not in (None, False) for _, part in self.facets)

    def child(self, name: str) -> SchemaNode | None:
        """The node of a property, declared or not; None if it is not restricted."""
        if name in self._children:
            return self._children[name]
        found: list[str] = []
        for pointer, part in self.facets:
            found.extend(self._pointers_for(name, pointer, part))
        node = self._graph.node(tuple(dict.fromkeys(found))) if found else None
        if len(self._children) < FACETS:
            self._children[name] = node
        return node

    def _pointers_for(self, name: str, pointer: str, part: Mapping[str, Json]) -> Iterator[str]:
        is_declared = False
        declared, patterns = part.get("properties"), part.get("patternProperties")
        if isinstance(declared, Mapping) and name in declared:
            is_declared = True
            yield join(pointer, "properties", name)
        if isinstance(patterns, Mapping):
            for pattern in patterns:
                if self._graph.matches(pattern, name):
                    is_declared = True
                    yield join(pointer, "patternProperties", pattern)
        if not is_declared and isinstance(part.get("additionalProperties"), Mapping):
            yield join(pointer, "additionalProperties")

    def item(self, index: int) -> SchemaNode | None:
        """The node of a list's item; None if it is not restricted."""
        index = min(index, self._first_items)
        if index not in self._items:
            found = [pointer for facet, part in self.facets for pointer in item_pointers(index, facet, part)]
            self._items[index] = self._graph.node(tuple(dict.fromkeys(found))) if found else None
        return self._items[index]

    @cached_property
    def _first_items(self) -> int:
        """How many items have their own schema; the rest share one."""
        tuples = (part.get(key) for _, part in self.facets for key in ("prefixItems", "items"))
        return max((len(each) for each in tuples if isinstance(each, list)), default=0)

    def default(self) -> tuple[Json] | None:
        """The default, if there is one."""
        return next(((part["default"],) for _, part in self.facets if "default" in part), None)

    def excludes(self, value: Mapping[str, Json]) -> bool:
        """In this value, a discriminator property has a name of another branch."""
        return any(
            isinstance(given := value.get(name), str) and not node.fits(given) and not names.match(given)
            for name, node, names in self._telling
        )

    @cached_property
    def _telling(self) -> list[tuple[str, SchemaNode, Names]]:
        return [(name, node, node.names) for name, node in self.properties.items() if node.names is not None]


def item_pointers(index: int, pointer: str, part: Mapping[str, Json]) -> Iterator[str]:
    """The subschemas of a list's item."""
    items = part.get("items")
    # Before 2020-12, a list in items means prefixItems, and additionalItems means items.
    key, rest = ("items", "additionalItems") if isinstance(items, list) else ("prefixItems", "items")
    first = part.get(key)
    if isinstance(first, list) and index < len(first):
        yield join(pointer, key, index)
    elif isinstance(part.get(rest), Mapping):
        yield join(pointer, rest)


def _all(judges: list[Callable[[Json], bool]]) -> Callable[[Json], bool]:
    if len(judges) == 1:
        return judges[0]
    return lambda value: all(judge(value) for judge in judges)


def _types_of(part: Mapping[str, Json]) -> frozenset[str]:
    declared = part.get("type")
    types = ANY
    if isinstance(declared, str):
        types = frozenset({declared})
    elif isinstance(declared, list):
        types = frozenset(name for name in declared if isinstance(name, str))
    if "number" in types:
        types |= {"integer"}
    listed = part.get("enum")
    if isinstance(listed, list):
        types &= frozenset(map(kind_of, listed))
    if "const" in part:
        types &= frozenset({kind_of(part["const"])})
    return types
