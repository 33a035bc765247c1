"""Declared parameters and their schema."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, Any

import msgspec
import pytest

from pegboard.errors import DeclarationError
from pegboard.schema.types.constraints import EnumConstraint
from pegboard.tools.parameters import (
    Cardinality,
    Parameter,
    ToolCallRequest,
    ToolExecutionContext,
    ValueKind,
    read_declared,
    write_declared,
)
from pegboard.tools.signature import schema_of as schema_of_type
from pegboard.tools.tool import Tool, tool_from_function
from tests.depth import every_case

pytestmark = every_case

# Every kind of value the design names.
KINDS: list[tuple[ValueKind, dict[str, Any]]] = [
    (ValueKind.STRING, {"type": "string"}),
    (ValueKind.BOOLEAN, {"type": "boolean"}),
    (ValueKind.INTEGER, {"type": "integer"}),
    (ValueKind.NUMBER, {"type": "number"}),
    (ValueKind.JSON_OBJECT, {"type": "object"}),
    (ValueKind.JSON_ARRAY, {"type": "array"}),
    (ValueKind.TIMESTAMP, {"type": "string", "format": "date-time"}),
    (ValueKind.URI, {"type": "string", "format": "uri"}),
    (ValueKind.ENUM_TOKEN, {"type": "string"}),
    (ValueKind.ATTACHMENT_REFERENCE, {"type": "string"}),
    (ValueKind.INT32, {"type": "integer", "minimum": -2147483648, "maximum": 2147483647}),
    (ValueKind.INT64, {"type": "integer", "minimum": -9223372036854775808, "maximum": 9223372036854775807}),
    (ValueKind.FLOAT32, {"type": "number", "minimum": -3.4028234663852886e38, "maximum": 3.4028234663852886e38}),
    (ValueKind.FLOAT64, {"type": "number"}),
    (ValueKind.DECIMAL, schema_of_type(Decimal)),
]


def schema_of(parameter: Parameter) -> Any:
    return write_declared([parameter], "here")["properties"][parameter.name]


def test_every_kind_is_listed() -> None:
    assert [kind for kind, _ in KINDS] == list(ValueKind)


@pytest.mark.parametrize(("kind", "schema"), KINDS)
def test_a_kind_has_this_schema_in_every_cardinality(kind: ValueKind, schema: dict[str, Any]) -> None:
    assert schema_of(Parameter("p", kind)) == schema
    assert schema_of(Parameter("p", kind, Cardinality.OPTIONAL, required=False)) == schema
    assert schema_of(Parameter("p", kind, Cardinality.LIST)) == {"type": "array", "items": schema}
    assert schema_of(Parameter("p", kind, Cardinality.MAP)) == {"type": "object", "additionalProperties": schema}


def test_required_alone_decides_what_may_be_left_out() -> None:
    parameters = [
        Parameter("a", ValueKind.STRING),
        Parameter("b", ValueKind.STRING, Cardinality.OPTIONAL),
        Parameter("c", ValueKind.STRING, required=False),
        Parameter("d", ValueKind.STRING, default="x"),
    ]
    schema = write_declared(parameters, "here")
    assert schema["required"] == ["a", "b"]
    assert "additionalProperties" not in schema
    assert read_declared(parameters, {"a": "1"}) == {"a": "1", "d": "x"}
    assert read_declared(parameters, {"d": "1"}) == {"d": "1"}


@pytest.mark.parametrize("enum", [["a", "b"], EnumConstraint(["a", "b"])])
def test_the_values_allowed_stand_in_the_schema_of_any_kind(enum: Any) -> None:
    assert schema_of(Parameter("p", ValueKind.ENUM_TOKEN, enum=enum)) == {"type": "string", "enum": ["a", "b"]}
    assert schema_of(Parameter("p", ValueKind.STRING, Cardinality.LIST, enum=enum)) == {
        "type": "array",
        "items": {"type": "string", "enum": ["a", "b"]},
    }


def test_an_enum_constraint_allows_something() -> None:
    with pytest.raises(ValueError, match="at least one allowed value"):
        EnumConstraint([])


def test_examples_written_as_text_are_shown_as_values() -> None:
    assert schema_of(Parameter("p", ValueKind.INTEGER, example="3"))["examples"] == [3]
    assert schema_of(Parameter("p", ValueKind.INTEGER, example="three"))["examples"] == ["three"]
    assert schema_of(Parameter("p", ValueKind.STRING, example="3"))["examples"] == ["3"]


def test_no_parameters_take_any_object() -> None:
    assert write_declared([], "here") == {"type": "object", "properties": {}}


@pytest.mark.parametrize(
    ("parameters", "says"),
    [
        ([Parameter("", ValueKind.STRING)], "here: a Parameter has an empty name"),
        ([Parameter("a", ValueKind.STRING), Parameter("A", ValueKind.STRING)], "two Parameters are called 'A'"),
        (
            [Parameter("a", ValueKind.STRING, default=object())],
            "Parameter 'a': its example, default and enum must be JSON",
        ),
    ],
)
def test_parameters_that_cannot_work_are_refused(parameters: list[Parameter], says: str) -> None:
    with pytest.raises(DeclarationError, match=says):
        write_declared(parameters, "here")


def test_a_context_has_an_environment_that_is_empty_by_default() -> None:
    context = ToolExecutionContext(ToolCallRequest(tool_name="x"))
    assert context.environment == {}
    assert (context.request.arguments, context.request.warnings, context.request.errors) == ({}, (), ())


@pytest.mark.parametrize("sent", ["Red", "RED", "r-ed"])
def test_a_case_sensitive_choice_takes_its_own_spelling_alone(sent: str) -> None:
    class Paint(Tool):
        name = "paint"
        parameters = (Parameter("color", ValueKind.ENUM_TOKEN, enum=EnumConstraint(["red"], case_sensitive=True)),)

        async def execute(self, context: ToolExecutionContext) -> str:
            return str(context.request.arguments["color"])

    paint = Paint().prepare()
    [error] = paint.parse(msgspec.json.encode({"color": sent})).errors
    assert error.code == "enum_out_of_range"
    parsed = paint.parse(b'{"color": " red "}')
    assert parsed.arguments == {"color": "red"}
    assert [warning.code for warning in parsed.warnings] == ["enum_token_matched"]


def test_a_case_sensitive_choice_of_a_function_takes_its_own_spelling_alone() -> None:
    def paint(color: Annotated[str, EnumConstraint(["red", "RED"], case_sensitive=True)]) -> str:
        return color

    [error] = tool_from_function(paint).parse(b'{"color": "Red"}').errors
    assert error.code == "enum_out_of_range"
