"""The examples of the design documents, as Python files in examples/seeds, run as a client would."""

from __future__ import annotations

import importlib
import json
import logging
import runpy
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from pegboard import Board, Client, Middleware
from pegboard.errors import InvalidParams

FOLDER = Path(__file__).resolve().parents[1] / "examples" / "seeds"


def load(name: str) -> Any:
    """A fresh copy of an example, since some of them keep state."""
    return importlib.reload(importlib.import_module(f"examples.seeds.{name}"))


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.py")), ids=lambda path: path.stem)
def test_every_example_can_be_imported_as_a_file(path: Path) -> None:
    assert runpy.run_path(str(path), run_name="example")["__doc__"]


# -- 000: the hybrid tool API ------------------------------------------------------------------------------------------


async def test_names_titles_descriptions_and_schemas_are_those_of_the_document() -> None:
    async with Client(load("hybrid_tool_api").board) as client:
        tools = {tool["name"]: tool for tool in await client.list_tools()}
    magic = tools["add_numbers_tool"]
    assert magic["title"] == "Add Numbers Tool"
    assert magic["description"] == tools["add_numbers"]["description"]
    assert magic["inputSchema"]["properties"] == {"number1": {"type": "number"}, "number2": {"type": "number"}}
    assert magic["inputSchema"]["required"] == ["number1", "number2"]
    assert tools["greet"]["inputSchema"]["required"] == ["name"]
    assert list(tools["get_user"]["inputSchema"]["properties"]) == ["user_id"]
    assert tools["divide"]["inputSchema"]["properties"] == {
        "numerator": {"type": "number", "description": "Numerator"},
        "denominator": {
            "type": "number",
            "description": "Denominator (cannot be zero)",
            "minimum": 0.001,
            "maximum": 1.7976931348623157e308,
        },
    }


@pytest.mark.parametrize(
    ("name", "arguments", "text"),
    [
        ("add_numbers", {"number1": 5, "number2": 3}, '{"result":8.0}'),
        ("add_numbers_tool", {"number1": 5, "number2": 3}, "8"),
        ("add_by_property", {"a": 1, "b": 2}, "3"),
        ("add", {"a": 1, "b": 2}, "3"),
        ("greet", {"name": "Ada"}, "Hello, Ada!"),
        ("greet", {"name": "Ada", "prefix": "Good day,"}, "Good day, Ada!"),
        ("divide", {"numerator": 1, "denominator": 4}, "0.25"),
        ("forget", {}, ""),
        ("get_user", {"user_id": 7}, '{"id":7,"name":"Ada"}'),
        ("ping", {}, '{"message":"Pong"}'),
        ("complex_query", {"filters": ["a"], "options": {}}, '{"rows":1,"order":"none"}'),
        ("multiply", {"number1": 5, "number2": 3}, '{"result":15.0}'),
    ],
)
async def test_both_styles_coexist(name: str, arguments: dict[str, Any], text: str) -> None:
    async with Client(load("hybrid_tool_api").board) as client:
        result = await client.call(name, arguments)
    assert (result.is_error, result.text) == (False, text)


# -- 001: lifecycle hooks ----------------------------------------------------------------------------------------------


async def test_the_middleware_of_the_document_runs(caplog: pytest.LogCaptureFixture) -> None:
    example = load("lifecycle_hooks")
    async with Client(example.board) as client:
        with caplog.at_level(logging.INFO):
            assert (await client.call("my_tool", {"value": "Ada"})).text == "Hello, Ada"
        assert "my_tool" in caplog.text
        for left in (True, True, False):
            result = await client.call("query", {"table": "users"})
            assert result.is_error is not left
        assert result.text == "Rate limit exceeded for tool 'query'"
        assert (await client.call("sensitive_read", {"token": "wrong"})).text == "Not allowed"
        assert (await client.call("sensitive_read", {"token": "secret"})).text == "the answer"
    assert [entry.tool_name for entry in example.entries] == ["my_tool", "query", "query", "sensitive_read"]
    assert example.entries[0].parameters == {"value": "Ada"}
    assert example.database.transactions == 3
    assert list(example.metrics.executions) == ["my_tool", "query", "sensitive_read"]


async def test_an_error_in_an_error_hook_is_logged_and_breaks_nothing(caplog: pytest.LogCaptureFixture) -> None:
    example = load("lifecycle_hooks")
    board, first, second = Board(), example.ErrorMiddleware(), example.ErrorMiddleware()
    board.use(first, second)

    @board.tool
    def fail() -> None:
        raise KeyError("x")

    async with Client(board) as client:
        assert (await client.call("fail")).is_error
    assert first.handled == second.handled == ["KeyError"]
    assert "logged by the board, and not raised" in caplog.text


async def test_the_test_of_the_document_with_a_mock() -> None:
    example = load("lifecycle_hooks")
    middleware = Mock(spec=Middleware)
    middleware.enabled, middleware.order = True, 1
    tool = example.MyTool(logging.getLogger("example"), middleware)
    board = Board()
    board.add(tool)
    async with Client(board) as client:
        await client.call("my_tool", {"value": "test"})
    middleware.before.assert_called_once()
    middleware.after.assert_called_once()
    (call, result, elapsed_ms) = middleware.after.call_args.args
    assert (call.name, call.arguments) == ("my_tool", {"value": "test"})
    assert result["content"][0]["text"] == "Hello, test"
    assert elapsed_ms >= 0


# -- 002: tool names ---------------------------------------------------------------------------------------------------


def test_names_are_generated_and_parsed_as_the_document_says() -> None:
    example = load("tool_naming")
    for parts, name in example.GENERATED.items():
        assert example.generate_tool_name(*parts) == name
    for name, parts in example.PARSED.items():
        assert example.parse_tool_name(name) == parts


async def test_tools_are_registered_and_called_under_their_qualified_names() -> None:
    async with Client(load("tool_naming").gateway) as client:
        tools = {tool["name"]: tool for tool in await client.list_tools()}
        assert list(tools) == ["dev__filesystem__read_file", "dev__filesystem__my__special__tool"]
        read = tools["dev__filesystem__read_file"]
        assert read["description"] == "[dev/filesystem] Reads a file"
        assert {"source_server": "filesystem", "toolbox_name": "dev", "original_name": "read_file"}.items() <= read[
            "_meta"
        ].items()
        assert (await client.call("dev__filesystem__read_file", {"path": "a"})).text == "the text of a"
        assert (await client.call("dev__filesystem__my__special__tool")).text == "special"
        with pytest.raises(InvalidParams) as old_format:
            await client.call("dev__filesystem_read_file", {"path": "a"})
    assert "Expected format: {toolbox}__{server}__{tool}" in old_format.value.message


async def test_proxy_mode_calls_the_same_names() -> None:
    async with Client(load("tool_naming").proxy) as client:
        named = {"toolbox_name": "dev", "tool_name": "dev__filesystem__read_file", "arguments": {"path": "a"}}
        assert (await client.call("workbench_use_tool", named)).text == "the text of a"
        wrong = await client.call("workbench_use_tool", {**named, "tool_name": "dev__filesystem_read_file"})
        assert wrong.is_error
        assert "Expected format: {toolbox}__{server}__{tool}" in wrong.text


# -- 003: the tool framework -------------------------------------------------------------------------------------------


def called(example: Any, name: str, arguments: dict[str, Any]) -> list[dict[str, Any]]:
    function = {"name": example.provider.names.alias(name), "arguments": json.dumps(arguments)}
    return [{"id": "1", "type": "function", "function": function}]


async def test_the_declared_tool_of_the_document_runs() -> None:
    example = load("tool_framework")
    (record,) = (await example.run(called(example, "memory.search", {"query": "state", "limit": "5"}))).records
    assert (record.status, record.result, record.metadata["query"]) == ("success", "命中 5 条记录", "state")
    assert [warning.code for warning in record.warnings] == ["string_literal_converted_to_integer"]
    (record,) = (await example.run(called(example, "memory.search", {"query": "state"}))).records
    assert record.result == "命中 3 条记录"


@pytest.mark.parametrize(
    ("sent", "value", "warns"),
    [
        ({"flag": "true"}, True, True),
        ({"flag": 1}, True, True),
        ({"text": True}, "true", True),
        ({"text": "true"}, "true", False),
        ({"count": "42"}, 42, True),
        ({"count": 42.7}, 42, True),
        ({"options": '{"a":1}'}, {"a": 1}, True),
        ({"tags": "foo"}, ["foo"], True),
        ({"link": "not absolute"}, "not absolute", True),
        ({"level": "INFO"}, "info", True),
    ],
)
async def test_the_contract_with_providers_holds(sent: dict[str, Any], value: Any, warns: bool) -> None:
    example = load("tool_framework")
    (record,) = (await example.run(called(example, "diagnostics", sent))).records
    assert record.status == "success"
    (given,) = record.metadata["arguments"].values()
    assert given == value
    assert bool(record.warnings) is warns
    assert record.metadata["session"] == "debug"


@pytest.mark.parametrize("sent", [{"since": "tomorrow"}, {"level": "loud"}, {"count": "many"}, {"options": "{"}])
async def test_what_cannot_be_parsed_is_an_error_and_the_tool_does_not_run(sent: dict[str, Any]) -> None:
    example = load("tool_framework")
    (record,) = (await example.run(called(example, "diagnostics", sent))).records
    assert (record.status, record.metadata["error"]) == ("failed", "invalid_arguments")
    assert record.errors


async def test_a_tool_without_a_definition_is_parsed_with_a_warning() -> None:
    example = load("tool_framework")
    call = {"id": "1", "type": "function", "function": {"name": "missing", "arguments": '{"a": 1}'}}
    (record,) = (await example.run([call])).records
    assert (record.status, record.metadata["error"]) == ("failed", "handler_not_found")
    assert [warning.code for warning in record.warnings] == ["tool_definition_missing"]
