"""Tool calls of every provider read back: real names, repaired arguments, and what was said about them."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from typing import Any

import pytest
from pydantic import TypeAdapter

from pegboard import ToolCatalog, ToolExecutor
from pegboard.providers.provider import READERS, Provider
from pegboard.providers.tool_export import ExportOptions
from pegboard.tools.parameters import Cardinality, Parameter, ToolCallRequest, ToolExecutionContext, ValueKind
from pegboard.tools.tool import Tool, tool_from_function


class MemorySearch(Tool):
    name, description = "memory.search", "Finds notes."
    parameters = (
        Parameter("query", ValueKind.STRING, description="What to find", example="agent state"),
        Parameter("limit", ValueKind.INTEGER, Cardinality.OPTIONAL, required=False, description="How many"),
    )

    async def execute(self, context: ToolExecutionContext) -> str:
        return str(context.request.arguments["query"])


TOOLS = [MemorySearch().prepare()]


def payload(form: str, name: str, arguments: dict[str, Any] | str) -> Any:
    """One call as the provider's HTTP answer has it."""
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    match form:
        case "openai":
            call = {"id": "c1", "type": "function", "function": {"name": name, "arguments": text}}
            return {"choices": [{"message": {"role": "assistant", "content": None, "tool_calls": [call]}}]}
        case "openai-responses":
            call = {"type": "function_call", "id": "fc", "call_id": "c1", "name": name, "arguments": text}
            return {"output": [{"type": "reasoning", "summary": []}, call]}
        case "anthropic":
            block = {"type": "tool_use", "id": "c1", "name": name, "input": arguments}
            return {"role": "assistant", "content": [{"type": "text", "text": "Let me look."}, block]}
        case "gemini":
            part = {"functionCall": {"id": "c1", "name": name, "args": arguments}}
            return {"candidates": [{"content": {"role": "model", "parts": [{"text": "…"}, part]}}]}
        case "ollama":
            call = {"id": "c1", "function": {"name": name, "arguments": arguments}}
            return {"message": {"role": "assistant", "content": "", "tool_calls": [call]}}
    raise AssertionError(form)


def only(form: str, sent: Any) -> ToolCallRequest:
    [request] = Provider(form, TOOLS).parse(sent)
    return request


every_provider = pytest.mark.parametrize("form", sorted(READERS))


@every_provider
def test_a_call_comes_back_under_the_tools_own_name(form: str) -> None:
    provider = Provider(form, TOOLS)
    alias = provider.names.alias("memory.search")
    request = only(form, payload(form, alias, {"query": "a", "limit": 3}))
    assert request.tool_name == "memory.search"
    assert request.tool_call_id == "c1"
    assert request.arguments == {"query": "a", "limit": 3}
    assert json.loads(request.raw_arguments) == {"query": "a", "limit": 3}
    assert (request.warnings, request.errors) == ((), ())


@every_provider
def test_the_tool_repairs_arguments_and_the_repair_is_reported(form: str) -> None:
    request = only(form, payload(form, "memory.search", {"query": "a", "limit": "3"}))
    assert request.arguments == {"query": "a", "limit": 3}
    assert [warning.path for warning in request.warnings] == ["limit"]
    assert json.loads(request.raw_arguments)["limit"] == "3"


@every_provider
def test_arguments_that_cannot_be_repaired_are_errors(form: str) -> None:
    request = only(form, payload(form, "memory.search", {"limit": "many"}))
    assert {error.path for error in request.errors} == {"query", "limit"}


@every_provider
def test_a_null_for_an_optional_argument_means_that_it_is_absent(form: str) -> None:
    request = only(form, payload(form, "memory.search", {"query": "a", "limit": None}))
    assert (dict(request.arguments), request.errors) == ({"query": "a"}, ())


@every_provider
def test_an_unknown_tool_is_read_leniently_and_said(form: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "pegboard.tools.parse"):
        request = only(form, payload(form, "forgotten", {"a": "1"}))
    assert (request.tool_name, request.arguments, request.errors) == ("forgotten", {"a": "1"}, ())
    assert [warning.code for warning in request.warnings] == ["tool_definition_missing"]
    assert "forgotten" in caplog.text


@pytest.mark.parametrize(
    ("text", "code"), [('{"a": ', "json_parse_error"), ("[1]", "arguments_must_be_object"), ("x", "json_parse_error")]
)
def test_an_unknown_tool_with_unreadable_arguments_is_an_error_and_nothing_worse(text: str, code: str) -> None:
    request = only("openai", payload("openai", "forgotten", text))
    assert [error.code for error in request.errors] == [code]
    assert request.raw_arguments == text


def test_text_cut_off_by_the_model_is_an_error_of_a_functions_arguments_too() -> None:
    def look(query: str) -> str:
        """Looks."""
        return query

    [request] = Provider("openai", [tool_from_function(look)]).parse(payload("openai", "look", '{"query": "agent st'))
    assert [error.code for error in request.errors] == ["json_parse_error"]
    assert request.raw_arguments == '{"query": "agent st'


@every_provider
def test_an_answer_without_calls_is_an_empty_list(form: str) -> None:
    provider = Provider(form, TOOLS)
    for nothing in ({}, [], {"content": []}, {"choices": []}, {"message": {"content": "hi"}}, {"candidates": []}):
        assert provider.parse(nothing) == []


@every_provider
def test_every_part_of_an_answer_will_do(form: str) -> None:
    whole = payload(form, "memory.search", {"query": "a"})
    parts: list[Any] = {
        "openai": lambda: [whole["choices"][0]["message"], whole["choices"][0]["message"]["tool_calls"]],
        "openai-responses": lambda: [whole["output"], whole["output"][1]],
        "anthropic": lambda: [whole["content"], whole["content"][1]],
        "gemini": lambda: [whole["candidates"][0]["content"], whole["candidates"][0]["content"]["parts"]],
        "ollama": lambda: [whole["message"], whole["message"]["tool_calls"]],
    }[form]()
    for part in (whole, *parts):
        assert only(form, part).arguments == {"query": "a"}


@pytest.mark.peer
def test_the_objects_of_openais_package_are_read_too() -> None:
    import openai.types.chat
    import openai.types.responses

    message = payload("openai", "memory_search", {"query": "a"})["choices"][0]["message"]
    assert only("openai", openai.types.chat.ChatCompletionMessage.model_validate(message)).tool_call_id == "c1"
    item = payload("openai-responses", "memory_search", {"query": "a"})["output"][1]
    call = openai.types.responses.ResponseFunctionToolCall.model_validate(item)
    assert only("openai-responses", [call]).arguments == {"query": "a"}
    assert only("openai-responses", {"output": [call]}).tool_call_id == "c1"


@pytest.mark.peer
def test_the_objects_of_anthropics_package_are_read_too() -> None:
    import anthropic.types

    block = payload("anthropic", "memory_search", {"query": "a"})["content"][1]
    assert only("anthropic", [anthropic.types.ToolUseBlock.model_validate(block)]).tool_name == "memory.search"


def test_the_old_function_call_of_openai_is_read() -> None:
    request = only("openai", {"function_call": {"name": "memory_search", "arguments": '{"query":"a"}'}})
    assert request.arguments == {"query": "a"}


def test_a_custom_call_of_openai_is_read() -> None:
    request = only(
        "openai", [{"id": "c9", "type": "custom", "custom": {"name": "memory_search", "input": '{"query":"a"}'}}]
    )
    assert (request.tool_call_id, request.arguments) == ("c9", {"query": "a"})


def test_accumulated_anthropic_text_is_parsed_and_empty_text_means_no_arguments() -> None:
    sent = payload("anthropic", "memory_search", '{"query": "a"}')
    assert only("anthropic", sent).arguments == {"query": "a"}
    assert [error.path for error in only("anthropic", payload("anthropic", "memory_search", "")).errors] == ["query"]


def test_the_events_of_an_anthropic_stream_add_up() -> None:
    start = {"type": "tool_use", "id": "c1", "name": "memory_search", "input": {}}
    events = [
        {"type": "message_start", "message": {}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hm"}},
        {"type": "content_block_start", "index": 1, "content_block": start},
        {"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": '{"que'}},
        {"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": 'ry":"a"}'}},
        {"type": "content_block_stop", "index": 1},
    ]
    request = only("anthropic", events)
    assert (request.arguments, request.raw_arguments) == ({"query": "a"}, '{"query":"a"}')


def test_a_provider_without_ids_gets_them_by_place() -> None:
    parts = [{"functionCall": {"name": "memory.search", "args": {"query": "a"}}} for _ in range(2)]
    ids = [request.tool_call_id for request in Provider("gemini", TOOLS).parse(parts)]
    assert ids == ["memory.search-0", "memory.search-1"]


def test_gemini_calls_in_the_spelling_of_its_package_are_read() -> None:
    assert (
        only("gemini", {"parts": [{"function_call": {"name": "memory.search", "args": {"query": "a"}}}]}).errors == ()
    )


@pytest.mark.peer
def test_answers_are_what_the_providers_packages_take() -> None:
    import anthropic.types
    import openai.types.chat

    request = ToolCallRequest(tool_name="memory.search", tool_call_id="c1")
    chat = Provider("openai", TOOLS).answer(request, "found")
    TypeAdapter(openai.types.chat.ChatCompletionToolMessageParam).validate_python(chat)
    block = Provider("anthropic", TOOLS).answer(request, "failed", is_error=True)
    TypeAdapter(anthropic.types.ToolResultBlockParam).validate_python(block)
    assert block["is_error"] is True
    item = Provider("openai-responses", TOOLS).answer(request, "found")
    assert item == {"type": "function_call_output", "call_id": "c1", "output": "found"}
    part = Provider("gemini", TOOLS).answer(request, "found")
    assert part == {"functionResponse": {"name": "memory.search", "response": {"output": "found"}}}
    assert Provider("ollama", TOOLS).answer(request, "found")["tool_name"] == "memory.search"


def test_an_unknown_provider_names_those_there_are() -> None:
    with pytest.raises(LookupError, match="openai, openai-responses, anthropic, gemini, ollama"):
        Provider("markdown", TOOLS)


def test_definitions_and_notes_come_with_the_provider() -> None:
    provider = Provider("openai", TOOLS)
    assert provider.definitions[0]["function"]["name"] == "memory_search"
    assert "memory.search: renamed to memory_search" in provider.notes


def test_a_strict_call_that_says_null_for_a_default_gets_the_default() -> None:
    def add(a: float, b: float = 2.5, note: str | None = None) -> float:
        return a + b

    provider = Provider("openai", [tool_from_function(add)])
    [definition] = provider.definitions
    assert definition["function"]["strict"] is True
    assert definition["function"]["parameters"]["required"] == ["a", "b", "note"]
    [request] = provider.parse(payload("openai", "add", {"a": 1, "b": None, "note": None}))
    assert (request.arguments, request.errors) == ({"a": 1.0, "b": 2.5, "note": None}, ())


@dataclass
class Page:
    size: int = 10
    after: str | None = None


@pytest.mark.parametrize("form", ["openai", "openai-responses"])
async def test_a_null_that_a_strict_definition_requires_is_not_a_repair(form: str) -> None:
    def add(a: float, b: float = 2.5, pages: list[Page] | None = None) -> str:
        return f"{a + b} {pages}"

    tools = ToolCatalog([add])
    provider = Provider(form, tools)
    sent = '{"a": 1.10, "b": null, "pages": [{"size": null, "after": null}]}'
    [request] = provider.parse(payload(form, "add", sent))
    assert (request.warnings, request.errors) == ((), ())
    assert "1.10" in request.raw_arguments
    record = await ToolExecutor(tools).execute(request)
    assert (record.result, record.warnings) == ("3.6 [Page(size=10, after=None)]", ())
    [repaired] = provider.parse(payload(form, "add", '{"a": "1", "b": null, "pages": null}'))
    assert [warning.code for warning in repaired.warnings] == ["string_literal_converted_to_number"]


def test_a_null_where_the_definition_is_not_strict_is_reported() -> None:
    def add(a: float, b: float = 2.5) -> float:
        return a + b

    for provider in (
        Provider("anthropic", [tool_from_function(add)]),
        Provider("openai", [tool_from_function(add)], ExportOptions(strict=False)),
    ):
        [request] = provider.parse(payload(provider.name, "add", {"a": 1, "b": None}))
        assert [warning.code for warning in request.warnings] == ["null_replaced_by_default"]
