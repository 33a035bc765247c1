"""The design's tables of types, constraints, names, titles, returns and services, behind every door."""

from __future__ import annotations

from typing import Any

import pytest

from tests.depth import every_case
from tests.server_processes import ROOT
from tests.styles.connections import ERRORS, Answered, Door, codes_of, text_of

pytestmark = every_case

BOARD = ROOT / "tests" / "styles" / "types.py"

UUID = "123e4567-e89b-12d3-a456-426614174000"
DECIMAL = {"anyOf": [{"type": "number"}, {"type": "string", "pattern": r"^[+-]?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?$"}]}
PLACE = {
    "type": "object",
    "properties": {"street": {"type": "string"}, "number": {"type": "integer", "default": 1}},
    "required": ["street"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    ("tool", "schema", "required", "sent", "handed"),
    [
        ("integer", {"type": "integer"}, True, 5, "int 5"),
        ("double", {"type": "number"}, True, 5, "float 5.0"),
        ("decimal", DECIMAL, True, "1.10", "Decimal 1.10"),
        ("decimal", DECIMAL, True, 1.5, "Decimal 1.5"),
        ("string", {"type": "string"}, True, "a", 'str "a"'),
        ("boolean", {"type": "boolean"}, True, True, "bool true"),
        ("nullable_integer", {"type": "integer"}, False, 5, "int 5"),
        ("nullable_integer", {"type": "integer"}, False, None, "NoneType null"),
        ("nullable_double", {"type": "number"}, False, None, "NoneType null"),
        ("nullable_string", {"type": "string"}, False, "a", 'str "a"'),
        ("nullable_string", {"type": "string"}, False, None, "NoneType null"),
        ("timestamp", {"type": "string", "format": "date-time"}, True, "2026-01-31T12:00:00Z", 'datetime "2026-01-31T12:00:00Z"'),
        ("guid", {"type": "string", "format": "uuid"}, True, UUID, f'UUID "{UUID}"'),
        ("choice", {"type": "string", "enum": ["low", "high"]}, True, "low", 'Level "low"'),
        ("array", {"type": "array", "items": {"type": "integer"}}, True, [1, 2], "list [1,2]"),
        ("anything", {"type": "object"}, True, {"a": [1]}, 'dict {"a":[1]}'),
        ("custom", PLACE, True, {"street": "Main"}, 'Place {"street":"Main","number":1}'),
    ],
)  # fmt: skip
def test_a_type_has_its_schema_and_arrives_as_itself(
    door: Door, tool: str, schema: dict[str, Any], required: bool, sent: Any, handed: str
) -> None:
    shown = door.tools[f"types.{tool}"]["inputSchema"]
    assert shown["properties"] == {"value": schema}
    assert ("value" in shown.get("required", [])) is required
    result = door.call(f"types.{tool}", {"value": sent})
    assert (text_of(result), codes_of(result)) == (handed, [])
    if not required:
        assert text_of(door.call(f"types.{tool}", {})) == "NoneType null"


def test_constraints_are_in_the_schema_and_all_violations_are_reported_together(door: Door) -> None:
    assert door.tools["types.constrained"]["inputSchema"]["properties"] == {
        "percent": {"type": "integer", "minimum": 1, "maximum": 100},
        "code": {"type": "string", "minLength": 3, "maxLength": 5, "pattern": "^[A-Z]+$"},
    }
    assert text_of(door.call("types.constrained", {"percent": 100, "code": "ABC"})) == "100 ABC"
    result = door.call("types.constrained", {"percent": 101, "code": "ABCDEF"})
    assert codes_of(result, ERRORS) == ["number_above_maximum", "string_too_long"]
    assert codes_of(door.call("types.constrained", {"percent": 1, "code": "abc"}), ERRORS) == [
        "string_pattern_mismatch"
    ]


@pytest.mark.parametrize(
    ("name", "title", "description"),
    [
        ("add_numbers_tool", "Add Numbers Tool", "Adds two numbers and return result. Example: 5 + 3 = 8"),
        ("http_request", "HTTP Request", None),
        ("positional", "Add Four", "Adds four."),
        ("by_keyword", "Add Four", "Adds four."),
        ("everything", "All Given", "All of it given"),
        ("titled", "Only Title", "Adds four."),
        ("described", "Add Four", "Only description"),
    ],
)
def test_name_title_and_description_are_given_or_found(
    door: Door, name: str, title: str, description: str | None
) -> None:
    tool = door.tools[name]
    assert (tool["title"], tool.get("description")) == (title, description)


@pytest.mark.parametrize("name", ["value", "awaited_value", "hybrid_value", "declared_value"])
def test_a_value_is_wrapped_and_where_declared_structured(door: Door, name: str) -> None:
    result = door.call(f"returns.{name}")
    assert text_of(result) == '{"answer":1}'
    assert result["structuredContent"] == {"answer": 1}
    assert door.tools[f"returns.{name}"]["outputSchema"]["type"] == "object"


@pytest.mark.parametrize("name", ["nothing", "awaited_nothing", "explicit_nothing", "declared_nothing"])
def test_nothing_is_success_with_empty_content(door: Door, name: str) -> None:
    result = door.call(f"returns.{name}")
    assert result["content"] == []
    assert not result.get("isError")


def test_a_raw_message_is_returned_as_it_is(door: Door) -> None:
    assert door.call("returns.message")["content"] == [{"type": "text", "text": "raw"}]
    assert text_of(door.call("returns.awaited_message")) == '{"answer":1}'


def test_an_error_message_is_a_json_rpc_error(door: Door) -> None:
    with pytest.raises(Answered) as refused:
        door.call("returns.error_message")
    assert (refused.value.code, refused.value.message, refused.value.data) == (-32001, "not here", {"where": "there"})


def test_a_declared_tool_sees_its_request_and_answers_with_a_result(door: Door) -> None:
    result = door.call("returns.declared_result", {"limit": "3"})
    name, rest = text_of(result).split(" ", 1)
    assert name == "returns.declared_result"
    assert rest.startswith("{'limit': 3} {\"limit\":")
    assert rest.endswith("['string_literal_converted_to_integer'] False")
    assert result["structuredContent"] == {"limit": 3}
    assert result["_meta"]["mine"] == 1


def test_services_are_injected_and_never_shown(door: Door) -> None:
    assert set(door.tools["special.mixed"]["inputSchema"]["properties"]) == {"key"}
    assert text_of(door.call("special.mixed", {"key": "7"})) == "entry 7"


def test_a_raw_message_and_services_go_together(door: Door) -> None:
    assert door.tools["special.ping"]["inputSchema"] == {"type": "object"}
    assert text_of(door.call("special.ping", {"word": "x"})) == '{"message":"pong x entry 1"}'


def test_special_parameters_come_with_the_call(door: Door) -> None:
    tool = "special.everything_of_the_call"
    assert door.tools[tool]["inputSchema"] == {"type": "object"}
    assert text_of(door.call(tool)) == f"{tool} False False False"


def test_the_output_of_a_connector_is_sent_before_the_result(door: Door) -> None:
    told: list[str] = []
    assert text_of(door.call("special.stream", {"count": 3}, told)) == "whole"
    assert told == ["chunk 0", "chunk 1", "chunk 2", "all sent"]


def test_a_connector_blocks_in_a_thread_and_takes_bytes_of_text(door: Door) -> None:
    told: list[str] = []
    assert text_of(door.call("special.stream_in_a_thread", {}, told)) == "whole"
    assert told == ["text", "and bytes of text: é"]


def test_bytes_that_are_no_text_are_refused_where_there_are_no_binary_streams(door: Door) -> None:
    result = door.call("special.stream_bytes")
    assert result["isError"]
    assert (
        text_of(result)
        == "This call carries text only, and the tool sends bytes; start the call with a stream over /ws"
    )
