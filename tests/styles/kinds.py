"""A board with an echoing tool for every kind of value, in each of the four styles: `magic.boolean`, `declared.list`, …

Each tool answers with the type of the value it was handed and the value as JSON, or "absent".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from enum import Enum
from typing import Annotated, Any, NamedTuple
from uuid import UUID

import msgspec
from msgspec import UNSET, Meta

from pegboard import (
    Board,
    Cardinality,
    EnumConstraint,
    JsonRpcMessage,
    Parameter,
    Tool,
    ToolExecutionContext,
    ValueKind,
)

STYLES = ("magic", "explicit", "declared", "hybrid")


class Color(Enum):
    red = "red"
    dark_blue = "dark-blue"


@dataclass
class Filter:
    field: str
    page_size: int = 10


FILTER = {
    "type": "object",
    "properties": {"field": {"type": "string"}, "page_size": {"type": "integer", "default": 10}},
    "required": ["field"],
    "additionalProperties": False,
}


class Kind(NamedTuple):
    """One kind of value, as each style says it; without a ValueKind, the declared tool has the schema."""

    annotation: Any
    schema: dict[str, Any]
    value: ValueKind | None
    cardinality: Cardinality = Cardinality.SINGLE
    required: bool = True
    default: Any = UNSET
    enum: EnumConstraint | None = None


_URI = Annotated[str, Meta(extra_json_schema={"format": "uri"})]
_COLORS = ["red", "dark-blue"]

KINDS: dict[str, Kind] = {
    "string": Kind(str, {"type": "string"}, ValueKind.STRING),
    "boolean": Kind(bool, {"type": "boolean"}, ValueKind.BOOLEAN),
    "integer": Kind(int, {"type": "integer"}, ValueKind.INTEGER),
    "number": Kind(float, {"type": "number"}, ValueKind.NUMBER),
    "object": Kind(dict[str, Any], {"type": "object"}, ValueKind.JSON_OBJECT),
    "array": Kind(list[Any], {"type": "array"}, ValueKind.JSON_ARRAY),
    "timestamp": Kind(datetime, {"type": "string", "format": "date-time"}, ValueKind.TIMESTAMP),
    "uri": Kind(_URI, {"type": "string", "format": "uri"}, ValueKind.URI),
    "enum": Kind(Color, {"type": "string", "enum": _COLORS}, ValueKind.ENUM_TOKEN, enum=EnumConstraint(_COLORS)),
    "exact": Kind(
        Annotated[str, EnumConstraint(_COLORS, case_sensitive=True)],
        {"type": "string", "enum": _COLORS},
        ValueKind.STRING,
        enum=EnumConstraint(_COLORS, case_sensitive=True),
    ),
    "attachment": Kind(str, {"type": "string"}, ValueKind.ATTACHMENT_REFERENCE),
    "list": Kind(list[str], {"type": "array", "items": {"type": "string"}}, ValueKind.STRING, Cardinality.LIST),
    "integers": Kind(list[int], {"type": "array", "items": {"type": "integer"}}, ValueKind.INTEGER, Cardinality.LIST),
    "map": Kind(
        dict[str, int],
        {"type": "object", "additionalProperties": {"type": "integer"}},
        ValueKind.INTEGER,
        Cardinality.MAP,
    ),
    "optional": Kind(
        int | None, {"type": "integer"}, ValueKind.INTEGER, Cardinality.OPTIONAL, required=False, default=None
    ),
    "optional_text": Kind(
        str | None, {"type": "string"}, ValueKind.STRING, Cardinality.OPTIONAL, required=False, default=None
    ),
    "date": Kind(date, {"type": "string", "format": "date"}, None),
    "time": Kind(time, {"type": "string", "format": "time"}, None),
    "duration": Kind(timedelta, {"type": "string", "format": "duration"}, None),
    "uuid": Kind(UUID, {"type": "string", "format": "uuid"}, None),
    "unique": Kind(set[int], {"type": "array", "items": {"type": "integer"}, "uniqueItems": True}, None),
    "filter": Kind(Filter, FILTER, None),
    "defaulted": Kind(int, {"type": "integer", "default": 7}, ValueKind.INTEGER, required=False, default=7),
}


class Marker:
    """A service, which the hybrid tools take beside their value."""


board = Board("kinds")
board.services.value(Marker, Marker())


def show(value: Any) -> str:
    """What a tool was handed."""
    if value is None or value is UNSET:
        return "absent"
    return f"{type(value).__name__} {msgspec.json.encode(value).decode()}"


def function_of(kind: Kind, *, hybrid: bool) -> Callable[..., Any]:
    async def take(value: Any) -> str:
        return show(value)

    async def take_or_not(value: Any = kind.default) -> str:
        return show(value)

    async def take_with(value: Any, marker: Marker) -> str:
        return show(value) if isinstance(marker, Marker) else "no marker"

    async def take_with_or_not(marker: Marker, value: Any = kind.default) -> str:
        return show(value) if isinstance(marker, Marker) else "no marker"

    if hybrid:
        made: Callable[..., Any] = take_with if kind.default is UNSET else take_with_or_not
    else:
        made = take if kind.default is UNSET else take_or_not
    made.__annotations__ = {"value": kind.annotation, "return": str, **({"marker": Marker} if hybrid else {})}
    return made


def schema_of(kind: Kind) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object", "properties": {"value": kind.schema}}
    return {**schema, "required": ["value"]} if kind.required else schema


async def take_message(request: JsonRpcMessage) -> str:
    return show(request.get("value"))


def declare(kind: Kind) -> Tool:
    if kind.value is None:
        return declare_schema(kind)

    class Declared(Tool):
        parameters = (
            Parameter(
                "value",
                kind.value,
                kind.cardinality,
                required=kind.required,
                description="what to show",
                enum=kind.enum,
                default=UNSET if kind.default is None else kind.default,
            ),
        )

        async def execute(self, context: ToolExecutionContext) -> str:
            return show(context.request.arguments.get("value", UNSET))

    return Declared()


def declare_schema(kind: Kind) -> Tool:
    class Declared(Tool):
        input_schema = schema_of(kind)

        async def execute(self, context: ToolExecutionContext) -> str:
            return show(context.request.arguments.get("value", UNSET))

    return Declared()


for name, each in KINDS.items():
    board.group("magic").add(function_of(each, hybrid=False), name=name)
    board.group("explicit").add(take_message, name=name, input_schema=schema_of(each))
    declared = declare(each)
    declared.name = name
    board.group("declared").add(declared)
    board.group("hybrid").add(function_of(each, hybrid=True), name=name, input_schema=schema_of(each))
