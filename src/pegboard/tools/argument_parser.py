"""Compiles a tool's declaration into an argument parser and a call of its code."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Raw, Struct

from pegboard.argument_problems import ParseError, ParseWarning
from pegboard.binding.binder import NOT_JSON, Binder, decode_json
from pegboard.binding.conversion import BindingProblem, convert, describe_problems
from pegboard.binding.decoder import compile_decoder
from pegboard.binding.number_types import convert_numbers
from pegboard.binding.number_types import takes_decimals as has_decimals
from pegboard.call import Json
from pegboard.errors import DeclarationError
from pegboard.limits import Limits
from pegboard.protocol.json_values import as_object
from pegboard.repair.repairer import LIMITS, Repairer
from pegboard.schema.cost.references import follow_local
from pegboard.schema.exact_floats import ExactFloats
from pegboard.schema.schema_check import check_schema
from pegboard.schema.schema_writer import write_parameters, write_schema
from pegboard.schema.types.shape import FieldShape, ForeignShape, Shape, Shaped, UnionShape, walk
from pegboard.schema.validator import Validator
from pegboard.tools.header_parameters import check_headers
from pegboard.tools.message import JsonRpcMessage
from pegboard.tools.naming import suggest
from pegboard.tools.parameters import Parameter, read_declared, takes_decimals, write_declared
from pegboard.tools.signature import InferredFunction

Mode: TypeAlias = Literal["lenient", "strict"]
BindRaw: TypeAlias = Callable[[bytes | Raw], Any]
Bind: TypeAlias = Callable[[Mapping[str, Json], ExactFloats | None], Any]
View: TypeAlias = Callable[[Any], Mapping[str, Any]]
Invoke: TypeAlias = Callable[[Any, Mapping[str, Any]], Any]

UNREADABLE = "json_parse_error"


class ParsedArguments(Struct, frozen=True):
    """The arguments of one call, ready for `Tool.invoke`, with warnings and errors.

    `repaired` is the JSON that was bound, if it is not what was sent.
    """

    value: Any
    warnings: tuple[ParseWarning, ...] = ()
    errors: tuple[ParseError, ...] = ()
    view: View | None = None
    repaired: Json = None

    @property
    def arguments(self) -> Mapping[str, Any]:
        """The arguments by name: JSON for explicit and declared tools, Python values for the others."""
        if self.view is not None:
            return self.view(self.value)
        return self.value if isinstance(self.value, Mapping) else {}


class BoundAndJson(Struct, frozen=True):
    """The arguments of a tool with its own schema and plain parameters: bound for the function, and as JSON."""

    bound: Any
    json: Mapping[str, Json]


class ArgumentParser:
    """Parses the arguments of one tool: `bind_raw` those that fit as sent, `parse_slowly` the rest."""

    def __init__(
        self,
        schema: Mapping[str, Json],
        bind_raw: BindRaw,
        bind: Bind,
        view: View | None = None,
        *,
        takes_decimals: bool = False,
    ) -> None:
        self.schema = schema
        self.bind_raw = bind_raw
        self.view = view
        self._bind = bind
        self._takes_decimals = takes_decimals

    @cached_property
    def repairer(self) -> Repairer:
        """Compiled at the first call that does not fit as sent."""
        return Repairer(self.schema)

    def prepare_value(self, value: Json) -> Json:
        """The decoded arguments as the schema should see them."""
        return value

    def _take(self, raw: bytes | Raw) -> Any:
        """Bind arguments that fit the schema as sent; None for others."""
        digits = ExactFloats() if self._takes_decimals else None
        try:
            value = decode_json(raw) if digits is None else digits.decode(raw)
            return self._bind(value, digits) if isinstance(value, dict) and self.repairer.fits(value) else None
        except (*NOT_JSON, BindingProblem):
            return None

    def repair_and_parse(self, raw: bytes | Raw, mode: Mode, limits: Limits = LIMITS) -> ParsedArguments:
        """Parse arguments that do not fit as sent: bind valid ones, repair or report the others."""
        floats = ExactFloats()
        digits = floats if self._takes_decimals else None
        try:
            value = floats.decode(raw)
            # Missing arguments mean no arguments; in lenient mode with a warning.
            value = self.prepare_value({} if value is None and mode == "strict" else value)
        except NOT_JSON as problem:
            if mode == "strict":
                return ParsedArguments(
                    {}, (), (ParseError("", UNREADABLE, f"The arguments are not JSON: {problem}", None),)
                )
            # Text that may still contain JSON, in a code fence or with a trailing comma.
            value = bytes(raw).decode("utf-8", "replace")
        if mode == "strict":
            if isinstance(value, dict) and self.repairer.fits(value):
                return self._finish(value, (), digits)
            errors = self.repairer.report(value, limits)
            # Without errors, the value only has the wrong form: there is nothing to reject.
            return ParsedArguments(value, (), errors) if errors else self._finish(value, (), digits)
        repair = self.repairer.repair(value, limits, floats)
        if repair.errors:
            return ParsedArguments(repair.value, repair.warnings, repair.errors)
        return self._finish(repair.value, repair.warnings, digits)

    def _finish(self, value: Any, warnings: tuple[ParseWarning, ...], digits: ExactFloats | None) -> ParsedArguments:
        try:
            return ParsedArguments(self._bind(value, digits), warnings, (), self.view, value)
        except BindingProblem as problem:
            return ParsedArguments(value, warnings, describe_problems(problem, value))


class BoundParser(ArgumentParser):
    """Magic: schema and binder are both derived from the function's signature."""

    def __init__(self, inferred: InferredFunction) -> None:
        self._inferred = inferred
        self._binder = binder = Binder(inferred.fields, inferred.named, self._fits)
        schema = write_parameters(inferred.fields, inferred.named)
        if any(_may_be_wrong(field.shape) or _has_unions(field.shape) for field in inferred.fields):
            _check_schema(schema, inferred)
        decimals = binder.takes_decimals
        super().__init__(schema, binder.bind_raw, binder.bind_value, binder.arguments, takes_decimals=decimals)

    @cached_property
    def repairer(self) -> Repairer:
        return Repairer(write_parameters(self._inferred.fields, self._inferred.named, private=True))

    def prepare_value(self, value: Json) -> Json:
        return self._binder.without_nulls(value)

    def _fits(self, value: Json) -> bool:
        return self.repairer.fits(value)


class SchemaParser(ArgumentParser):
    """The arguments are JSON that fits a schema, and stay JSON."""

    def __init__(self, schema: Mapping[str, Json], *, takes_decimals: bool = False) -> None:
        super().__init__(schema, self._take, self._fill, takes_decimals=takes_decimals)

    def _fill(self, value: Mapping[str, Json], _digits: ExactFloats | None = None) -> Mapping[str, Any]:
        return value


class OwnSchemaParser(SchemaParser):
    """Explicit, hybrid and declared: the arguments are JSON that fits the author's schema, and bound if a function
    needs it."""

    def __init__(
        self, schema: Mapping[str, Json], inferred: InferredFunction, parameters: Sequence[Parameter] = ()
    ) -> None:
        self._parameters = parameters
        if not inferred.fields:
            super().__init__(schema, takes_decimals=takes_decimals(parameters))
            return
        binder = Binder(inferred.fields, inferred.named, self._fits, own_schema=True)

        def bind_raw(raw: bytes | Raw) -> BoundAndJson | None:
            bound = binder.bind_raw(raw)
            if bound is None:
                return None
            value = decode_json(raw)
            return BoundAndJson(bound, value) if self.repairer.with_integers(value) is value else None

        def bind(value: Mapping[str, Json], digits: ExactFloats | None) -> Any:
            settled = self.repairer.with_integers(value)
            return BoundAndJson(binder.bind_value(settled, digits), settled)

        ArgumentParser.__init__(self, schema, bind_raw, bind, _json_of, takes_decimals=binder.takes_decimals)

    def _fits(self, value: Json) -> bool:
        return self.repairer.fits(value)

    def _fill(self, value: Mapping[str, Json], digits: ExactFloats | None = None) -> Mapping[str, Any]:
        return read_declared(self._parameters, self.repairer.with_integers(value), digits)


class RecordParser(ArgumentParser):
    """`Request[T]`: the arguments are one object of the author's type, whose schema, or an own one, they fit."""

    def __init__(self, inferred: InferredFunction, record: Shaped, given: Mapping[str, Json] | None) -> None:
        self._record, self._given = record, given
        schema = self._write() if given is None else given
        if schema.get("type") != "object":
            raise DeclarationError(
                f"{inferred.source}: the T of Request[T] must be a type with fields, such as a dataclass"
            )
        _check_schema(schema, inferred)
        self._decoder = compile_decoder(record.shape, record.named)
        decimals = has_decimals(record.shape)
        super().__init__(schema, self._take, self._read, _json_of, takes_decimals=decimals)

    @cached_property
    def repairer(self) -> Repairer:
        return Repairer(self._write(private=True) if self._given is None else self._given)

    def _write(self, *, private: bool = False) -> Mapping[str, Json]:
        """The schema of the record as that of a whole call: closed, and an object itself, not a reference to one."""
        field = FieldShape(name="args", attribute="args", shape=self._record.shape, required=True, default=UNSET)
        written = write_parameters([field], self._record.named, private=private)
        definitions = as_object(written.get("$defs"))
        part = as_object(as_object(written["properties"])["args"])
        part = follow_local(part, written) or part
        return {**part, "$defs": definitions} if definitions else part

    def _read(self, value: Mapping[str, Json], digits: ExactFloats | None) -> BoundAndJson:
        numbers = convert_numbers(self._record.shape, value, self._record.named, digits)
        made, load = convert(numbers, self._decoder.type), self._decoder.load
        return BoundAndJson(made if load is None else load(made), value)


def parser_of_function(inferred: InferredFunction, input_schema: Mapping[str, Json] | None) -> ArgumentParser:
    """The parser for a function, by its signature or by the author's schema."""
    if inferred.record is not None:
        return RecordParser(inferred, inferred.record, input_schema)
    takes_message = JsonRpcMessage in inferred.injected.values()
    if input_schema is None:
        if inferred.fields or not takes_message:
            return BoundParser(inferred)
        # A raw message and no schema: the author checks the arguments.
        return ArgumentParser({"type": "object"}, _take_any, lambda value, _digits: dict(value))
    _check_schema(input_schema, inferred)
    if inferred.fields:
        _compare(inferred, input_schema, takes_message=takes_message)
    return OwnSchemaParser(input_schema, inferred)


def parser_of_parameters(
    inferred: InferredFunction, parameters: Sequence[Parameter], input_schema: Mapping[str, Json] | None
) -> ArgumentParser:
    """The parser for a declared tool, by its parameters or by its own schema."""
    if input_schema is None:
        return DeclaredParser(inferred, parameters)
    _check_schema(input_schema, inferred)
    return OwnSchemaParser(input_schema, inferred)


class DeclaredParser(OwnSchemaParser):
    """Declared: the schema is written from the parameters."""

    def __init__(self, inferred: InferredFunction, parameters: Sequence[Parameter]) -> None:
        schema = write_declared(parameters, inferred.source)
        _check_schema(schema, inferred)
        super().__init__(schema, inferred, parameters)
        self._source = inferred.source

    @cached_property
    def repairer(self) -> Repairer:
        return Repairer(write_declared(self._parameters, self._source, private=True))


def choose_output(inferred: InferredFunction, given: Mapping[str, Json] | None) -> Mapping[str, Json] | None:
    """The author's output schema, or that of the return annotation."""
    schema, returns = given, inferred.returns
    if schema is None:
        if returns is None:
            return None
        schema = write_schema(returns)
        if not _may_be_wrong(returns.shape) and not _has_unions(returns.shape):
            return schema
    try:
        Validator(schema).compile()
    except (ValueError, TypeError) as problem:
        what = "the schema of the return type" if given is None else "output_schema"
        raise DeclarationError(f"{inferred.source}: {what} cannot be used: {str(problem)[:200]}") from problem
    return schema


def compile_call(function: Callable[..., Any], inferred: InferredFunction, work: ArgumentParser) -> Invoke:
    """The fastest way to call the function: by position as far as its signature allows."""
    if not inferred.fields:
        return lambda _value, injected: function(**injected)
    call = _compile_bound_call(function, inferred)
    return (lambda value, injected: call(value.bound, injected)) if isinstance(work, OwnSchemaParser) else call


def _compile_bound_call(function: Callable[..., Any], inferred: InferredFunction) -> Invoke:
    in_order = msgspec.structs.astuple
    names = [field.attribute for field in inferred.fields]
    by_position = [name for name in inferred.order if name not in inferred.keyword_only]
    first = by_position.index(names[0]) if names[0] in by_position else 0
    lead = by_position[:first]
    if by_position[first : first + len(names)] != names:
        return _call_by_name(function, names)
    if not inferred.injected:
        return lambda value, _injected: function(*in_order(value))
    if not lead:
        return lambda value, injected: function(*in_order(value), **injected)
    rest = [name for name in inferred.injected if name not in lead]

    def call(value: Any, injected: Mapping[str, Any]) -> Any:
        before = [injected[name] for name in lead]
        return function(*before, *in_order(value), **{name: injected[name] for name in rest})

    return call


def _call_by_name(function: Callable[..., Any], names: Sequence[str]) -> Invoke:
    in_order = msgspec.structs.astuple

    def call(value: Any, injected: Mapping[str, Any]) -> Any:
        return function(**dict(zip(names, in_order(value), strict=True)), **injected)

    return call


def _take_any(raw: bytes | Raw) -> Mapping[str, Json] | None:
    try:
        value = decode_json(raw)
    except NOT_JSON:
        return None
    return value if isinstance(value, dict) else None


def _json_of(both: BoundAndJson) -> Mapping[str, Json]:
    return both.json


def _check_schema(schema: Mapping[str, Json], inferred: InferredFunction) -> None:
    check_schema(schema, inferred.source)
    check_headers(schema, inferred.source)


def _may_be_wrong(shape: Shape) -> bool:
    """Schemas that we write are valid; those of pydantic, and an author's patterns and extra keywords, may not be."""
    return any(
        isinstance(part, ForeignShape) or part.notes.pattern is not None or part.notes.extra or part.notes.header
        for part in walk(shape)
    )


def _has_unions(shape: Shape) -> bool:
    """Only nested alternatives can make checking a value cost more than its parts."""
    return sum(isinstance(part, UnionShape) for part in walk(shape)) > 1


def _compare(inferred: InferredFunction, schema: Mapping[str, Json], *, takes_message: bool) -> None:
    """Find a schema and a signature that disagree now, and not at the first call."""
    properties = as_object(schema.get("properties"))
    names = [field.name for field in inferred.fields]
    for name in names:
        if name not in properties:
            meant = suggest(name, properties)
            hint = f"; did you mean {meant[0]!r}?" if meant else "; add it there, or register its type as a service"
            raise DeclarationError(f"{inferred.source}: parameter {name!r} is not in input_schema{hint}")
    lost = [name for name in properties if name not in names]
    if lost and not takes_message:
        raise DeclarationError(
            f"{inferred.source}: input_schema declares {lost[0]!r}, which has no parameter; add the parameter, or take "
            "the whole request as a JsonRpcMessage"
        )
