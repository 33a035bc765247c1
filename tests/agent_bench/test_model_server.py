"""The scripted model server, as the client libraries of the model APIs and a plain agent see it."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from agent_bench.cases import CASES, Case
from agent_bench.model_server.scripted_server import ScriptedServer
from agent_bench.play import DONE, Play

SCHEMA = {"type": "object", "properties": {"a": {"type": "number"}}}
CASE = Case("add", "a call", "add", {"a": 2}, {"result": "5"})


@pytest.fixture
def play() -> Play:
    return Play([CASE])


@pytest.fixture
def model(play: Play) -> Iterator[ScriptedServer]:
    with ScriptedServer(play).running() as server:
        yield server


def post(url: str, body: Any) -> Any:
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=20) as response:
        return response.read().decode()


@pytest.mark.peer
@pytest.mark.parametrize("stream", [False, True])
def test_it_speaks_anthropic_messages(model: ScriptedServer, play: Play, stream: bool) -> None:
    import anthropic

    tools: Any = [{"name": "mcp__bench__add", "description": "Adds", "input_schema": SCHEMA}]
    messages: list[Any] = [{"role": "user", "content": "go"}]
    with anthropic.Anthropic(base_url=model.url, api_key="no-key") as client:

        def ask() -> Any:
            options: Any = {"model": "m", "max_tokens": 99, "tools": tools, "messages": messages}
            if not stream:
                return client.messages.create(**options)
            with client.messages.stream(**options) as events:
                return events.get_final_message()

        call = ask()
        (block,) = call.content
        assert (call.stop_reason, block.name, block.input) == ("tool_use", "mcp__bench__add", {"a": 2})
        result = {"type": "tool_result", "tool_use_id": block.id, "content": "5", "is_error": True}
        messages += [{"role": "assistant", "content": call.content}, {"role": "user", "content": [result]}]
        assert ask().content[0].text == DONE
    assert (play.seen["add"].text, play.seen["add"].is_error) == ("5", True)


@pytest.mark.peer
@pytest.mark.parametrize("stream", [False, True])
def test_it_speaks_openai_chat_completions(model: ScriptedServer, play: Play, stream: bool) -> None:
    import openai

    tools: Any = [{"type": "function", "function": {"name": "add", "parameters": SCHEMA}}]
    messages: list[Any] = [{"role": "user", "content": "go"}]
    with openai.OpenAI(base_url=f"{model.url}/v1", api_key="no-key") as client:

        def ask() -> Any:
            options: Any = {"model": "m", "tools": tools, "messages": messages}
            if not stream:
                return client.chat.completions.create(**options).choices[0].message
            with client.chat.completions.stream(**options) as events:
                return events.get_final_completion().choices[0].message

        (call,) = ask().tool_calls
        assert (call.function.name, json.loads(call.function.arguments)) == ("add", {"a": 2})
        function = {"name": "add", "arguments": call.function.arguments}
        asked = {"role": "assistant", "tool_calls": [{"id": call.id, "type": "function", "function": function}]}
        image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
        messages += [
            asked,
            {"role": "tool", "tool_call_id": call.id, "content": "5"},
            {"role": "user", "content": [image]},
        ]
        assert ask().content == DONE
    assert [(part.kind, part.text) for part in play.seen["add"].parts] == [("text", "5"), ("image", "image/png")]


@pytest.mark.peer
@pytest.mark.parametrize("stream", [False, True])
def test_it_speaks_openai_responses(model: ScriptedServer, play: Play, stream: bool) -> None:
    import openai

    tools: Any = [{"type": "function", "name": "add", "parameters": SCHEMA, "strict": False}]
    items: list[Any] = [{"role": "user", "content": "go"}]
    with openai.OpenAI(base_url=f"{model.url}/v1", api_key="no-key") as client:

        def ask() -> Any:
            options: Any = {"model": "m", "tools": tools, "input": items}
            if not stream:
                return client.responses.create(**options)
            with client.responses.stream(**options) as events:
                return events.get_final_response()

        (call,) = ask().output
        assert (call.type, call.name, json.loads(call.arguments)) == ("function_call", "add", {"a": 2})
        items += [
            {"type": "function_call", "call_id": call.call_id, "name": "add", "arguments": call.arguments},
            {"type": "function_call_output", "call_id": call.call_id, "output": "5"},
        ]
        assert ask().output_text == DONE
    assert play.seen["add"].text == "5"


def test_tools_in_a_namespace_are_called_in_it(model: ScriptedServer) -> None:
    tools = [{"type": "namespace", "name": "mcp__bench", "tools": [{"type": "function", "name": "add"}]}]
    answer = json.loads(post(f"{model.url}/v1/responses", {"tools": tools, "input": "go"}))
    assert (answer["output"][0]["namespace"], answer["output"][0]["name"]) == ("mcp__bench", "add")


@pytest.mark.parametrize("method", ["generateContent", "streamGenerateContent"])
def test_it_speaks_gemini(model: ScriptedServer, play: Play, method: str) -> None:
    def ask(contents: list[Any]) -> Any:
        tools = [{"functionDeclarations": [{"name": "add", "parametersJsonSchema": SCHEMA}]}]
        text = post(f"{model.url}/v1beta/models/m:{method}?alt=sse", {"tools": tools, "contents": contents})
        return json.loads(text.removeprefix("data: "))["candidates"][0]["content"]

    user = {"role": "user", "parts": [{"text": "go"}]}
    call = ask([user])
    assert call["parts"][0]["functionCall"] == {"name": "add", "args": {"a": 2}}
    response = {"functionResponse": {"name": "add", "response": {"output": "5"}}}
    assert ask([user, call, {"role": "user", "parts": [response]}])["parts"] == [{"text": DONE}]
    assert play.seen["add"].text == '{"output": "5"}'


def test_every_request_is_recorded_and_an_unknown_one_is_answered(model: ScriptedServer) -> None:
    with pytest.raises(urllib.error.HTTPError) as rejected:
        post(f"{model.url}/v1/other", {"a": 1})
    rejected.value.close()
    assert rejected.value.code == 404
    assert [(request.path, request.body) for request in model.requests] == [("/v1/other", {"a": 1})]


def test_a_request_without_our_tools_does_not_advance_the_script(model: ScriptedServer, play: Play) -> None:
    body = {"messages": [{"role": "user", "content": "a title, please"}]}
    answer = json.loads(post(f"{model.url}/v1/chat/completions", body))
    assert answer["choices"][0]["message"]["content"] == "ok"
    assert (play.seen, play.waiting) == ({}, None)


def test_a_repeated_request_gets_the_same_call(model: ScriptedServer) -> None:
    body = {
        "tools": [{"type": "function", "function": {"name": "add"}}],
        "messages": [{"role": "user", "content": "go"}],
    }
    first, second = (json.loads(post(f"{model.url}/v1/chat/completions", body)) for _ in range(2))
    calls = [answer["choices"][0]["message"]["tool_calls"] for answer in (first, second)]
    assert calls[0] == calls[1]


def test_names_of_cases_are_unique() -> None:
    assert len({case.name for case in CASES}) == len(CASES)


def test_a_result_is_found_where_an_agent_writes_its_history_as_text(model: ScriptedServer, play: Play) -> None:
    def ask(*texts: str) -> Any:
        messages = [{"role": "user", "content": text} for text in texts]
        body = {"tools": [{"type": "function", "function": {"name": "add"}}], "messages": messages}
        return json.loads(post(f"{model.url}/v1/chat/completions", body))["choices"][0]["message"]

    assert ask("go")["tool_calls"]
    assert ask("go")["tool_calls"], "nothing is new, so it is the same call"
    assert ask("go\nObservation: 5")["content"] == DONE
    assert play.seen["add"].text == "Observation: 5"
