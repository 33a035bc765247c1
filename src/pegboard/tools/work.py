"""A tool's declaration, compiled: what reads its arguments and what calls its author's code."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import Raw, Struct

from pegboard.call import Json
from pegboard.errors import DeclarationError
from pegboard.tools.binder import Binder, decode_json
from pegboard.tools.check import Validator, check_schema
from pegboard.tools.coerce import ParseError, ParseWarning, Repairer
from pegboard.tools.headers import KEYWORD, check_headers
from pegboard.tools.infer import Inferred, Kind
from pegboard.tools.message import JsonRpcMessage
from pegboard.tools.naming import suggest
from pegboard.tools.parameters import Parameter, fill_defaults, write_declared
from pegboard.tools.schema import write_parameters, write_schema
from pegboard.tools.wire import BindingProblem

Arguments: TypeAlias = Literal["lenient", "strict"]
Call: TypeAlias = Callable[[Any, Mapping[str, Any]], Any]

INVALID_VALUE = "invalid_value"
UNREADABLE = "json_parse_error"

_OPEN: dict[str, Json] = {"type": "object"}


class Parsed(Struct, frozen=True):
    """The arguments of one call, ready for `Tool.invoke`, and what had to be said about them."""

    value: Any
    warnings: tuple[ParseWarning, ...] = ()
    errors: tuple[ParseError, ...] = ()
    view: Callable[[Any], Mapping[str, Any]] | None = None

    @property
    def arguments(self) -> Mapping[str, Any]:
        """The arguments by name: JSON for explicit and declared tools, the function's own values for the others."""
        if self.view is not None and not self.errors:
            return self.view(self.value)
        return self.value if isinstance(self.value, Mapping) else {}


class Both(Struct, frozen=True):
    """The arguments of a tool with its own schema and plain parameters: bound for the function, and as JSON."""

    bound: Any
    json: Mapping[str, Json]


class Work:
    """Everything a call needs of its tool. `view` shows the arguments in a bound value."""

    def __init__(
        self,
        inferred: Inferred,
        function: Callable[..., Any],
        *,
        input_schema: Mapping[str, Json] | None = None,
        output_schema: Mapping[str, Json] | None = None,
        parameters: Sequence[Parameter] | None = None,
    ) -> None:
        self.source = inferred.source
        self.kind: Kind = inferred.kind
        self.injected = inferred.injected
        self.output_schema = _choose_output(inferred, output_schema)
        self.view: Callable[[Any], Mapping[str, Any]] | None = None
        self._parameters = parameters or ()
        self._binder: Binder | None = None
        takes_message = JsonRpcMessage in inferred.injected.values()
        if parameters is not None:
            self.input_schema = write_declared(parameters, self.source)
            self._take_json()
        elif input_schema is not None:
            self.input_schema = dict(input_schema)
            check_schema(self.input_schema, self.source)
            check_headers(self.input_schema, self.source)
            if inferred.fields:
                _compare(inferred, self.input_schema, takes_message=takes_message)
                self._take_both(inferred)
            else:
                self._take_json()
        elif takes_message and not inferred.fields:
            self.input_schema = dict(_OPEN)
            self.bind_raw: Callable[[bytes | Raw], Any] = _take_any
            self._bind: Callable[[Mapping[str, Json]], Any] = dict
        else:
            self.input_schema = write_parameters(inferred.fields, inferred.named)
            if _may_be_wrong(inferred):
                check_schema(self.input_schema, self.source)
                check_headers(self.input_schema, self.source)
            self._take_bound(inferred)
        self.call = _compile_call(function, inferred, both=input_schema is not None)

    @cached_property
    def repairer(self) -> Repairer:
        return Repairer(self.input_schema, extras="refuse" if self.input_schema.get("additionalProperties") is False else "warn")

    def parse_slowly(self, raw: bytes | Raw, mode: Arguments) -> Parsed:
        """Read arguments that do not fit as sent: bind what is valid all the same, repair or report the rest."""
        try:
            value = decode_json(raw)
        except msgspec.DecodeError as problem:
            return Parsed({}, (), (ParseError("", UNREADABLE, f"The arguments are not JSON: {problem}", None),))
        if value is None:
            value = {}
        if self._binder is not None:
            value = self._binder.without_nulls(value)
        if isinstance(value, dict) and self.repairer.fits(value):
            return self._finish(value, ())
        if mode == "strict":
            return Parsed(value, (), self.repairer.report(value))
        repair = self.repairer.repair(value)
        if repair.errors:
            return Parsed(repair.value, repair.warnings, repair.errors)
        return self._finish(repair.value, repair.warnings)

    def _finish(self, value: Mapping[str, Json], warnings: tuple[ParseWarning, ...]) -> Parsed:
        try:
            return Parsed(self._bind(value), warnings, (), self.view)
        except BindingProblem as problem:
            errors = tuple(
                ParseError(one.path, INVALID_VALUE, f"{one.path or 'arguments'}: {one.message}", _find(value, one.path))
                for one in (problem, *problem.others)
            )
            return Parsed(value, warnings, errors)

    def _take_bound(self, inferred: Inferred) -> None:
        binder = self._binder = Binder(inferred.fields, inferred.named, lambda value: self.repairer.fits(value))
        self.bind_raw, self._bind, self.view = binder.bind_raw, binder.bind_value, binder.arguments

    def _take_both(self, inferred: Inferred) -> None:
        binder = Binder(inferred.fields, inferred.named, lambda value: self.repairer.fits(value), own_schema=True)

        def bind_raw(raw: bytes | Raw) -> Both | None:
            bound = binder.bind_raw(raw)
            return None if bound is None else Both(bound, decode_json(raw))

        self.bind_raw = bind_raw
        self._bind = lambda value: Both(binder.bind_value(value), value)
        self.view = lambda both: both.json  # type: ignore[attr-defined]  # this tool's values are always a Both

    def _take_json(self) -> None:
        def bind_raw(raw: bytes | Raw) -> Mapping[str, Json] | None:
            try:
                value = decode_json(raw)
            except msgspec.DecodeError:
                return None
            if isinstance(value, dict) and self.repairer.fits(value):
                return fill_defaults(self._parameters, value)
            return None

        self.bind_raw = bind_raw
        self._bind = lambda value: fill_defaults(self._parameters, value)


def _take_any(raw: bytes | Raw) -> Mapping[str, Json] | None:
    try:
        value = decode_json(raw)
    except msgspec.DecodeError:
        return None
    return value if isinstance(value, dict) else None


def _choose_output(inferred: Inferred, given: Mapping[str, Json] | None) -> Mapping[str, Json] | None:
    if given is None:
        return None if inferred.returns is None else write_schema(inferred.returns)
    try:
        Validator(given)
    except (ValueError, TypeError) as problem:
        raise DeclarationError(f"{inferred.source}: output_schema is no JSON Schema: {str(problem)[:200]}") from problem
    return given


def _may_be_wrong(inferred: Inferred) -> bool:
    """Our own words make valid schemas; an author's patterns, extra keywords and header names may not be."""
    text = repr([field.shape for field in inferred.fields])
    return any(word in text for word in ("pattern='", "extra={'", "header='", KEYWORD)) and any(
        mark not in text for mark in ("header=''", "never")
    )


def _compare(inferred: Inferred, schema: Mapping[str, Json], *, takes_message: bool) -> None:
    """A schema and a signature that disagree are found here, and not by the first caller."""
    properties = schema.get("properties", {})
    names = {field.name for field in inferred.fields}
    for name in names - set(properties):
        meant = suggest(name, properties)
        hint = f"; did you mean {meant[0]!r}?" if meant else ""
        if schema.get("additionalProperties") is False or properties:
            raise DeclarationError(f"{inferred.source}: parameter {name!r} is not in input_schema{hint}")
    lost = [name for name in properties if name not in names]
    if lost and not takes_message:
        raise DeclarationError(
            f"{inferred.source}: input_schema declares {lost[0]!r}, which no parameter takes; "
            f"add the parameter, or take the whole request as a JsonRpcMessage"
        )


def _compile_call(function: Callable[..., Any], inferred: Inferred, *, both: bool) -> Call:
    """The shortest way to call the function: by position as far as its signature allows."""
    if not inferred.fields:
        return lambda _value, injected: function(**injected)
    call = _compile_bound_call(function, inferred)
    return (lambda value, injected: call(value.bound, injected)) if both else call


def _compile_bound_call(function: Callable[..., Any], inferred: Inferred) -> Call:
    in_order = msgspec.structs.astuple
    names = [field.attribute for field in inferred.fields]
    leading = 0
    for name in inferred.order:
        if leading == len(names) or name != names[leading] or name in inferred.keyword_only:
            break
        leading += 1
    if leading == len(names):
        if not inferred.injected:
            return lambda value, _injected: function(*in_order(value))
        return lambda value, injected: function(*in_order(value), **injected)
    rest = names[leading:]

    def call(value: Any, injected: Mapping[str, Any]) -> Any:
        values = in_order(value)
        return function(*values[:leading], **dict(zip(rest, values[leading:], strict=True)), **injected)

    return call


def _find(value: Json, path: str) -> Json:
    """What was got at a path such as items[3].price; None where there is nothing."""
    found = value
    for step in path.replace("[", ".[").split("."):
        if step.startswith("[") and isinstance(found, list) and step[1:-1].isdecimal() and int(step[1:-1]) < len(found):
            found = found[int(step[1:-1])]
        elif isinstance(found, Mapping):
            found = found.get(step)
        elif step:
            return None
    return found
