"""Explains why an argument that fits its schema cannot be converted."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, TypeAlias

import msgspec

from pegboard.argument_problems import ParseError
from pegboard.binding.union_visits import Visits
from pegboard.call import Json
from pegboard.errors import PegboardError
from pegboard.schema.cost.schema_cost import measure
from pegboard.schema.problems import MAX_LENGTH

Load: TypeAlias = Callable[[Any], Any]

INVALID_VALUE = "invalid_value"

# pydantic creates about a million of them per second.
VISITS = 200_000

_MISSING = re.compile(r"Object missing required field `([^`]+)`")


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
