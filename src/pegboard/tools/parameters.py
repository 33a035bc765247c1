"""The declared style: parameters as values, and the object a declared tool receives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from hashlib import blake2b
from typing import Any

import msgspec
from msgspec import UNSET, Struct

from pegboard.argument_problems import ParseError, ParseWarning
from pegboard.call import Json
from pegboard.errors import DeclarationError
from pegboard.schema.plain_json import encode
from pegboard.schema.schema_writer import EXACT, new_default
from pegboard.schema.types.constraints import EnumConstraint


class ValueKind(Enum):
    """The type of one value of a parameter."""

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
    """

    name: str
    kind: ValueKind = ValueKind.STRING
    cardinality: Cardinality = Cardinality.SINGLE
    required: bool = True
    description: str = ""
    enum: EnumConstraint | Sequence[Json] | None = None
    example: Json = None
    default: Json = UNSET


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
}


def write_declared(parameters: Sequence[Parameter], where: str, *, private: bool = False) -> dict[str, Json]:
    """The input schema of declared parameters. It is open: unknown names are passed on with a warning.

    `private` adds keywords that only the repair engine reads.
    """
    properties: dict[str, Json] = {}
    for parameter in parameters:
        if not parameter.name or not parameter.name.strip():
            raise DeclarationError(f"{where}: a Parameter has an empty name")
        if any(parameter.name.lower() == other.lower() for other in properties):
            raise DeclarationError(
                f"{where}: two Parameters are called {parameter.name!r}; names must differ in more than case"
            )
        properties[parameter.name] = _write_parameter(
            parameter, f"{where}: Parameter {parameter.name!r}", private=private
        )
    schema: dict[str, Json] = {"type": "object"}
    if properties:
        schema["properties"] = properties
    required = [parameter.name for parameter in parameters if is_required(parameter)]
    if required:
        schema["required"] = required
    return schema


def is_required(parameter: Parameter) -> bool:
    """A parameter with a default may be omitted."""
    return parameter.required and parameter.default is UNSET


def fill_defaults(parameters: Sequence[Parameter], arguments: Mapping[str, Json]) -> Mapping[str, Json]:
    """The arguments with the defaults of omitted ones; optional ones without a default stay absent."""
    missing = {
        parameter.name: new_default(parameter.default)
        for parameter in parameters
        if parameter.default is not UNSET and parameter.name not in arguments
    }
    return {**arguments, **missing} if missing else arguments


def _write_parameter(parameter: Parameter, where: str, *, private: bool) -> dict[str, Json]:
    value: dict[str, Json] = dict(_KINDS[parameter.kind])
    allowed = _allowed(parameter)
    if allowed is not None:
        value["enum"] = allowed
        if private and isinstance(parameter.enum, EnumConstraint) and parameter.enum.case_sensitive:
            value[EXACT] = True
    match parameter.cardinality:
        case Cardinality.LIST:
            value = {"type": "array", "items": value}
        case Cardinality.MAP:
            value = {"type": "object", "additionalProperties": value}
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
    return value


def _allowed(parameter: Parameter) -> list[Json] | None:
    if parameter.enum is None:
        return None
    return list(parameter.enum.allowed_values if isinstance(parameter.enum, EnumConstraint) else parameter.enum)


def _typed_example(parameter: Parameter) -> Json:
    """Examples may be written as text, as the design does; the schema shows the JSON value."""
    if isinstance(parameter.example, str) and _KINDS[parameter.kind]["type"] != "string":
        try:
            return msgspec.json.decode(parameter.example)
        except msgspec.DecodeError:
            return parameter.example
    return parameter.example
