"""The declared style: parameters as values, their schema, and the object a declared tool receives."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from enum import Enum
from functools import partial
from hashlib import blake2b
from typing import Any

import msgspec
from msgspec import UNSET, Struct

from pegboard.argument_problems import ParseError, ParseWarning
from pegboard.binding.conversion import convert, load_at
from pegboard.call import Json
from pegboard.errors import DeclarationError
from pegboard.schema.exact_floats import ExactFloats
from pegboard.schema.plain_json import encode
from pegboard.schema.schema_writer import EXACT, annotate, new_default, write_schema
from pegboard.schema.types.constraints import NO_NOTES, EnumConstraint, ValueNotes, read_notes
from pegboard.schema.types.shape_reader import read_shape
from pegboard.schema.validator import Validator


class ValueKind(Enum):
    """The type of one value of a parameter. A TIMESTAMP is a datetime, a DECIMAL a Decimal; the others stay JSON."""

    STRING = "string"
    BOOLEAN = "boolean"
    INTEGER = "integer"
    NUMBER = "number"
    JSON_OBJECT = "json_object"
    JSON_ARRAY = "json_array"
    TIMESTAMP = "timestamp"
    URI = "uri"
    ENUM_TOKEN = "enum_token"  # noqa: S105 (a kind of value, not a secret)
    ATTACHMENT_REFERENCE = "attachment_reference"
    INT32 = "int32"
    INT64 = "int64"
    FLOAT32 = "float32"
    FLOAT64 = "float64"
    DECIMAL = "decimal"


class Cardinality(Enum):
    """How many values: one, at most one, a list of them, or a map from names to them."""

    SINGLE = "single"
    OPTIONAL = "optional"
    LIST = "list"
    MAP = "map"


class Parameter(Struct, frozen=True):
    """One argument of a declared tool.

    name: its name.
    kind: the kind of value.
    cardinality: whether it is one value or a list.
    required: whether a caller must send it.
    description: what it is, for the model.
    enum: the allowed values.
    example: an example for the model.
    default: the value if a caller does not send it.
    constraints: what a function has in `Annotated`: `Range`, `Pattern`, `MinLength`, `MaxLength` and others. They apply to
        each value of a list or map; only lengths count its items.
    parameters: the members of a JSON_OBJECT.
    """

    name: str
    kind: ValueKind = ValueKind.STRING
    cardinality: Cardinality = Cardinality.SINGLE
    required: bool = True
    description: str = ""
    enum: EnumConstraint | Sequence[Json] | None = None
    example: Json = None
    default: Json = UNSET
    constraints: Sequence[Any] = ()
    parameters: Sequence[Parameter] = ()


class ToolCallRequest(Struct, frozen=True, kw_only=True):
    """A call of a declared tool.

    tool_name: the name of the tool.
    tool_call_id: the id of the call, from the request or the model provider.
    arguments: the arguments after repair; edited ones (`msgspec.structs.replace`) run as edited.
    raw_arguments: the text that the model sent.
    warnings: the repairs.
    errors: what is wrong with the arguments.
    parsed_digest: identifies the arguments as they were parsed from the text, to detect an edit.
    """

    tool_name: str
    tool_call_id: str = ""
    arguments: Mapping[str, Any] = {}
    raw_arguments: str = ""
    warnings: tuple[ParseWarning, ...] = ()
    errors: tuple[ParseError, ...] = ()
    parsed_digest: str = ""

    @property
    def edited(self) -> bool:
        """Whether `arguments` are others than those in the text that the model sent."""
        return self.parsed_digest != digest_of(self.arguments) if self.parsed_digest else bool(self.arguments)


class ToolExecutionContext(Struct, frozen=True):
    """The argument of `Tool.execute`: the request, and the environment that the host passed."""

    request: ToolCallRequest
    environment: Mapping[str, Any] = {}


def digest_of(arguments: Mapping[str, Any]) -> str:
    """A short text that differs for different arguments."""
    return blake2b(encode(arguments), digest_size=16).hexdigest()


_FLOAT32 = 3.4028234663852886e38
_KINDS: Mapping[ValueKind, Mapping[str, Json]] = {
    ValueKind.STRING: {"type": "string"},
    ValueKind.BOOLEAN: {"type": "boolean"},
    ValueKind.INTEGER: {"type": "integer"},
    ValueKind.NUMBER: {"type": "number"},
    ValueKind.JSON_OBJECT: {"type": "object"},
    ValueKind.JSON_ARRAY: {"type": "array"},
    ValueKind.TIMESTAMP: {"type": "string", "format": "date-time"},
    ValueKind.URI: {"type": "string", "format": "uri"},
    ValueKind.ENUM_TOKEN: {"type": "string"},
    ValueKind.ATTACHMENT_REFERENCE: {"type": "string"},
    ValueKind.INT32: {"type": "integer", "minimum": -(2**31), "maximum": 2**31 - 1},
    ValueKind.INT64: {"type": "integer", "minimum": -(2**63), "maximum": 2**63 - 1},
    ValueKind.FLOAT32: {"type": "number", "minimum": -_FLOAT32, "maximum": _FLOAT32},
    ValueKind.FLOAT64: {"type": "number"},
    ValueKind.DECIMAL: write_schema(read_shape(Decimal, "Decimal")),
}
# What the constraints need: a number, or text without a format. Lengths also count items.
_BOUNDS = frozenset({"minimum", "above", "maximum", "below", "multiple_of"})
_LENGTHS = frozenset({"min_length", "max_length"})


def write_declared(parameters: Sequence[Parameter], where: str, *, private: bool = False) -> dict[str, Json]:
    """The input schema of declared parameters. It is open: unknown names are passed on with a warning.

    `private` adds keywords that only the repair engine reads.
    """
    properties: dict[str, Json] = {}
    for parameter in parameters:
        _check_parameter(parameter, where)
        if any(parameter.name.lower() == other.lower() for other in properties):
            raise DeclarationError(
                f"{where}: two Parameters are called {parameter.name!r}; names must differ in more than case"
            )
        properties[parameter.name] = _write_parameter(
            parameter, f"{where}: Parameter {parameter.name!r}", private=private
        )
    schema: dict[str, Json] = {"type": "object", "properties": properties}
    required = [parameter.name for parameter in parameters if is_required(parameter)]
    if required:
        schema["required"] = required
    return schema


def is_required(parameter: Parameter) -> bool:
    """A parameter with a default may be omitted."""
    return parameter.required and parameter.default is UNSET


def takes_decimals(parameters: Sequence[Parameter]) -> bool:
    """Whether a value is a Decimal, which keeps the digits that were sent."""
    return any(parameter.kind is ValueKind.DECIMAL or takes_decimals(parameter.parameters) for parameter in parameters)


def read_declared(
    parameters: Sequence[Parameter], arguments: Mapping[str, Json], digits: ExactFloats | None = None
) -> Mapping[str, Any]:
    """Valid arguments as a tool receives them: with defaults, datetimes and Decimals.

    Optional arguments without a default stay absent.
    """
    changed: dict[str, Any] = {
        parameter.name: new_default(parameter.default)
        for parameter in parameters
        if parameter.default is not UNSET and parameter.name not in arguments
    }
    for parameter in parameters:
        given = changed.get(parameter.name, arguments.get(parameter.name))
        if given is not None and (parameter.parameters or parameter.kind in _LOADERS):
            changed[parameter.name] = load_at(parameter.name, partial(_read_value, parameter, digits=digits), given)
    return {**arguments, **changed} if changed else arguments


def _read_value(parameter: Parameter, value: Any, digits: ExactFloats | None) -> Any:
    def read_one(one: Any) -> Any:
        if parameter.parameters:
            return read_declared(parameter.parameters, one, digits)
        return _LOADERS[parameter.kind](one, digits)

    if parameter.cardinality is Cardinality.LIST:
        return [load_at(f"[{place}]", read_one, one) for place, one in enumerate(value)]
    if parameter.cardinality is Cardinality.MAP:
        return {name: load_at(name, read_one, one) for name, one in value.items()}
    return read_one(value)


def _read_decimal(value: Any, digits: ExactFloats | None) -> Decimal:
    exact = digits.exact(value) if digits is not None and isinstance(value, float) else value
    return Decimal(str(exact))


_LOADERS: Mapping[ValueKind, Callable[[Any, ExactFloats | None], Any]] = {
    ValueKind.TIMESTAMP: lambda value, _digits: convert(value, datetime),
    ValueKind.DECIMAL: _read_decimal,
}


def _check_parameter(parameter: Parameter, where: str) -> None:
    """Reject a declaration of the wrong types, which would fail or be ignored when the tool is called."""
    if not isinstance(parameter, Parameter):
        raise DeclarationError(f"{where}: {parameter!r:.80} in parameters; use Parameter(…)")
    if not str(parameter.name).strip():
        raise DeclarationError(f"{where}: a Parameter has an empty name")
    where = f"{where}: Parameter {parameter.name!r}"
    for option, given, kinds in (
        ("kind", parameter.kind, ValueKind),
        ("cardinality", parameter.cardinality, Cardinality),
    ):
        if not isinstance(given, kinds):
            meant = [kind for kind in kinds if given == kind.value or str(given).upper() == kind.name]
            listed = ", ".join(f"{kinds.__name__}.{kind.name}" for kind in meant or kinds)
            raise DeclarationError(f"{where}: {option}={given!r:.40}; use {'' if meant else 'one of '}{listed}")
    if not isinstance(parameter.required, bool):
        raise DeclarationError(f"{where}: required={parameter.required!r:.40}; use True or False")
    if not isinstance(parameter.description, str):
        raise DeclarationError(f"{where}: description={parameter.description!r:.40}; use text")
    allowed = _allowed(parameter)
    if allowed is not None and not allowed:
        raise DeclarationError(f"{where}: enum={parameter.enum!r:.40}; list at least one allowed value, or remove it")
    if parameter.parameters and parameter.kind is not ValueKind.JSON_OBJECT:
        raise DeclarationError(f"{where}: only a JSON_OBJECT has parameters, and its kind is {parameter.kind.name}")


def _write_parameter(parameter: Parameter, where: str, *, private: bool) -> dict[str, Json]:
    value: dict[str, Json] = msgspec.to_builtins(_KINDS[parameter.kind])
    if parameter.parameters:
        value = write_declared(parameter.parameters, where, private=private)
    notes, lengths = _read_constraints(parameter, where)
    annotate(value, notes, "decimal" if parameter.kind is ValueKind.DECIMAL else "", private=private)
    allowed = _allowed(parameter)
    if allowed is not None:
        _check_values(allowed, value, f"{where}: enum")
        value["enum"] = allowed
        if private and isinstance(parameter.enum, EnumConstraint) and parameter.enum.case_sensitive:
            value[EXACT] = True
    match parameter.cardinality:
        case Cardinality.LIST:
            value = {"type": "array", "items": value}
        case Cardinality.MAP:
            value = {"type": "object", "additionalProperties": value}
    annotate(value, lengths, "")
    if parameter.description:
        value["description"] = parameter.description
    if parameter.example is not None:
        value["examples"] = [_typed_example(parameter)]
    if parameter.default is not UNSET and parameter.default is not None:
        value["default"] = parameter.default
    try:
        msgspec.json.encode(value)
    except (TypeError, ValueError) as problem:
        raise DeclarationError(f"{where}: its example, default and enum must be JSON values ({problem})") from problem
    if "default" in value:
        _check_values([parameter.default], value, f"{where}: default")
    return value


def _read_constraints(parameter: Parameter, where: str) -> tuple[ValueNotes, ValueNotes]:
    """The constraints of one value, and of the whole; rejects those that mean nothing for the kind."""
    if isinstance(parameter.constraints, str) or not isinstance(parameter.constraints, Sequence):
        raise DeclarationError(f"{where}: constraints={parameter.constraints!r:.40}; use a list, as in [Range(1, 100)]")
    notes = read_notes(parameter.constraints)
    set_ = {name for name in ValueNotes.__struct_fields__ if getattr(notes, name) != getattr(NO_NOTES, name)}
    base = _KINDS[parameter.kind]
    kind = base.get("type", "number")
    many = parameter.cardinality in (Cardinality.LIST, Cardinality.MAP)
    wrong = set_ & _BOUNDS if kind not in ("integer", "number") else set()
    wrong |= set_ & {"pattern"} if kind != "string" or "format" in base else set()
    wrong |= set_ & _LENGTHS if not many and (kind in ("integer", "number", "boolean") or "format" in base) else set()
    if wrong:
        named = ", ".join(sorted(wrong))
        raise DeclarationError(f"{where}: its constraints set {named}, which a {parameter.kind.name} does not have")
    if set_ & {"default", "alias"}:
        raise DeclarationError(f"{where}: pass its default and name as Parameter(name, default=…)")
    if not many:
        return notes, NO_NOTES
    lengths = ValueNotes(min_length=notes.min_length, max_length=notes.max_length)
    return msgspec.structs.replace(notes, min_length=None, max_length=None), lengths


def _check_values(values: Sequence[Json], schema: Mapping[str, Json], where: str) -> None:
    """Reject a default or an allowed value that callers could not send."""
    validator = Validator(schema)
    for value in values:
        try:
            fits = validator.is_valid(msgspec.to_builtins(value))
        except (TypeError, ValueError) as problem:
            raise DeclarationError(f"{where}: {value!r:.40} must be a JSON value ({problem})") from problem
        if not fits:
            shown = {word: bound for word, bound in schema.items() if word in ("type", "format", "enum", "items")}
            raise DeclarationError(f"{where}: {value!r:.40} does not fit {msgspec.json.encode(shown).decode()}")


def _allowed(parameter: Parameter) -> list[Json] | None:
    if parameter.enum is None:
        return None
    if isinstance(parameter.enum, str) or not isinstance(parameter.enum, EnumConstraint | Sequence):
        raise DeclarationError(f"Parameter {parameter.name!r}: enum={parameter.enum!r:.40}; use a list of values")
    return list(parameter.enum.allowed_values if isinstance(parameter.enum, EnumConstraint) else parameter.enum)


def _typed_example(parameter: Parameter) -> Json:
    """Examples may be written as text, as the design does; the schema shows the JSON value."""
    if isinstance(parameter.example, str) and _KINDS[parameter.kind].get("type") != "string":
        try:
            return msgspec.json.decode(parameter.example)
        except msgspec.DecodeError:
            return parameter.example
    return parameter.example
