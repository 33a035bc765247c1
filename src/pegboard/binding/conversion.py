"""Converts arguments that fit their schema, and explains why one cannot be converted."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from pegboard.argument_problems import ParseError
from pegboard.call import Json
from pegboard.errors import PegboardError
from pegboard.protocol.json_values import as_list
from pegboard.schema.cost.references import References, join, lookup
from pegboard.schema.cost.schema_cost import measure
from pegboard.schema.problems import MAX_LENGTH

Load: TypeAlias = Callable[[Any], Any]

INVALID_VALUE = "invalid_value"

# pydantic creates about a million of them per second.
VISITS = 200_000

_MISSING = re.compile(r"Object missing required field `([^`]+)`")

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
    """Counts how often the parts of a value are read by a decoder that tries every alternative of a union.

    pydantic is such a reader: where the alternatives of a recursive union share the names of their fields, each level of
    a value doubles its work, for values that fit as for others. The number is found without doing the work, since each
    part is counted once for each subschema. The schema is one as pydantic writes it.
    """

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


class BindingProblem(PegboardError):
    """An argument that fits its schema but cannot be converted for the function.

    Includes an author's own ValueError, in a `__post_init__` or a validator. `path` is written like `items[3].price`;
    `others` are further problems.
    """

    def __init__(self, path: str, message: str, others: tuple[BindingProblem, ...] = ()) -> None:
        super().__init__(f"{path}: {message}" if path else message)
        self.path = path
        self.message = message
        self.others = others

    def all(self) -> tuple[BindingProblem, ...]:
        """This problem and the others."""
        return (self, *self.others)

    def under(self, parent: str) -> BindingProblem:
        """The same problem with a longer path."""
        return BindingProblem(
            join_path(parent, self.path), self.message, tuple(other.under(parent) for other in self.others)
        )


def describe_problems(problem: BindingProblem, value: Json) -> tuple[ParseError, ...]:
    """The problems as errors of the arguments, in the common format."""
    return tuple(
        ParseError(
            part.path, INVALID_VALUE, f"{part.path or 'arguments'}: {part.message}"[:MAX_LENGTH], find(value, part.path)
        )
        for part in problem.all()
    )


def find(value: Json, path: str) -> Json:
    """The value at a path such as items[3].price; None if there is none."""
    found = value
    for step in filter(None, path.replace("[", ".[").split(".")):
        place = step[1:-1]
        if isinstance(found, Mapping):
            found = found.get(step)
        elif isinstance(found, list) and place.isdecimal() and int(place) < len(found):
            found = found[int(place)]
        else:
            return None
    return found


def join_path(parent: str, path: str) -> str:
    """A path below another one."""
    return f"{parent}{path}" if not parent or not path or path.startswith("[") else f"{parent}.{path}"


def load_at(step: str, load: Load, value: Any) -> Any:
    """Load a part; a problem in it gets the path from here."""
    try:
        return load(value)
    except BindingProblem as problem:
        raise problem.under(step) from problem


def guard(make: Load) -> Load:
    """Call the author's code; its ValueError is a problem of the argument."""

    def load(value: Any) -> Any:
        try:
            return make(value)
        except (ValueError, TypeError, ArithmeticError) as refused:
            raise BindingProblem("", str(refused) or "is not allowed") from refused

    return load


def convert(value: Json, wanted: Any) -> Any:
    """A JSON value as a type that msgspec supports."""
    try:
        return msgspec.convert(value, wanted, str_keys=True)
    except msgspec.ValidationError as problem:
        raise explain(problem) from problem


def explain(problem: msgspec.ValidationError) -> BindingProblem:
    """The error of msgspec, with the path in our format and an author's own words kept."""
    text, _, place = str(problem).rpartition(" - at `")
    path = place[:-1].removeprefix("$").removeprefix(".") if text else ""
    message = text or str(problem)
    missing = _MISSING.match(message)
    if missing is not None:
        return BindingProblem(join_path(path, missing[1]), "is required")
    cause = problem.__cause__
    return BindingProblem(path, message.replace("`", "") if cause is None else str(cause) or "is not allowed")


def load_pydantic(wanted: Any, *, strict: bool = True) -> Load:
    """Strict JSON mode accepts the JSON forms of dates and sets, and converts nothing else."""
    try:
        validate, visits = _read_pydantic(wanted)
    except TypeError:
        # Not hashable: for example an Annotated that contains a list.
        validate, visits = _read_pydantic.__wrapped__(wanted)
    encode = msgspec.json.encode

    def load(value: Json) -> Any:
        if visits is not None and _is_too_deep(visits, value):
            raise BindingProblem("", "nests too deep: each level multiplies the alternatives to try")
        try:
            return validate(encode(value), strict=strict)
        except ValueError as refused:
            raise _explain_pydantic(refused) from refused

    return load


@lru_cache(maxsize=256)
def _read_pydantic(wanted: Any) -> tuple[Callable[..., Any], Visits | None]:
    """The validator of a pydantic type, which counts its visits if these may multiply."""
    import pydantic  # noqa: PLC0415 (an optional third party, whose type is in hand)

    adapter = pydantic.TypeAdapter(wanted)
    if adapter.core_schema["type"] not in ("definitions", "definition-ref"):
        return adapter.validator.validate_json, None
    try:
        schema = adapter.json_schema()
        cost = measure(schema)
        branching = bool(cost.shared or cost.cuts)
    except (pydantic.errors.PydanticUserError, ValueError):
        return adapter.validator.validate_json, None
    return adapter.validator.validate_json, Visits(schema) if branching else None


def _is_too_deep(visits: Visits, value: Json) -> bool:
    try:
        return visits.count(value) > VISITS
    except RecursionError:
        return True


def _explain_pydantic(refused: Any) -> BindingProblem:
    problems = []
    for error in refused.errors(include_url=False, include_context=False, include_input=False):
        path = ""
        for step in error["loc"]:
            path = join_path(path, f"[{step}]" if isinstance(step, int) else str(step))
        problems.append(BindingProblem(path, error["msg"].removeprefix("Value error, ")))
    first, *rest = problems
    first.others = tuple(rest)
    return first
