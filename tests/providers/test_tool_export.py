"""Tools as definitions, judged by the providers' own packages, and as Markdown."""

from __future__ import annotations

import logging
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from pegboard.providers.markdown import write_markdown
from pegboard.providers.tool_export import CHARACTERS_PER_TOKEN, FORMATS, ExportOptions, export, export_tools, trim


class Exported(msgspec.Struct):
    name: str
    input_schema: dict[str, Any]
    description: str | None = ""
    title: str | None = ""
    output_schema: dict[str, Any] | None = None


ADD = Exported(
    "add.numbers",
    {
        "type": "object",
        "properties": {
            "a": {"type": "number", "description": "First number. It is added to the second."},
            "b": {"type": "number", "default": 1},
        },
        "required": ["a"],
        "additionalProperties": False,
    },
    "Adds two numbers. The result is a number as well.",
    "Add Numbers",
    {"type": "number"},
)
PING = Exported("ping", {"type": "object", "additionalProperties": False}, None, None)
FREE = Exported("free", {"type": "object", "properties": {"map": {"type": "object"}}}, "Takes a map")
DEEP = Exported(
    "deep",
    {
        "type": "object",
        "properties": {
            "user": {"$ref": "#/$defs/User"},
            "tags": {"type": "array", "items": {"type": "string"}, "minItems": 1},
            "either": {"anyOf": [{"type": "string"}, {"$ref": "#/$defs/User"}]},
            "scores": {"type": "object", "additionalProperties": {"type": "integer"}},
        },
        "required": ["user"],
        "$defs": {
            "User": {
                "type": "object",
                "description": "A person",
                "properties": {
                    "role": {"type": "string", "enum": ["admin", "guest"], "default": "guest"},
                    "boss": {"$ref": "#/$defs/User"},
                },
            }
        },
    },
    "Goes deep",
    "Deep",
    {"type": "object", "properties": {"ok": {"type": "boolean"}}},
)
TOOLS = [ADD, PING, FREE, DEEP]


@pytest.mark.peer
@pytest.mark.parametrize("strict", [True, False])
def test_openai_takes_the_chat_definitions(strict: bool) -> None:
    import openai.types.chat

    definitions = export_tools(TOOLS, "openai", ExportOptions(strict=strict)).definitions
    judge = TypeAdapter(list[openai.types.chat.ChatCompletionToolParam])
    assert judge.validate_python(definitions, strict=True) == definitions


@pytest.mark.peer
@pytest.mark.parametrize("strict", [True, False])
def test_openai_takes_the_responses_definitions(strict: bool) -> None:
    import openai.types.responses

    definitions = export_tools(TOOLS, "openai-responses", ExportOptions(strict=strict)).definitions
    judge = TypeAdapter(list[openai.types.responses.FunctionToolParam])
    assert judge.validate_python(definitions, strict=True) == definitions


@pytest.mark.peer
def test_anthropic_takes_its_definitions() -> None:
    import anthropic.types

    definitions = export_tools(TOOLS, "anthropic").definitions
    judge = TypeAdapter(list[anthropic.types.ToolParam])
    assert judge.validate_python(definitions, strict=True) == definitions
    assert all(definition["input_schema"]["type"] == "object" for definition in definitions)


def test_a_tool_that_cannot_be_said_strictly_is_not_and_the_note_says_why() -> None:
    exported = export_tools(TOOLS, "openai-responses")
    assert {definition["name"]: definition["strict"] for definition in exported.definitions} == {
        "add_numbers": True,
        "ping": True,
        "free": False,
        "deep": False,
    }
    assert "free: not strict, because map accepts any names" in exported.notes
    assert "add.numbers: renamed to add_numbers" in exported.notes
    assert exported.names.name("add_numbers") == "add.numbers"


def test_each_provider_has_its_own_form() -> None:
    def only(form: str) -> dict[str, Any]:
        [definition] = export_tools([PING], form).definitions
        return definition

    empty = {"type": "object", "properties": {}, "additionalProperties": False}
    strict = {**empty, "required": []}
    function = {"name": "ping", "description": "", "parameters": strict, "strict": True}
    assert only("openai") == {"type": "function", "function": function}
    assert only("openai-responses") == {"type": "function", **function}
    assert only("anthropic") == {"name": "ping", "description": "", "input_schema": empty}
    assert only("gemini") == {"name": "ping", "description": ""}
    loose = {"name": "ping", "description": "", "parameters": empty}
    assert only("ollama") == {"type": "function", "function": loose}
    assert only("microsoft-ai") == {"name": "ping", "description": "", "parameters": {}}
    assert only("mcp") == {"name": "ping", "inputSchema": PING.input_schema}
    assert only("json-schema") == {"name": "ping", "input": PING.input_schema, "output": None}


def test_the_protocols_own_form_loses_nothing() -> None:
    [definition] = export_tools([ADD], "mcp").definitions
    assert definition == {
        "name": "add.numbers",
        "title": "Add Numbers",
        "description": ADD.description,
        "inputSchema": ADD.input_schema,
        "outputSchema": ADD.output_schema,
    }


def test_microsoft_parameters_are_flat() -> None:
    [definition] = export_tools([ADD], "microsoft-ai").definitions
    assert definition["parameters"]["b"] == {"type": "number", "description": "", "required": False}


@pytest.mark.parametrize("form", sorted(FORMATS))
def test_a_definition_is_json_and_leaves_the_tool_alone(form: str) -> None:
    before = msgspec.json.encode(TOOLS)
    definitions = export_tools(TOOLS, form).definitions
    assert msgspec.json.decode(msgspec.json.encode(definitions)) == definitions
    assert len(definitions) == len(TOOLS)
    assert msgspec.json.encode(TOOLS) == before


def test_an_unknown_format_names_those_there_are() -> None:
    with pytest.raises(LookupError, match="openai, openai-responses, anthropic"):
        export(TOOLS, "yaml")


def test_what_is_left_out_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "pegboard.tools"):
        assert isinstance(export([ADD], "openai"), list)
    assert "openai export: add.numbers: b: default moved to the description" in caplog.messages


def test_descriptions_are_trimmed_on_request_at_every_depth() -> None:
    [definition] = export_tools([ADD], "anthropic", ExportOptions(description_tokens=8)).definitions
    assert definition["description"] == "Adds two numbers."
    assert definition["input_schema"]["properties"]["a"]["description"] == "First number. It is added…"


def test_values_of_the_author_are_never_trimmed() -> None:
    text = "a long description that is a value and not a description at all"
    tool = Exported("t", {"type": "object", "properties": {"p": {"default": {"description": text}}}})
    [definition] = export_tools([tool], "anthropic", ExportOptions(description_tokens=2)).definitions
    assert definition["input_schema"]["properties"]["p"]["default"] == {"description": text}


@given(st.text(), st.integers(0, 50))
def test_a_trimmed_text_keeps_its_budget_and_begins_as_it_did(text: str, tokens: int) -> None:
    trimmed = trim(text, tokens)
    assert len(trimmed) <= max(tokens * CHARACTERS_PER_TOKEN, 1)
    assert trimmed == text or text.startswith(trimmed.removesuffix("…"))


def test_markdown_tells_a_tool_to_people() -> None:
    assert write_markdown([ADD]) == (
        "## add.numbers\n\n"
        "*Add Numbers*\n\n"
        "Adds two numbers. The result is a number as well.\n\n"
        "Arguments:\n\n"
        "- `a` (required, number): First number. It is added to the second.\n"
        "- `b` (optional, number, default 1)\n\n"
        "Returns number.\n"
    )
    assert export([PING], "markdown") == "## ping\n\nNo arguments.\n"


def test_markdown_follows_references_and_stops_where_they_turn_back() -> None:
    text = write_markdown([DEEP])
    assert "- `user` (required, object): A person" in text
    assert '  - `role` (optional, string, one of "admin" | "guest", default "guest")' in text
    assert "    - `boss` (optional, object): A person" in text
    assert "- `tags` (optional, list of string, minItems 1)" in text
    assert "- `either` (optional, string or object)" in text
    assert "- `scores` (optional, map of integer)" in text
    assert len(text) < 5_000
