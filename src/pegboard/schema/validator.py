"""JSON Schema behind one door: whether a schema may be declared, and whether a value fits it.

Dialects: 2020-12 (also when none is named), 2019-09, draft-07, draft-06 and draft-04. A reference that leaves the
document is never fetched. Patterns run in linear time where they can; one that needs look-around or back-references
runs with bounded backtracking, and text that exceeds the bound does not match.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, unquote

from msgspec import Struct

from pegboard.call import Json
from pegboard.errors import DeclarationError
from pegboard.schema.formats import LENIENT, SOFT
from pegboard.schema.jsonschema_backend import SchemaProblem, compile_schema, register

if TYPE_CHECKING:
    import jsonschema_rs

DIALECTS: Final = {
    "https://json-schema.org/draft/2020-12/schema": "2020-12",
    "https://json-schema.org/draft/2019-09/schema": "2019-09",
    "http://json-schema.org/draft-07/schema": "draft-07",
    "http://json-schema.org/draft-06/schema": "draft-06",
    "http://json-schema.org/draft-04/schema": "draft-04",
}
SCHEMA_DEPTH = 64
SCHEMA_PARTS = 10_000
PATTERN_LENGTH = 1_000
# An error costs ten microseconds to make: large values are taken apart by the caller.
DETAILED_PARTS = 1_000
DETAILED_ERRORS = 100
DETAILED_COST = 2_000

MAPS: Final = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_VALUES: Final = frozenset({"enum", "const", "default", "examples", "example"})
_CONTAINERS: Final = (dict, list)
_ROOT: Final = "urn:pegboard:schema"


class Problem(Struct, frozen=True):
    """One keyword of a schema that a part of a value does not satisfy."""

    path: tuple[str | int, ...]
    keyword: str
    schema: Mapping[str, Json]
    got: Json
    names: tuple[str, ...] = ()


def lookup(document: Json, pointer: str) -> Json:
    """The part of a document that a JSON pointer names; LookupError when there is none."""
    found = document
    for token in pointer.split("/")[1:]:
        name = token.replace("~1", "/").replace("~0", "~")
        if isinstance(found, Mapping):
            found = found[name]
        elif isinstance(found, list) and name.isdecimal():
            found = found[int(name)]
        else:
            raise LookupError(pointer)
    return found


def join(pointer: str, *tokens: str | int) -> str:
    """A pointer to something below another pointer."""
    return "/".join((pointer, *(str(token).replace("~", "~0").replace("/", "~1") for token in tokens)))


def count(value: Json, most: int) -> int:
    """How many values a JSON value is made of, counted not much further than `most`."""
    total, queue = 1, [value]
    for part in queue:
        if not isinstance(part, _CONTAINERS):
            continue
        total += len(part)
        if total > most:
            break
        inside = part.values() if isinstance(part, dict) else part
        queue += [inner for inner in inside if isinstance(inner, _CONTAINERS)]
    return total


class Validator:
    """A compiled schema, or the part of one that a pointer names.

    `is_valid` takes time proportional to the value. Listing problems does not by itself: for a union the library
    gathers the problems of every branch, of every union in every branch and so on, which a small value can drive to
    exhaust the memory. So unions are judged by `is_valid` alone, and gone into only where one branch was meant.

    The schema is compiled at the first value, or by `compile`, which tells of a schema that is none.
    """

    __slots__ = ("_explainer", "_formats", "_judge", "_parts", "_pointer", "_registry", "_schema", "_whole")

    def __init__(
        self,
        schema: Mapping[str, Json],
        pointer: str = "",
        *,
        formats: frozenset[str] = LENIENT,
        of: Validator | None = None,
    ) -> None:
        self._pointer, self._whole = pointer, of
        self._explainer: jsonschema_rs.Validator | None = None
        self._registry: jsonschema_rs.Registry | None = None
        if of is None:
            self._schema, self._formats = _prepare(schema, formats), formats
            self._parts: dict[str, Validator] = {"": self}
        else:
            self._schema, self._formats, self._parts = of._schema, of._formats, of._parts
        self._judge: Callable[[Json], bool] | None = None

    def part(self, pointer: str) -> Validator:
        """The validator of one subschema, which may refer to the rest of the document."""
        found = self._parts.get(pointer)
        if found is None:
            found = self._parts[pointer] = Validator(self._schema, pointer, of=self._whole or self)
        return found

    def is_valid(self, value: Json) -> bool:
        judge = self._judge or self.compile()
        try:
            return judge(value)
        except (ValueError, RecursionError):
            # Lone surrogates and nesting beyond reason: nothing JSON can carry.
            return False

    def compile(self) -> Callable[[Json], bool]:
        """What judges a value; a ValueError or TypeError says that this is no schema."""
        judge = self._judge = self._build({}).is_valid
        return judge

    def problems(self, value: Json) -> Iterable[Problem]:
        """Every problem of a small value; of a large one, only that it has one."""
        if count(value, DETAILED_PARTS) > DETAILED_PARTS:
            return () if self.is_valid(value) else (Problem((), "", self._schema, value),)
        return self._list(value, (), _ErrorBudget(DETAILED_COST))

    def _list(self, value: Json, above: tuple[str | int, ...], budget: _ErrorBudget) -> list[Problem]:
        if self._explainer is None:
            union = _union_keyword(self)
            self._explainer = self._build({"anyOf": union, "oneOf": union})
        try:
            errors = list(islice(self._explainer.iter_errors(value), DETAILED_ERRORS))
        except (ValueError, RecursionError):
            return [Problem(above, "encoding", {}, value)]
        budget.left -= len(errors)
        problems = [self._to_problem(error, above) for error in errors]
        return [
            settled
            for error, problem in zip(errors, problems, strict=True)
            for settled in self._narrow_union(error, problem, budget)
        ]

    def _narrow_union(
        self, error: jsonschema_rs.ValidationError, union: Problem, budget: _ErrorBudget
    ) -> list[Problem]:
        """Instead of a union's problem those of the one branch the value was meant for, if that can be said."""
        branches = union.schema.get(union.keyword) if union.keyword in ("anyOf", "oneOf") else None
        if not isinstance(branches, list):
            return [union]
        near: list[list[Problem]] = []
        for index in range(len(branches)):
            if budget.left <= 0 or len(near) > 1:
                return [union]
            found = self.part(join("", *error.schema_path, index))._list(union.got, union.path, budget)
            if found and not any(_is_other_branch(problem, union) for problem in found):
                near.append(found)
        return near[0] if len(near) == 1 else [union]

    def _build(self, keywords: dict[str, type]) -> jsonschema_rs.Validator:
        if self._whole is None:
            return compile_schema(self._schema, self._formats, None, keywords)
        reference = {"$ref": f"{_ROOT}#{quote(self._pointer)}"}
        return compile_schema(reference, self._formats, self._whole._resources(), keywords)

    def _resources(self) -> jsonschema_rs.Registry:
        if self._registry is None:
            self._registry = register(_ROOT, self._schema)
        return self._registry

    def _to_problem(self, error: jsonschema_rs.ValidationError, above: tuple[str | int, ...]) -> Problem:
        detail = error.kind.as_dict()
        keyword = error.kind.name
        schema: Json = {}
        if keyword != "falseSchema":
            try:
                schema = lookup(self._schema, join("", *error.schema_path[:-1]))
            except LookupError:
                pass
        names = detail.get("unexpected", ()) if keyword.endswith("Properties") else (detail.get("property"),)
        if keyword == "propertyNames":
            names = (detail["error"].instance,)
        return Problem(
            (*above, *error.instance_path),
            keyword,
            schema if isinstance(schema, Mapping) else {},
            error.instance,
            tuple(name for name in names if isinstance(name, str)),
        )


class _ErrorBudget:
    """How many errors may still be made."""

    __slots__ = ("left",)

    def __init__(self, left: int) -> None:
        self.left = left


def _union_keyword(whole: Validator) -> type:
    """anyOf and oneOf as the library should check them while it lists problems: in one word."""

    class Union:
        def __init__(self, parent: Json, branches: list[Json], path: list[str | int]) -> None:
            del parent
            self._pointers = [join("", *path, index) for index in range(len(branches))]
            self._once = path[-1] == "oneOf"

        def validate(self, value: Json) -> None:
            hits = sum(whole.part(pointer).is_valid(value) for pointer in self._pointers)
            if not hits or (self._once and hits > 1):
                raise ValueError(f"{hits} branches take it")

    return Union


def _is_other_branch(problem: Problem, union: Problem) -> bool:
    """A branch that wants another type, or another value where branches are told apart, was not meant."""
    if problem.path == union.path:
        return problem.keyword in ("type", "const", "enum")
    only = problem.keyword == "const" or (problem.keyword == "enum" and len(problem.schema.get("enum", ())) == 1)
    return only and len(problem.path) == len(union.path) + 1


def has_soft_formats(schema: Mapping[str, Json]) -> bool:
    """Some text may be taken that does not quite have the format it should."""
    return any(part.get("format") in SOFT for _, part, _ in _subschemas(schema) if isinstance(part.get("format"), str))


def check_schema(schema: Mapping[str, Json], where: str) -> None:
    """Refuse a tool's schema that is invalid, unbounded, or reaches outside itself; the text says where and how to fix it."""
    refuse = partial(_declare, where)
    dialect = schema.get("$schema", next(iter(DIALECTS)))
    if not isinstance(dialect, str) or dialect.rstrip("#") not in DIALECTS:
        refuse(
            "/$schema", f"names a dialect we do not read: {dialect!r:.80}", f"use one of {', '.join(DIALECTS.values())}"
        )
    if schema.get("type") != "object":
        refuse("/type", f"is {schema.get('type')!r:.40}", 'arguments are an object: write "type": "object"')
    _measure(schema, refuse)
    try:
        compile_schema(_prepare(schema, LENIENT), LENIENT)
    except SchemaProblem as error:
        refuse(join("", *error.path), str(error)[:200], "see the JSON Schema keyword named there")
    except (ValueError, RecursionError, TypeError) as error:
        refuse("", str(error)[:200], "a schema holds JSON values only")


def _declare(where: str, pointer: str, wrong: str, fix: str) -> None:
    raise DeclarationError(f"{where}: schema at {pointer or 'its root'}: {wrong}; {fix}")


def _measure(schema: Mapping[str, Json], refuse: Callable[[str, str, str], None]) -> None:
    parts, identified = 0, False
    found: list[tuple[str, Mapping[str, Json]]] = []
    for pointer, part, depth in _subschemas(schema):
        choices = part.get("enum")
        parts += 1 + (len(choices) if isinstance(choices, list) else 0)
        if depth > SCHEMA_DEPTH:
            refuse(pointer[:80], f"nests deeper than {SCHEMA_DEPTH}", 'move parts to "$defs" and refer to them')
        if parts > SCHEMA_PARTS:
            refuse("", f"has more than {SCHEMA_PARTS} parts", "describe the arguments with fewer")
        identified = identified or isinstance(part.get("$id"), str)
        found.append((pointer, part))
    for pointer, part in found:
        _check_patterns(pointer, part, refuse)
        if not identified:
            _check_reference(pointer, part.get("$ref"), refuse, schema)


def _subschemas(schema: Mapping[str, Json]) -> Iterator[tuple[str, Mapping[str, Json], int]]:
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
                elif key not in _VALUES and isinstance(inner, Mapping | list):
                    queue.append((join(pointer, key), inner, depth + 1))


def _check_patterns(pointer: str, part: Mapping[str, Json], refuse: Callable[[str, str, str], None]) -> None:
    named = part.get("patternProperties")
    for pattern in (part.get("pattern"), *(named if isinstance(named, Mapping) else ())):
        if isinstance(pattern, str) and len(pattern) > PATTERN_LENGTH:
            refuse(pointer, f"has a pattern longer than {PATTERN_LENGTH} characters", "check such text in the tool")


def _check_reference(
    pointer: str, reference: Json, refuse: Callable[[str, str, str], None], root: Mapping[str, Json]
) -> None:
    if not isinstance(reference, str):
        return
    at = join(pointer, "$ref")
    if not reference.startswith("#"):
        if reference.rstrip("#") not in DIALECTS:
            refuse(at, f"leaves the document: {reference[:80]!r}", 'nothing is fetched: copy it into "$defs"')
    elif reference.startswith("#/"):
        try:
            lookup(root, unquote(reference[1:]))
        except LookupError:
            refuse(at, f"names nothing: {reference[:80]!r}", "define it or mend the pointer")


def _prepare(part: Json, formats: frozenset[str]) -> Any:
    """A copy of a schema in which only these formats are left to be asserted, and closed objects list their names.

    Without the latter the library says of a name too many only that nothing is allowed.
    """
    if isinstance(part, list):
        return [_prepare(inner, formats) for inner in part]
    if not isinstance(part, Mapping):
        return part
    kept: dict[str, Json] = {}
    for key, inner in part.items():
        if key in _VALUES:
            kept[key] = inner
        elif key in MAPS and isinstance(inner, Mapping):
            kept[key] = {name: _prepare(below, formats) for name, below in inner.items()}
        elif key != "format" or not isinstance(inner, str) or inner in formats:
            kept[key] = _prepare(inner, formats)
    if kept.get("additionalProperties") is False:
        kept.setdefault("properties", {})
    return kept
