"""Validates values against JSON Schema.

Dialects: 2020-12 (also when none is named), 2019-09, draft-07, draft-06 and draft-04. A reference that leaves the
document is never fetched. Patterns run in linear time where they can; one that needs look-around or back-references
runs with bounded backtracking, and text that exceeds the bound does not match. A schema whose references multiply
(`schema_cost`) is refused; one that costs much for each part of a value takes only values with few parts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from itertools import islice
from threading import local
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from msgspec import Struct

from pegboard.call import Json
from pegboard.protocol.json_values import as_list, as_object
from pegboard.schema.cost.prepared_schema import RECURSION, Prepared
from pegboard.schema.cost.references import join, lookup, subschemas
from pegboard.schema.cost.schema_cost import Cost, LoopingSchema, measure, weigh
from pegboard.schema.cost.work_budget import STEPS_A_UNIT
from pegboard.schema.jsonschema_backend import LENIENT, SOFT, SchemaProblem, compile_schema, register
from pegboard.schema.literals import encode

if TYPE_CHECKING:
    import jsonschema_rs

# Steps for each part of a value (`schema_cost`): schemas with more are rejected; up to FREE_STEPS, a value may have any
# size.
SCHEMA_STEPS = 20_000
FREE_STEPS = 32
# The steps that one value may take, a fifth of a second in the worst case.
VALUE_STEPS = 20_000_000
# Creating an error takes ten microseconds: the caller splits large values.
DETAILED_PARTS = 1_000
DETAILED_ERRORS = 100
DETAILED_COST = 2_000
# The library creates all errors before it returns the first one.
DETAILED_STEPS = 10_000
JUDGED_STEPS = 500_000

_CONTAINERS: Final = (dict, list)
_ROOT: Final = "urn:pegboard:schema"


class Problem(Struct, frozen=True):
    """One keyword of a schema that a part of a value does not satisfy."""

    path: tuple[str | int, ...]
    keyword: str
    schema: Mapping[str, Json]
    got: Json
    names: tuple[str, ...] = ()


def count(value: Json, most: int) -> int:
    """How many values a JSON value consists of, counted not much further than `most`."""
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
    """A compiled schema, or the part of one at a pointer.

    `is_valid` takes time proportional to the value. Listing problems does not: for a union, the library collects the
    problems of every branch, of every union in every branch and so on, so that a small value can exhaust the memory. So
    unions are only checked with `is_valid`, and their problems are listed only if one branch was clearly meant.

    The schema is compiled at the first value, or by `compile`, which raises if the schema is invalid.
    """

    __slots__ = (
        "_cost",
        "_document",
        "_explainer",
        "_formats",
        "_judge",
        "_parts",
        "_pointer",
        "_registry",
        "_round",
        "_whole",
        "_written",
    )  # fmt: skip

    def __init__(
        self,
        schema: Mapping[str, Json],
        pointer: str = "",
        *,
        formats: frozenset[str] = LENIENT,
        of: Validator | None = None,
    ) -> None:
        self._written, self._pointer, self._whole, self._formats = schema, pointer, of or self, formats
        self._explainer: jsonschema_rs.Validator | None = None
        self._registry: jsonschema_rs.Registry | None = None
        self._judge: Callable[[Json], bool] | None = None
        self._cost: Cost | None = None
        self._document: Prepared | None = None
        self._round: _Round = _Round() if of is None else of._round
        self._parts: dict[str, Validator] = {"": self} if of is None else of._parts

    def part(self, pointer: str) -> Validator:
        """The validator of one subschema, which may refer to the rest of the document."""
        found = self._parts.get(pointer)
        if found is None:
            found = self._parts[pointer] = Validator(self._written, pointer, formats=self._formats, of=self._whole)
        return found

    @property
    def cost(self) -> Cost:
        """The cost of the whole schema for each part of a value."""
        whole = self._whole
        if whole._cost is None:
            whole._cost = _price(self._written)
        return whole._cost

    def is_valid(self, value: Json) -> bool:
        judge = self._judge or self.compile()
        try:
            return judge(value)
        except (ValueError, RecursionError):
            # Lone surrogates and extreme nesting: JSON cannot carry these.
            return False

    def is_too_large(self, value: Json) -> bool:
        """Whether a value has more parts than this schema can check; such a value is not valid."""
        steps = self.cost.steps
        if steps <= FREE_STEPS:
            return False
        most = VALUE_STEPS // steps
        # A part takes at least two bytes, which are counted much faster.
        text = encode(value)
        return (text is None or len(text) > 2 * most) and weigh(value, most) > most

    def remembering(self) -> AbstractContextManager[None]:
        """Keep the results for the parts of values during the block."""
        return self._round if self.cost.cuts else nullcontext()

    def compile(self) -> Callable[[Json], bool]:
        """The validator; a ValueError or TypeError says that this schema is invalid."""
        judge: Callable[[Json], bool] = self._build({}).is_valid
        if self.cost.cuts:
            judge = self._remember(judge)
        if self.cost.steps > FREE_STEPS:
            judge = self._limit(judge)
        self._judge = judge
        return judge

    def _remember(self, judge: Callable[[Json], bool]) -> Callable[[Json], bool]:
        turn = self._round

        def remembering(value: Json) -> bool:
            with turn:
                return judge(value)

        return remembering

    def _limit(self, judge: Callable[[Json], bool]) -> Callable[[Json], bool]:
        return lambda value: not self.is_too_large(value) and judge(value)

    def lists(self, value: Json) -> bool:
        """Whether a value is small enough for its problems to be listed."""
        parts, (steps, listing_steps, *_) = count(value, DETAILED_PARTS), self.cost
        # A value without parts is checked against its own place only, once.
        listing_steps = listing_steps if parts > 1 else min(listing_steps, steps)
        return parts <= DETAILED_PARTS and parts * listing_steps <= DETAILED_STEPS and parts * steps <= JUDGED_STEPS

    def problems(self, value: Json) -> Iterable[Problem]:
        """Every problem of a small value; for a large one, only that it has one."""
        if not self.lists(value):
            return () if self.is_valid(value) else (Problem((), "", self._written, value),)
        return self._list(value, (), _ErrorBudget(DETAILED_COST))

    def _list(self, value: Json, above: tuple[str | int, ...], budget: _ErrorBudget) -> list[Problem]:
        """The problems of the value at a path; branches of a union may request those of the same part."""
        key = (self._pointer, above)
        if key not in budget.listed:
            budget.listed[key] = self._list_once(value, above, budget)
        return budget.listed[key]

    def _list_once(self, value: Json, above: tuple[str | int, ...], budget: _ErrorBudget) -> list[Problem]:
        if self._explainer is None:
            union = _union_keyword(self)
            self._explainer = self._build({"anyOf": union, "oneOf": union})
        try:
            with self.remembering():
                errors = list(islice(self._explainer.iter_errors(value), DETAILED_ERRORS))
        except (ValueError, RecursionError):
            return [Problem(above, "encoding", {}, value)]
        budget.left -= len(errors) + count(value, DETAILED_PARTS) * self.cost.steps // STEPS_A_UNIT
        problems = [self._to_problem(error, above) for error in errors]
        return [
            settled
            for error, problem in zip(errors, problems, strict=True)
            for settled in self._narrow_union(error, problem, budget)
        ]

    def _narrow_union(
        self, error: jsonschema_rs.ValidationError, found: Problem, budget: _ErrorBudget
    ) -> list[Problem]:
        """Replace the problem of a union by those of the one branch that was meant, if that is clear."""
        if found.keyword == RECURSION:
            return self._go_on(error, found, budget)
        branches = found.schema.get(found.keyword) if found.keyword in ("anyOf", "oneOf") else None
        if not isinstance(branches, list):
            return [found]
        near: list[list[Problem]] = []
        complete: list[list[Problem]] = []
        for index in range(len(branches)):
            if budget.left <= 0 or len(complete) > 1:
                return [found]
            listed = self.part(join("", *error.schema_path, index))._list(found.got, found.path, budget)
            if listed and not any(_is_other_branch(problem, found) for problem in listed):
                near.append(listed)
                # An object with every required name of a branch was meant for it.
                if not any(problem.keyword == "required" and problem.path == found.path for problem in listed):
                    complete.append(listed)
        return next((each[0] for each in (near, complete) if len(each) == 1), [found])

    def _go_on(self, error: jsonschema_rs.ValidationError, found: Problem, budget: _ErrorBudget) -> list[Problem]:
        """The problems of a part with a cut subschema, in place of the one that it does not fit."""
        place = str(lookup(self._prepared().schema, join("", *error.schema_path)))
        if budget.left <= 0:
            cut = as_object(lookup(self._written, self._prepared().origin(place)))
            return [Problem(found.path, "", cut, found.got)]
        return self.part(place)._list(found.got, found.path, budget)

    def _build(self, keywords: dict[str, type]) -> jsonschema_rs.Validator:
        if self.cost.cuts:
            keywords = {**keywords, RECURSION: _recursion_keyword(self)}
        if self._whole is self:
            return compile_schema(self._prepared().schema, self._formats, None, keywords)
        reference = {"$ref": f"{_ROOT}#{quote(self._prepared().place(self._pointer))}"}
        return compile_schema(reference, self._formats, self._whole._resources(), keywords)

    def _prepared(self) -> Prepared:
        whole = self._whole
        if whole._document is None:
            whole._document = Prepared(self._written, self._formats, self.cost.shared, self.cost.cuts)
        return whole._document

    def _resources(self) -> jsonschema_rs.Registry:
        if self._registry is None:
            self._registry = register(_ROOT, self._prepared().schema)
        return self._registry

    def _to_problem(self, error: jsonschema_rs.ValidationError, above: tuple[str | int, ...]) -> Problem:
        detail = error.kind.as_dict()
        keyword = error.kind.name
        names = detail.get("unexpected", ()) if keyword.endswith("Properties") else (detail.get("property"),)
        if keyword == "propertyNames":
            names = (detail["error"].instance,)
        return Problem(
            (*above, *error.instance_path),
            keyword,
            {} if keyword == "falseSchema" else self._around(error),
            error.instance,
            tuple(name for name in names if isinstance(name, str)),
        )

    def _around(self, error: jsonschema_rs.ValidationError) -> Mapping[str, Json]:
        """The subschema that has the keyword of an error."""
        prepared, pointer = self._prepared(), join("", *error.schema_path[:-1])
        try:
            found = lookup(prepared.schema, pointer)
            if (self.cost.shared or self.cost.cuts) and RECURSION not in as_object(found):
                found = lookup(self._written, prepared.origin(pointer))
        except LookupError:
            return {}
        return found if isinstance(found, Mapping) else {}


class _Round(local):
    """The results of the cut subschemas for the parts of values, kept while a block is active."""

    def __init__(self) -> None:
        self.known: dict[tuple[str, int], tuple[bool, Json]] = {}
        self._inside = 0

    def __enter__(self) -> None:
        self._inside += 1

    def __exit__(self, *_: object) -> None:
        self._inside -= 1
        if not self._inside:
            self.known.clear()


def _recursion_keyword(whole: Validator) -> type:
    """The keyword that replaces a cut subschema: each part of a value is checked by it once."""
    turn = whole._round

    class Recursion:
        def __init__(self, parent: Json, place: str, path: list[str | int]) -> None:
            del parent, path
            self._place, self._part = place, whole.part(place)

        def validate(self, value: Json) -> None:
            key = (self._place, id(value))
            found = turn.known.get(key)
            if found is None:
                # The value is held so that its id is not reused.
                found = turn.known[key] = (self._part.is_valid(value), value)
            if not found[0]:
                raise ValueError("does not fit")

    return Recursion


class _ErrorBudget:
    """How many more errors may be listed, and those listed for each subschema and part of the value."""

    __slots__ = ("left", "listed")

    def __init__(self, left: int) -> None:
        self.left = left
        self.listed: dict[tuple[str, tuple[str | int, ...]], list[Problem]] = {}


def _union_keyword(whole: Validator) -> type:
    """anyOf and oneOf as the library should check them while it lists problems: only whether they hold."""

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
    """A branch with another type, or another discriminator value, was not meant."""
    if problem.path == union.path:
        return problem.keyword in ("type", "const", "enum")
    only = problem.keyword == "const" or (problem.keyword == "enum" and len(as_list(problem.schema.get("enum"))) == 1)
    return only and len(problem.path) == len(union.path) + 1


def has_soft_formats(schema: Mapping[str, Json]) -> bool:
    """Some text may be accepted that does not quite match its format."""
    return any(part.get("format") in SOFT for _, part, _ in subschemas(schema) if isinstance(part.get("format"), str))


def _price(schema: Mapping[str, Json]) -> Cost:
    """The cost of a valid schema."""
    try:
        cost = measure(schema)
    except LoopingSchema as error:
        path = [token.replace("~1", "/").replace("~0", "~") for token in error.pointer.split("/")[1:]]
        raise SchemaProblem(path, str(error), "refer to itself only for a part of the value") from error
    except ValueError as error:
        raise SchemaProblem((), str(error), 'define it in "$defs"') from error
    if cost.steps > SCHEMA_STEPS:
        raise SchemaProblem(
            (),
            f"checking one value takes up to {cost.steps:,} steps, the limit is {SCHEMA_STEPS:,}",
            "its references multiply: reduce those that lead to the same part",
        )
    return cost
