"""The five examples of the design, as examples/styles.py writes them, behind every door."""

from __future__ import annotations

from typing import Any

import pytest

from pegboard import Board, JsonRpcMessage
from pegboard.errors import DeclarationError
from tests.server_processes import ROOT
from tests.styles.connections import ERRORS, Answered, Door, codes_of, text_of

BOARD = ROOT / "examples" / "styles.py"

NUMBER = {"type": "number"}


def schema(door: Door, name: str) -> dict[str, Any]:
    shown: dict[str, Any] = door.tools[name]["inputSchema"]
    return shown


def test_a_simple_magic_tool(door: Door) -> None:
    tool = door.tools["add"]
    assert (tool["title"], tool["description"]) == ("Add", "Adds two numbers.")
    assert schema(door, "add") == {
        "type": "object",
        "properties": {"a": NUMBER, "b": NUMBER},
        "required": ["a", "b"],
        "additionalProperties": False,
    }
    result = door.call("add", {"a": 5, "b": 3})
    assert (text_of(result), result["structuredContent"]) == ("8", 8)


def test_a_magic_tool_with_an_optional_parameter(door: Door) -> None:
    assert schema(door, "greet")["required"] == ["name"]
    assert set(schema(door, "greet")["properties"]) == {"name", "prefix"}
    assert text_of(door.call("greet", {"name": "Ada"})) == "Hello, Ada!"
    assert text_of(door.call("greet", {"name": "Ada", "prefix": "Dear"})) == "Dear Ada!"
    assert text_of(door.call("greet", {"name": "Ada", "prefix": None})) == "Hello, Ada!"


def test_a_magic_tool_with_services(door: Door) -> None:
    assert set(schema(door, "get_user")["properties"]) == {"user_id"}
    assert door.call("get_user", {"user_id": 1})["structuredContent"] == {"id": 1, "name": "Ada"}


@pytest.mark.parametrize("name", ["repo", "log"])
def test_a_caller_cannot_send_a_service(door: Door, name: str) -> None:
    result = door.call("get_user", {"user_id": 1, name: "mine"})
    assert result["isError"]
    assert codes_of(result, ERRORS) == ["unknown_parameter"]


def test_a_hybrid_tool_with_a_corrected_schema_repairs_arguments(door: Door) -> None:
    assert set(schema(door, "complex_query")["properties"]) == {"filters", "options"}
    result = door.call("complex_query", {"filters": ["a", "b"], "options": '{"order": "RISING"}'})
    assert result["structuredContent"] == {"rows": 2, "order": "rising"}
    assert codes_of(result) == ["string_literal_converted_to_object", "enum_token_matched"]


def test_the_schema_of_the_hybrid_example_as_printed_is_refused() -> None:
    def complex_query(request: JsonRpcMessage) -> None:
        """Never hung."""

    printed = {"type": "object", "properties": [{"filters": {"type": "array"}}, {"options": {"type": "object"}}]}
    with pytest.raises(DeclarationError, match=r"test_examples\.py:\d+.*properties"):
        Board().tool("complex_query", input_schema=printed)(complex_query)


def test_everything_explicit(door: Door) -> None:
    tool = door.tools["add_numbers"]
    assert tool["title"] == "Add Numbers"
    assert tool["description"] == "Adds two numbers and return result. Example: 5 + 3 = 8"
    assert tool["inputSchema"] == {
        "type": "object",
        "properties": {
            "number1": {"type": "number", "description": "First number"},
            "number2": {"type": "number", "description": "Second number"},
        },
        "required": ["number1", "number2"],
    }
    assert text_of(door.call("add_numbers", {"number1": 5, "number2": 3})) == '{"result":8.0}'


def test_a_declared_tool(door: Door) -> None:
    assert schema(door, "memory.search") == {
        "type": "object",
        "properties": {
            "query": {
                "type": "string",
                "description": "Words to look for",
                "examples": ["agent state consistency"],
            },
            "limit": {"type": "integer", "description": "How many notes to return at most", "examples": [3]},
        },
        "required": ["query"],
    }
    assert text_of(door.call("memory.search", {"query": "agents"})) == "3 notes about agents"
    assert text_of(door.call("memory.search", {"query": "agents", "limit": "5"})) == "5 notes about agents"


def test_constraints_and_descriptions_are_in_the_schema_and_hold(door: Door) -> None:
    assert schema(door, "divide") == {
        "type": "object",
        "properties": {
            "numerator": {"type": "number", "description": "Numerator"},
            "denominator": {
                "type": "number",
                "description": "Denominator (cannot be zero)",
                "minimum": 0.001,
                "maximum": 1.7976931348623157e308,
            },
        },
        "required": ["numerator", "denominator"],
        "additionalProperties": False,
    }
    assert text_of(door.call("divide", {"numerator": 1, "denominator": 4})) == "0.25"
    assert codes_of(door.call("divide", {"numerator": 1, "denominator": 0}), ERRORS) == ["number_below_minimum"]


def test_an_unknown_tool_is_refused_with_the_closest_names(door: Door) -> None:
    with pytest.raises(Answered) as refused:
        door.call("memory.serch", {"query": "x"})
    assert refused.value.code == -32602
    assert refused.value.data == {"suggestions": ["memory.search"]}
