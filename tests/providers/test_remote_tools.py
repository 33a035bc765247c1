"""Providers and executors over clients and gateways, streams of every provider, parallel batches, and token usage."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any

import pytest
from examples import embedded

from pegboard import Board, Client, Gateway, Middleware, ToolCallRequest, ToolError, ToolExecutor
from pegboard.call import Call
from pegboard.errors import ConnectionLost
from pegboard.providers import READERS, Provider, TokenUsage


def shop() -> Board:
    board = Board("shop")

    @board.tool("order.add")
    async def add(item: str, count: int = 1) -> str:
        """Adds an item."""
        return f"{count} {item}"

    @board.tool
    async def refuse() -> None:
        raise ToolError("closed")

    return board


def streamed(form: str, name: str, arguments: dict[str, Any]) -> list[dict[str, Any]]:
    """One call, and the usage, as the events of a provider's stream."""
    text = json.dumps(arguments)
    half = len(text) // 2
    match form:
        case "openai":
            first = {"index": 0, "id": "c1", "type": "function", "function": {"name": name, "arguments": ""}}
            pieces = [{"index": 0, "function": {"arguments": piece}} for piece in (text[:half], text[half:])]
            deltas = [{"role": "assistant", "content": None}, *({"tool_calls": [one]} for one in (first, *pieces)), {}]
            usage = {"prompt_tokens": 10, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 4}}
            chunks: list[dict[str, Any]] = [{"choices": [{"index": 0, "delta": delta}]} for delta in deltas]
            return [*chunks, {"choices": [], "usage": usage}]
        case "openai-responses":
            item = {"type": "function_call", "id": "fc", "call_id": "c1", "name": name, "arguments": ""}
            usage = {"input_tokens": 10, "output_tokens": 3, "input_tokens_details": {"cached_tokens": 4}}
            done = {**item, "arguments": text}
            return [
                {"type": "response.created", "response": {"output": []}},
                {"type": "response.output_item.added", "output_index": 0, "item": item},
                {"type": "response.function_call_arguments.delta", "output_index": 0, "delta": text[:half]},
                {"type": "response.function_call_arguments.delta", "output_index": 0, "delta": text[half:]},
                {"type": "response.completed", "response": {"output": [done], "usage": usage}},
            ]
        case "anthropic":
            usage = {
                "input_tokens": 5,
                "cache_read_input_tokens": 4,
                "cache_creation_input_tokens": 1,
                "output_tokens": 1,
            }
            block = {"type": "tool_use", "id": "c1", "name": name, "input": {}}
            deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in (text[:half], text[half:])]
            return [
                {"type": "message_start", "message": {"role": "assistant", "usage": usage}},
                {"type": "content_block_start", "index": 0, "content_block": block},
                *({"type": "content_block_delta", "index": 0, "delta": delta} for delta in deltas),
                {"type": "content_block_stop", "index": 0},
                {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 3}},
                {"type": "message_stop"},
            ]
        case "gemini":
            usage = {
                "promptTokenCount": 10,
                "candidatesTokenCount": 2,
                "thoughtsTokenCount": 1,
                "cachedContentTokenCount": 4,
            }
            call = {"functionCall": {"id": "c1", "name": name, "args": arguments}}
            parts: list[Any] = [[{"text": "Well"}], [call]]
            events = [{"candidates": [{"content": {"role": "model", "parts": one}}]} for one in parts]
            return [*events[:1], {**events[1], "usageMetadata": usage}]
        case "ollama":
            call = {"id": "c1", "function": {"name": name, "arguments": arguments}}
            return [
                {"message": {"role": "assistant", "content": "", "tool_calls": [call]}, "done": False},
                {
                    "message": {"role": "assistant", "content": ""},
                    "done": True,
                    "prompt_eval_count": 10,
                    "eval_count": 3,
                },
            ]
    raise AssertionError(form)


@pytest.mark.parametrize("form", sorted(READERS))
async def test_a_stream_of_any_provider_runs_a_tool_of_another_server(form: str) -> None:
    async with Client(shop()) as client:
        provider = Provider(form, await client.list_tools())
        events = streamed(form, provider.names.alias("order.add"), {"item": "tea", "count": "2"})
        [request] = provider.parse(iter(events))
        assert (request.tool_name, request.tool_call_id) == ("order.add", "c1")
        assert request.arguments == {"item": "tea", "count": 2}
        assert [warning.path for warning in request.warnings] == ["count"]
        record = await ToolExecutor(client).execute(request)
    assert (record.status, record.result) == ("success", "2 tea")
    assert [warning.path for warning in record.warnings] == ["count"]
    assert "2 tea" in json.dumps(provider.answer(request, record.result))


@pytest.mark.parametrize("form", sorted(READERS))
def test_usage_is_read_from_streams_and_responses(form: str) -> None:
    provider = Provider(form, [])
    cached = 0 if form == "ollama" else 4
    assert provider.usage(streamed(form, "x", {})) == TokenUsage(prompt=10, completion=3, cached=cached)
    assert provider.usage({"role": "assistant", "content": []}) is None
    assert provider.usage([]) is None


def test_usage_of_a_whole_response_is_read_as_well() -> None:
    usage = {"input_tokens": 5, "output_tokens": 2, "cache_read_input_tokens": None}
    assert Provider("anthropic", []).usage({"content": [], "usage": usage}) == TokenUsage(5, 2, 0)
    snake = {"prompt_token_count": 7, "candidates_token_count": 1}
    assert Provider("gemini", []).usage({"candidates": [], "usage_metadata": snake}) == TokenUsage(7, 1, 0)


async def test_the_tools_of_a_gateway_run_through_its_middleware() -> None:
    seen: list[str] = []

    class Watch(Middleware):
        async def before(self, call: Call) -> None:
            seen.append(call.name)

    gateway = Gateway({"mcpServers": {"shop": {"board": shop()}}})
    gateway.use(Watch())
    async with Client(gateway) as client:
        name, _ = [tool["name"] for tool in await client.list_tools()]
        provider = Provider("openai", await client.list_tools())
        requests = provider.parse(streamed("openai", provider.names.alias(name), {"item": "tea"}))
        for executor in (ToolExecutor(client), ToolExecutor(gateway)):
            (record,) = (await executor.execute_batch(requests)).records
            assert (record.status, record.result) == ("success", "1 tea")
    assert seen == [name] * 2


async def test_failures_of_another_server_are_records() -> None:
    async with Client(shop()) as client:
        executor = ToolExecutor(client)
        requests = [ToolCallRequest(tool_name=name, tool_call_id=name) for name in ("refuse", "unknown", "order.add")]
        batch = await executor.execute_batch(requests)
    assert [record.status for record in batch.records] == ["failed"] * 3
    assert [record.metadata["error"] for record in batch.records] == [
        "tool_error",
        "handler_not_found",
        "invalid_arguments",
    ]
    assert batch.error == "closed"

    class Lost:
        async def request(self, *_words: Any, **_options: Any) -> Any:
            raise ConnectionLost("the server shop has exited")

    record = await ToolExecutor(Lost()).execute(requests[0])
    assert (record.status, record.result) == ("failed", "the server shop has exited")
    assert record.metadata["error"] == "ConnectionLost"


async def test_an_invalid_definition_of_a_server_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        provider = Provider("openai", [{"name": "bad", "inputSchema": {"type": "array"}}])
    assert provider.definitions == []
    assert "has no inputSchema of type object" in caplog.text


async def test_a_batch_runs_as_many_requests_at_a_time_as_wanted_and_keeps_their_order() -> None:
    board, running, most = Board(), 0, 0
    both = asyncio.Event()

    @board.tool
    async def work(number: int) -> int:
        nonlocal running, most
        running += 1
        most = max(most, running)
        if running == 2:
            both.set()
        if number < 2:
            await both.wait()
        running -= 1
        return number

    requests = [ToolCallRequest(tool_name="work", arguments={"number": number}) for number in range(5)]
    async with Client(board):
        batch = await ToolExecutor(board).execute_batch(requests, parallel=2)
        assert [record.result for record in batch.records] == ["0", "1", "2", "3", "4"]
        assert most == 2
        with pytest.raises(ValueError, match="parallel=0: must be at least 1"):
            await ToolExecutor(board).execute_batch(requests, parallel=0)


async def test_the_example_of_another_server_runs() -> None:
    board = Board()
    board.tool(embedded.add)
    assert await embedded.use_server(board) == "5"
