"""One walk of a schema's graph and a value together, and what it changed on the way."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from pegboard.call import Json
from pegboard.tools.check import DETAILED_PARTS, Problem, count
from pegboard.tools.literals import Reading, fold, kind_of, match_names, readings
from pegboard.tools.nodes import Graph, Node
from pegboard.tools.problems import SHOWN, ParseError, ParseWarning, Path, fit, show, spell, tell

VISITS = 10_000
DEPTH = 64
TEXTS = 2
# Every visit of a container validates it: this many parts are worth one visit.
PARTS_A_VISIT = 2_000

_SAYINGS: Final = {
    "string_literal_converted_to_boolean": "string {got} read as boolean {became}",
    "string_literal_converted_to_integer": "string {got} read as integer {became}",
    "string_literal_converted_to_number": "string {got} read as number {became}",
    "string_literal_converted_to_null": "string {got} read as null",
    "string_literal_converted_to_object": "string {got} read as JSON object",
    "string_literal_converted_to_array": "string {got} read as JSON list",
    "empty_object_string": "empty string read as {became}",
    "empty_map_string": "empty string read as {became}",
    "empty_array_string": "empty string read as {became}",
    "number_coerced_to_boolean": "number {got} read as boolean {became}",
    "fractional_number_truncated_to_integer": "number {got} cut to integer {became}",
    "non_string_literal_retained": "{got} kept as string {became}",
    "scalar_coerced_to_list": "single value {got} read as list of one",
    "enum_token_matched": "{got} read as {became}",
    "property_name_matched": "name {got} read as {became}",
    "null_left_out": "null for an optional value left out",
    "null_replaced_by_default": "null replaced by the default {became}",
    "fields_gathered_into_object": "fields sent beside it gathered: {became}",
    "duplicate_items_dropped": "duplicates in {got} dropped",
    "timestamp_without_offset": "{got} has no offset such as Z, kept as it is",
    "uri_not_absolute": "{got} is not an absolute URI, kept as it is",
}


class Walk:
    """One repair under way.

    A method that mends takes the node, the value and its path, and returns the value as it should be: the same object
    when there is nothing to change. `wrap` says whether a list may be made of a single value there, `texts` how often
    the value was already taken out of JSON text.
    """

    __slots__ = ("_graph", "_price", "_texts", "_visits", "ambiguous", "warnings")

    def __init__(self, graph: Graph, value: Json) -> None:
        self._graph = graph
        self._visits = 0
        self._texts = 0
        self._price = 1 + count(value, 1_000_000) // PARTS_A_VISIT
        self.warnings: list[ParseWarning] = []
        self.ambiguous: list[ParseError] = []

    def begin(self, value: Json) -> Json:
        """Mend the arguments as a whole: absent ones are an object without any."""
        root = self._graph.root
        if value is None:
            value = {}
            self._warn(None, "null_left_out", None, value)
        if isinstance(value, dict) and not root.groups:
            return self._mend_object(root, value, None, 0)
        return self._visit(root, value, None, 0, wrap=False)

    def errors(self, value: Json) -> list[ParseError]:
        """What is still wrong with a value."""
        told = {error.path: error for error in self.ambiguous}
        errors = {
            error.path: error for error in self._blame(self._graph.root, value, None, 0) if error.path not in told
        }
        # Several problems of one place are one: the first says what is wanted there.
        return [*errors.values(), *told.values()]

    def _blame(self, node: Node, value: Json, path: Path, depth: int) -> Iterator[ParseError]:
        if count(value, DETAILED_PARTS) <= DETAILED_PARTS or depth > DEPTH:
            yield from tell(
                (problem for judge in node.judges() for problem in judge.problems(value)), self._graph.schema, path
            )
            return
        found = 0
        for key, inner, below in _children(node, value):
            if found < SHOWN and below is not None and not below.accepts(inner):
                found += 1
                yield from self._blame(below, inner, (path, key), depth + 1)
        if not found:
            yield from tell(
                [Problem((), "", node.facets[0][1] if node.facets else {}, value)], self._graph.schema, path
            )

    def _warn(self, path: Path, code: str, got: Json, became: Json, *, place: int | None = None) -> None:
        text = spell(path)
        message = fit(text, _SAYINGS.get(code, "{got} read as {became}").format(got=show(got), became=show(became)))
        warning = ParseWarning(text, code, message, got, became)
        self.warnings.insert(len(self.warnings) if place is None else place, warning)

    def _visit(self, node: Node, value: Json, path: Path, depth: int, *, wrap: bool = True) -> Json:
        self._visits += self._price if isinstance(value, dict | list) else 1
        if self._visits > VISITS or depth > DEPTH or node.fits(value):
            return value
        if node.groups:
            return self._choose(node, value, path, depth, wrap=wrap)
        if isinstance(value, dict) and "object" in node.types:
            return self._mend_object(node, value, path, depth)
        if isinstance(value, list) and "array" in node.types:
            return self._mend_list(node, value, path, depth)
        return self._convert(node, value, path, depth, wrap=wrap)

    def _convert(self, node: Node, value: Json, path: Path, depth: int, *, wrap: bool) -> Json:
        """Read a value as another type, or as one of the choices."""
        if isinstance(value, str) and node.names:
            hits = match_names(value, node.names)
            found = [Reading(hit, "enum_token_matched") for hit in hits if node.accepts(hit)]
            if found:
                return self._settle(found, value, path)
        if isinstance(value, str) and node.accepts(value):
            code = "uri_not_absolute" if "uri" in node.formats else "timestamp_without_offset"
            self._warn(path, code, value, value)
            return value
        if isinstance(value, str) and node.plain:
            return value
        mark = self._mark()
        taken: list[tuple[Reading, list[ParseWarning]]] = []
        tried: list[tuple[Reading, list[ParseWarning]]] = []
        for reading in readings(value, node.types, node.formats):
            result = self._read_on(node, reading, path, depth)
            attempt = (Reading(result, reading.code), self._take(mark))
            tried.append(attempt)
            if node.accepts(result):
                taken.append(attempt)
        if taken:
            return self._settle_attempts(taken, value, path)
        if wrap and "array" in node.types and (made := self._wrap(node, value, path, depth)) is not None:
            return made
        if len(tried) == 1 and isinstance(tried[0][0].value, dict | list):
            return self._settle_attempts(tried, value, path)
        return value

    def _read_on(self, node: Node, reading: Reading, path: Path, depth: int) -> Json:
        """Mend what came out of JSON text."""
        if not isinstance(reading.value, dict | list) or self._texts >= TEXTS:
            return reading.value
        self._texts += 1
        result = self._visit(node, reading.value, path, depth + 1, wrap=False)
        self._texts -= 1
        return result

    def _settle_attempts(self, attempts: list[tuple[Reading, list[ParseWarning]]], value: Json, path: Path) -> Json:
        place = len(self.warnings)
        result = self._settle([reading for reading, _ in attempts], value, path)
        if result is not value and len(self.warnings) > place:
            self.warnings.extend(attempts[0][1])
        return result

    def _settle(self, found: list[Reading], value: Json, path: Path) -> Json:
        """Take what all readings agree on; several different values are ambiguous."""
        distinct = {msgspec.json.encode(reading.value): reading for reading in reversed(found)}
        if len(distinct) > 1:
            could = " or ".join(show(reading.value, 24) for reading in list(distinct.values())[::-1][:4])
            text = spell(path)
            message = fit(text, f"got {show(value)}", f", ambiguous: could be {could}", "; send the one you mean")
            self.ambiguous.append(ParseError(text, "ambiguous_value", message, value))
            return value
        code = found[0].code
        self._warn(path, code, value, found[0].value)
        return found[0].value

    def _wrap(self, node: Node, value: Json, path: Path, depth: int) -> list[Json] | None:
        """A list of one; not of null, nor of text that may be a list itself."""
        if value is None or isinstance(value, list):
            return None
        text = value.lstrip() if isinstance(value, str) else ""
        if text.startswith("[") or (not text.startswith(("{", "```")) and "," in text):
            return None
        mark = self._mark()
        made = self._mend_list(node, [value], path, depth)
        inner = self._take(mark)
        if text.startswith(("{", "```")) and isinstance(made[0], str):
            return None
        if not node.accepts(made) and not isinstance(value, dict):
            return None
        self._warn(path, "scalar_coerced_to_list", value, made)
        self.warnings.extend(inner)
        return made

    def _choose(self, node: Node, value: Json, path: Path, depth: int, *, wrap: bool) -> Json:
        """Mend a value under each branch of a union, and take what then validates."""
        if isinstance(value, str) and node.plain and not node.accepts(value):
            return value
        options = [option for option in node.options if not (isinstance(value, dict) and option.excludes(value))]
        mark = self._mark()
        for wrapping in (False, True) if wrap else (False,):
            taken: list[tuple[Json, list[ParseWarning]]] = []
            near: list[tuple[Json, list[ParseWarning]]] = []
            for option in options:
                result = self._visit(option, value, path, depth + 1, wrap=wrapping)
                attempt = (result, self._take(mark))
                if node.accepts(result):
                    taken.append(attempt)
                elif isinstance(result, dict | list) and kind_of(result) in option.types:
                    near.append(attempt)
            if taken:
                return self._agree(taken, value, path)
        if len(near) == 1:
            self.warnings.extend(near[0][1])
            return near[0][0]
        return value

    def _agree(self, taken: list[tuple[Json, list[ParseWarning]]], value: Json, path: Path) -> Json:
        distinct = {msgspec.json.encode(result): (result, notes) for result, notes in reversed(taken)}
        if len(distinct) == 1:
            result, notes = next(iter(distinct.values()))
            self.warnings.extend(notes)
            return result
        place = len(self.warnings)
        return self._settle([Reading(result, "") for result, _ in taken], value, path) if place >= 0 else value

    def _mend_list(self, node: Node, value: list[Json], path: Path, depth: int) -> list[Json]:
        made: list[Json] | None = None
        for index, inner in enumerate(value):
            below = node.item(index)
            if below is not None:
                became = self._visit(below, inner, (path, index), depth + 1, wrap=False)
                if became is not inner:
                    made = made if made is not None else list(value)
                    made[index] = became
        result = value if made is None else made
        if node.unique and not node.accepts(result):
            once = list({msgspec.json.encode(inner): inner for inner in reversed(result)}.values())[::-1]
            if len(once) < len(result):
                self._warn(path, "duplicate_items_dropped", result, once)
                return once
        return result

    def _mend_object(self, node: Node, value: dict[str, Json], path: Path, depth: int) -> dict[str, Json]:
        made = self._rename(node, value, path)
        made = self._gather(node, made, depth) if path is None else made
        for name in list(made):
            below = node.child(name)
            if below is None:
                continue
            inner = made[name]
            if inner is None and not below.accepts(None):
                made = self._fill(node, below, made, name, path, changed=made is not value)
                continue
            became = self._visit(below, inner, (path, name), depth + 1)
            if became is not inner:
                made = dict(made) if made is value else made
                made[name] = became
        return self._mend_under_conditions(node, made, path, depth)

    def _fill(
        self, node: Node, below: Node, value: dict[str, Json], name: str, path: Path, *, changed: bool
    ) -> dict[str, Json]:
        """Null where null is not admitted: left out, or the default of something required."""
        default = below.default()
        if name in node.required and default is None:
            return value
        made = value if changed else dict(value)
        if name in node.required and default is not None:
            made[name] = default[0]
            self._warn((path, name), "null_replaced_by_default", None, default[0])
        else:
            del made[name]
            self._warn((path, name), "null_left_out", None, None)
        return made

    def _rename(self, node: Node, value: dict[str, Json], path: Path) -> dict[str, Json]:
        """Undeclared names onto declared, absent ones that they spell differently."""
        declared = node.properties
        strange = [name for name in value if name not in declared]
        if not strange or not declared:
            return value
        absent = [name for name in declared if name not in value and (not node.open or name in node.required)]
        names = _pair(strange, absent)
        if not names:
            return value
        for old, new in names.items():
            self._warn((path, new), "property_name_matched", old, new)
        return {names.get(name, name): inner for name, inner in value.items()}

    def _gather(self, node: Node, value: dict[str, Json], depth: int) -> dict[str, Json]:
        """Fields of the one absent object argument, sent beside the others, put where they belong."""
        strange = [name for name in value if name not in node.properties and node.child(name) is None]
        if not strange:
            return value
        fitting = [
            (name, below, names)
            for name, below in node.properties.items()
            if name not in value and "object" in below.types and "string" not in below.types
            for names in [_pair(strange, list(below.properties), exact=True)]
            if len(names) == len(strange)
        ]
        if len(fitting) != 1:
            return value
        name, below, names = fitting[0]
        inside = {names[field]: value[field] for field in strange}
        mark = self._mark()
        mended = self._visit(below, inside, (None, name), depth + 1, wrap=False)
        notes = self._take(mark)
        if not below.accepts(mended):
            return value
        self._warn((None, name), "fields_gathered_into_object", {field: value[field] for field in strange}, inside)
        self.warnings.extend(notes)
        return {**{other: inner for other, inner in value.items() if other not in names}, name: mended}

    def _mend_under_conditions(self, node: Node, value: dict[str, Json], path: Path, depth: int) -> dict[str, Json]:
        """What `if` and dependentSchemas ask for, once it is known which of them hold."""
        if not node.conditions or node.accepts(value):
            return value
        for condition in node.conditions:
            pointer = condition.then if node.holds(condition, value) else condition.otherwise
            if pointer is not None:
                mended = self._visit(node.under(condition, pointer), value, path, depth + 1, wrap=False)
                if isinstance(mended, dict):
                    value = mended
        return value

    def _mark(self) -> tuple[int, int]:
        return len(self.warnings), len(self.ambiguous)

    def _take(self, mark: tuple[int, int]) -> list[ParseWarning]:
        """The warnings since a mark, taken back: they count only if what they speak of is kept."""
        warnings = self.warnings[mark[0] :]
        del self.warnings[mark[0] :]
        return warnings


def _pair(strange: list[str], known: list[str], *, exact: bool = False) -> dict[str, str]:
    """Names matched by spelling, one to one; what could go two ways goes none."""
    by_fold: dict[str, list[str]] = {}
    for name in known:
        by_fold.setdefault(fold(name), []).append(name)
    pairs: dict[str, str] = {}
    for name in strange:
        if exact and name in known:
            pairs[name] = name
        elif len(found := by_fold.get(fold(name), [])) == 1:
            pairs[name] = found[0]
    taken = list(pairs.values())
    return {name: new for name, new in pairs.items() if taken.count(new) == 1}


def _children(node: Node, value: Json) -> Iterator[tuple[str | int, Json, Node | None]]:
    if isinstance(value, dict):
        for name, inner in value.items():
            yield name, inner, node.child(name)
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield index, inner, node.item(index)
