"""Walks a schema graph and a value together and records the changes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import deepcopy
from typing import NamedTuple, ParamSpec

from pegboard.argument_problems import ParseError
from pegboard.call import Json
from pegboard.protocol.json_values import as_list
from pegboard.repair.places import Places, find_undeclared
from pegboard.repair.repair_messages import Note
from pegboard.repair.schema_graph import SchemaGraph, SchemaNode
from pegboard.schema.cost.work_budget import STEPS_A_UNIT, TEXT_A_UNIT, Exhausted, WorkBudget
from pegboard.schema.exact_floats import ExactFloats
from pegboard.schema.literals import CONTAINERS, Reading, encode, fold_name, kind_of, readings, says_null
from pegboard.schema.problems import MAX_SHOWN, Path, describe_problems_of, fit_message, format_path
from pegboard.schema.validator import Problem, count
from pegboard.schema.wording import show_value

DEPTH = 64
TEXTS = 2
MAX_PARTS = 4_000_000
# If there are more problems than this, only the first are reported.
ERRORS = 100
# Parts of a container that are looked at, without descending, for one unit of work.
PARTS_A_UNIT = 20

P = ParamSpec("P")


class RepairAttempt(NamedTuple):
    """A possible reading of a value, with its warnings."""

    value: Json
    notes: list[Note]
    ambiguous: list[ParseError]


class RepairWalk:
    """One repair in progress.

    A method that repairs takes a node, the value and its path, and returns the repaired value: the same object if
    nothing changes. `wrap` says whether a single value may become a list there. Notes are formatted by the caller that
    takes the outcome. All work is charged to the budget: Exhausted ends a repair.
    """

    __slots__ = ("_ambiguous", "_budget", "_chosen", "_floats", "_graph", "_longest", "_places", "_texts", "notes")

    def __init__(
        self,
        graph: SchemaGraph,
        places: Places,
        budget: WorkBudget,
        longest: int,
        floats: ExactFloats | None = None,
    ) -> None:
        """`longest` limits the text that is parsed as something else, in characters; `floats` are as they were sent."""
        self._floats = floats or ExactFloats()
        self._graph = graph
        self._places = places
        self._budget = budget
        self._longest = longest
        self._texts = 0
        self._chosen: dict[tuple[int, int, bool], tuple[RepairAttempt, object]] = {}
        self._ambiguous: list[ParseError] = []
        self.notes: list[Note] = []

    def repair_arguments(self, value: Json) -> Json:
        """Repair the arguments as a whole; missing arguments are an empty object."""
        root = self._graph.root
        if value is None:
            value = {}
            self.notes.append((None, "null_arguments", None, value))
        return self._repair_value(root, value, None, 0)

    def _repair_value(self, node: SchemaNode, value: Json, path: Path, depth: int) -> Json:
        """Repair a value; for the arguments also their names, since undeclared names do not fit there."""
        if path is None and isinstance(value, dict) and not node.groups:
            return self._repair_object(node, value, path, depth)
        return self._visit(node, value, path, depth, wrap=False)

    def errors(self, value: Json) -> list[ParseError]:
        """The remaining problems of a value; if one place has several, the first, which says what is expected."""
        errors = {error.path: error for error in self._ambiguous}
        try:
            for error in self._find_problems(self._graph.root, value, None, 0):
                errors.setdefault(error.path, error)
                if len(errors) >= ERRORS:
                    break
        except Exhausted:
            # Report what was found so far; a value without findings is wrong as a whole.
            errors = errors or {
                "": describe_problems_of([Problem((), "", self._graph.schema, value)], self._graph.schema)[0]
            }
        return list(errors.values())

    def _find_problems(self, node: SchemaNode, value: Json, path: Path, depth: int) -> Iterator[ParseError]:
        """Problems of a small value from the validator; a large one is split first, up to SHOWN of its parts."""
        schema = self._graph.schema
        if depth > DEPTH or all(judge.lists(value) for judge in node.judges()):
            yield from describe_problems_of(
                (problem for judge in node.judges() for problem in judge.problems(value)), schema, path
            )
            return
        found = 0
        self._budget.spend(len(value) // PARTS_A_UNIT if isinstance(value, CONTAINERS) else 1)
        for key, inner, below in _children(node, value):
            self._pay_check(inner)
            if below is not None and not below.accepts(inner):
                found += 1
                yield from self._find_problems(below, inner, (path, key), depth + 1)
                if found == MAX_SHOWN:
                    break
        if not found:
            yield from describe_problems_of(
                [Problem((), "", node.facets[0][1] if node.facets else {}, value)], schema, path
            )

    def _attempt(self, mend: Callable[P, Json], *args: P.args, **keywords: P.kwargs) -> RepairAttempt:
        """Try a repair: its notes are removed, and count only if the attempt is accepted."""
        noted, doubted = len(self.notes), len(self._ambiguous)
        return self._take_back(mend(*args, **keywords), noted, doubted)

    def _take_back(self, value: Json, noted: int, doubted: int) -> RepairAttempt:
        attempt = RepairAttempt(value, self.notes[noted:], self._ambiguous[doubted:])
        del self.notes[noted:], self._ambiguous[doubted:]
        return attempt

    def _accept(self, attempt: RepairAttempt) -> Json:
        self.notes += attempt.notes
        self._ambiguous += attempt.ambiguous
        return attempt.value

    def _take_agreed(self, attempts: list[RepairAttempt], value: Json, path: Path) -> Json:
        """Accept the result of the attempts; if they have several different results, none of them."""
        if len(attempts) == 1:
            return self._accept(attempts[0])
        distinct = {encode(attempt.value): attempt.value for attempt in attempts}
        if len(distinct) == 1:
            return self._accept(attempts[0])
        could = " or ".join(show_value(each, 24) for each in list(distinct.values())[:4])
        text = format_path(path)
        message = fit_message(
            text, f"got {show_value(value)}", f", ambiguous: could be {could}", "; send the one you mean"
        )
        self._ambiguous.append(ParseError(text, "ambiguous_value", message, value))
        return value

    def _visit(self, node: SchemaNode, value: Json, path: Path, depth: int, *, wrap: bool = True) -> Json:
        if depth > DEPTH:
            return value
        self._budget.spend(1)
        container = isinstance(value, CONTAINERS)
        if container:
            self._pay_check(value)
        if node.fits(value) and not (container and any(find_undeclared(self._places.at(node.pointers), value))):
            return value
        if isinstance(value, str):
            if len(value) > self._longest and not node.accepts(value):
                return self._leave(value, path)
            self._budget.spend(len(value) // TEXT_A_UNIT)
        if node.groups:
            return self._choose(node, value, path, depth, wrap=wrap)
        if isinstance(value, dict) and "object" in node.types:
            return self._repair_object(node, value, path, depth)
        if isinstance(value, list) and "array" in node.types:
            return self._repair_list(node, value, path, depth)
        return self._convert(node, value, path, depth, wrap=wrap)

    def _leave(self, value: str, path: Path) -> str:
        """Keep text that is too long to be parsed as something else."""
        text = format_path(path)
        what = f"the text has {len(value):,} characters, and only {self._longest:,} are parsed as another type"
        self._ambiguous.append(ParseError(text, "text_too_long_to_repair", fit_message(text, what), None))
        return value

    def _pay_check(self, value: Json) -> None:
        """Charge the check of a container, which visits all of it."""
        if isinstance(value, CONTAINERS) and value:
            self._budget.spend(count(value, MAX_PARTS) * self._graph.steps // STEPS_A_UNIT)

    def _convert(self, node: SchemaNode, value: Json, path: Path, depth: int, *, wrap: bool) -> Json:
        """Read a value as another type, or as one of the choices."""
        if isinstance(value, str):
            hits = [] if node.names is None else node.names.match(value)
            chosen = [hit for hit in hits if node.accepts(hit)]
            # A valid choice is not read as another one; something else is wrong.
            if chosen and value not in chosen:
                attempts = [self._attempt(self._note_change, hit, "enum_token_matched", value, path) for hit in chosen]
                return self._take_agreed(attempts, value, path)
            if node.lenient and node.accepts(value):
                code = "uri_not_absolute" if "uri" in node.formats else "timestamp_without_offset"
                return self._note_change(value, code, value, path)
            if node.plain:
                return value
        elif kind_of(value) in node.types:
            # The right type and still invalid: another type would only bypass the rule.
            return value
        types = node.types if self._texts < TEXTS else node.types - {"object", "array"}
        found = readings(value, types, node.formats, self._floats)
        if len(found) == 1:
            noted, doubted = len(self.notes), len(self._ambiguous)
            became = self._read(node, found[0], value, path, depth)
            if node.accepts(became):
                return became
            attempts = [self._take_back(became, noted, doubted)]
        else:
            attempts = [self._attempt(self._read, node, reading, value, path, depth) for reading in found]
            taken = [attempt for attempt in attempts if node.accepts(attempt.value)]
            if taken:
                return self._take_agreed(taken, value, path)
        if wrap and "array" in node.types and (made := self._wrap(node, value, path, depth)) is not None:
            return made
        if len(attempts) == 1 and isinstance(attempts[0].value, CONTAINERS):
            # Still wrong inside: the errors then describe that.
            return self._accept(attempts[0])
        return value

    def _note_change(self, became: Json, code: str, got: Json, path: Path) -> Json:
        self.notes.append((path, code, got, became))
        return became

    def _read(self, node: SchemaNode, reading: Reading, value: Json, path: Path, depth: int) -> Json:
        read, code = reading
        if not isinstance(read, CONTAINERS):
            self.notes.append((path, code, value, read))
            if code == "timestamp_normalised" and not node.fits(read):
                self.notes.append((path, "timestamp_without_offset", read, read))
            return read
        is_map = code == "empty_object_string" and node.open and not node.properties
        self.notes.append((path, "empty_map_string" if is_map else code, value, read))
        self._texts += 1
        mended = self._repair_value(node, read, path, depth + 1)
        self._texts -= 1
        return mended

    def _wrap(self, node: SchemaNode, value: Json, path: Path, depth: int) -> Json:
        """A list of one, or None: not for null, nor for text that may be a list itself."""
        text = value.lstrip() if isinstance(value, str) else ""
        nested = text.startswith(("{", "```"))
        if value is None or isinstance(value, list) or text.startswith("[") or ("," in text and not nested):
            return None
        attempt = self._attempt(self._repair_single_item, node, value, path, depth)
        # Text that looks like JSON, and objects, are not meant as text in a list.
        if (nested or isinstance(value, dict)) and isinstance(as_list(attempt.value)[0], str):
            return None
        return self._accept(attempt) if isinstance(value, dict) or node.accepts(attempt.value) else None

    def _repair_single_item(self, node: SchemaNode, value: Json, path: Path, depth: int) -> Json:
        self.notes.append((path, "scalar_coerced_to_list", value, [value]))
        return self._repair_list(node, [value], path, depth)

    def _choose(self, node: SchemaNode, value: Json, path: Path, depth: int, *, wrap: bool) -> Json:
        """Repair a value under a union, once: branches that share a part would each descend into it again."""
        if not isinstance(value, CONTAINERS):
            return self._try_branches(node, value, path, depth, wrap=wrap)
        key = (id(node), id(value), wrap)
        known = self._chosen.get(key)
        if known is None:
            # Node and value are kept with the outcome, so that their ids are not reused.
            known = self._chosen[key] = (
                self._attempt(self._try_branches, node, value, path, depth, wrap=wrap),
                (node, value),
            )
        return self._accept(known[0])

    def _try_branches(self, node: SchemaNode, value: Json, path: Path, depth: int, *, wrap: bool) -> Json:
        """Repair a value under each branch, and take the valid results."""
        if isinstance(value, str) and node.plain and not node.accepts(value):
            return value
        options = [option for option in node.options if not (isinstance(value, dict) and option.excludes(value))]
        if node.accepts(value):
            # Only its names need repair, in the one branch that takes it.
            options = [option for option in options if option.accepts(value)]
            if len(options) != 1:
                return value
        if not isinstance(value, str):
            # If a branch of the value's own type rejects it, no other branch may bypass that.
            kind = kind_of(value)
            options = [option for option in options if kind in option.types] or options
        near: list[RepairAttempt] = []
        # A branch that takes the value itself wins over one that takes a list of it.
        for wrapping in (False, True) if wrap else (False,):
            attempts = [self._attempt(self._visit, option, value, path, depth + 1, wrap=wrapping) for option in options]
            taken = [attempt for attempt in attempts if node.accepts(attempt.value)]
            if taken:
                return self._take_agreed(taken, value, path)
            near = near or [
                attempt
                for attempt, option in zip(attempts, options, strict=True)
                if isinstance(attempt.value, CONTAINERS) and kind_of(attempt.value) in option.types
            ]
        return self._accept(near[0]) if len(near) == 1 else value

    def _repair_list(self, node: SchemaNode, value: list[Json], path: Path, depth: int) -> list[Json]:
        made = value
        self._budget.spend(len(value) // PARTS_A_UNIT)
        for index, inner in enumerate(value):
            below = node.item(index)
            if below is None:
                continue
            became = self._visit(below, inner, (path, index), depth + 1, wrap=False)
            if became is not inner:
                made = list(value) if made is value else made
                made[index] = became
        if node.unique and not node.accepts(made):
            once: dict[str | None, Json] = {}
            for inner in made:
                once.setdefault(encode(inner), inner)
            if len(once) < len(made):
                self.notes.append((path, "duplicate_items_dropped", made, list(once.values())))
                return list(once.values())
        return made

    def _repair_object(self, node: SchemaNode, value: dict[str, Json], path: Path, depth: int) -> dict[str, Json]:
        self._budget.spend(len(value) * (1 + node.patterns) // PARTS_A_UNIT)
        made = value
        if None in value.values():
            # Before the names: null counts as absent, and may be meant under another spelling.
            made = self._without_nulls(node, [name for name, inner in value.items() if inner is None], made, path)
        if not made.keys() <= node.properties.keys():
            made = self._rename(node, made, path)
            if path is None:
                made = self._gather(node, made, depth)
        changed: dict[str, Json] = {}
        nulls: list[str] = []
        for name, inner in made.items():
            below = node.child(name)
            if below is None:
                continue
            if inner is None:
                nulls.append(name)
                continue
            became = self._visit(below, inner, (path, name), depth + 1)
            if became is not inner:
                changed[name] = became
            elif isinstance(inner, str) and says_null(inner) and name not in node.required and not below.accepts(inner):
                self.notes.append(((path, name), "string_literal_converted_to_null", inner, None))
                changed[name] = None
                nulls.append(name)
        if changed:
            made = {**made, **changed}
        if nulls:
            made = self._without_nulls(node, nulls, made, path)
        if node.conditions and not node.accepts(made):
            made = self._repair_conditions(node, made, path, depth)
        return made

    def _without_nulls(self, node: SchemaNode, names: list[str], value: dict[str, Json], path: Path) -> dict[str, Json]:
        """Null where it is not allowed: use the default, or omit an optional value."""
        made: dict[str, Json] = {}
        gone: set[str] = set()
        # The names under which another value is given that may be meant.
        respelt = {fold_name(name) for name, inner in value.items() if inner is not None and name not in node.spellings}
        for name in names:
            self._budget.spend(1)
            below = node.child(name)
            if below is None or below.accepts(None):
                continue
            optional, default = name not in node.required, below.default()
            if (
                default is not None
                and below.accepts(default[0])
                and not (optional and node.spellings.get(name) in respelt)
            ):
                # Copied: callers must not modify the schema.
                made[name] = deepcopy(default[0])
                self.notes.append(((path, name), "null_replaced_by_default", None, made[name]))
            elif optional:
                self.notes.append(((path, name), "null_left_out", None, None))
                gone.add(name)
        if not made and not gone:
            return value
        return {name: made.get(name, inner) for name, inner in value.items() if name not in gone}

    def _rename(self, node: SchemaNode, value: dict[str, Json], path: Path) -> dict[str, Json]:
        """Rename undeclared names to declared, absent ones with a similar spelling."""
        declared = node.properties
        self._budget.spend(len(declared) // PARTS_A_UNIT)
        absent = {
            name: spelling
            for name, spelling in node.spellings.items()
            if name not in value and (not node.open or name in node.required)
        }
        names = _pair([name for name in value if name not in declared], absent) if absent else None
        if not names:
            return value
        for old, new in names.items():
            self.notes.append(((path, new), "property_name_matched", old, new))
        return {names.get(name, name): inner for name, inner in value.items()}

    def _gather(self, node: SchemaNode, value: dict[str, Json], depth: int) -> dict[str, Json]:
        """Move fields of the only absent object argument, sent beside the others, into it."""
        strange = [name for name in value if name not in node.properties]
        if not strange or node.open:
            return value
        homes = [
            (name, below, names)
            for name, below in node.properties.items()
            if name not in value and "object" in below.types and "string" not in below.types
            # Each field needs its own name there.
            if len(strange) <= len(below.spellings)
            if len(names := _pair(strange, below.spellings)) == len(strange)
        ]
        if len(homes) != 1:
            return value
        name, below, names = homes[0]
        outside = {field: value[field] for field in strange}
        attempt = self._attempt(self._repair_gathered, below, outside, names, (None, name), depth)
        if not below.accepts(attempt.value):
            return value
        return {**{other: inner for other, inner in value.items() if other not in names}, name: self._accept(attempt)}

    def _repair_gathered(
        self, node: SchemaNode, outside: dict[str, Json], names: dict[str, str], path: Path, depth: int
    ) -> Json:
        inside = {names[field]: inner for field, inner in outside.items()}
        self.notes.append((path, "fields_gathered_into_object", outside, inside))
        return self._visit(node, inside, path, depth + 1, wrap=False)

    def _repair_conditions(self, node: SchemaNode, value: dict[str, Json], path: Path, depth: int) -> dict[str, Json]:
        """Apply `if` and dependentSchemas, once it is known which of them hold."""
        for condition in node.conditions:
            pointer = condition.then if node.holds(condition, value) else condition.otherwise
            if pointer is not None:
                mended = self._visit(node.under(condition, pointer), value, path, depth + 1, wrap=False)
                value = mended if isinstance(mended, dict) else value
        return value


def _pair(strange: Iterable[str], known: Mapping[str, str]) -> dict[str, str]:
    """Match names by spelling, one to one; ambiguous ones are not matched."""
    by_spelling: dict[str, list[str]] = {}
    for name, spelling in known.items():
        by_spelling.setdefault(spelling, []).append(name)
    pairs = {
        name: name if name in found else found[0]
        for name in strange
        if len(found := by_spelling.get(fold_name(name), [])) == 1 or name in found
    }
    if len(set(pairs.values())) == len(pairs):
        return pairs
    uses = Counter(pairs.values())
    return {old: new for old, new in pairs.items() if uses[new] == 1}


def _children(node: SchemaNode, value: Json) -> Iterator[tuple[str | int, Json, SchemaNode | None]]:
    if isinstance(value, dict):
        for name, inner in value.items():
            yield name, inner, node.child(name)
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield index, inner, node.item(index)
