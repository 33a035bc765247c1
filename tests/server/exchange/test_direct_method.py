"""Tools as JSON-RPC methods at `/rpc` and `/ws`, misnamed arguments, and `initialize` without params."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from websockets.asyncio.client import connect

from pegboard import Board, JsonRpcMessage, ToolError, ToolResponse
from pegboard.call import Call, Handler, Reply
from pegboard.server.exchange import admission
from pegboard.server.http.guard import Guard
from pegboard.server.http.listener import listen
from pegboard.server.streamable_http.mcp_endpoint import HttpEndpoint

META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": {"name": "t", "version": "1"},
}


def calculator() -> Board:
    board = Board("calc")

    @board.tool
    async def add_numbers(number1: float, number2: float = 1) -> float:
        return number1 + number2

    @board.tool
    def raw(request: JsonRpcMessage) -> JsonRpcMessage:
        return ToolResponse.success(request.id, {"result": request.get("a")})

    @board.tool
    async def words() -> str:
        return "42"

    @board.tool
    async def fail() -> None:
        raise ToolError("closed")

    @board.prompt
    def review(code: str) -> str:
        return code

    return board


class Endpoint:
    """A served board, asked over `/rpc`, `/mcp` or `/ws`."""

    def __init__(self, port: int) -> None:
        self.port = port

    async def post(self, path: str, method: str, params: Any = None, **headers: str) -> dict[str, Any]:
        message = {"jsonrpc": "2.0", "id": 1, "method": method, **({} if params is None else {"params": params})}
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{self.port}") as client:
            sent = {"accept": "application/json, text/event-stream", **headers}
            return dict((await client.post(path, json=message, headers=sent)).json())

    async def ask(self, path: str, method: str, params: Any = None) -> dict[str, Any]:
        if path != "/ws":
            return await self.post(path, method, params)
        async with connect(f"ws://127.0.0.1:{self.port}/ws") as socket:
            # No revision but the newest can be used without a handshake.
            params = {**(params or {}), "_meta": META} if params is None or isinstance(params, dict) else params
            await socket.send(json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}))
            return dict(json.loads(await socket.recv()))


@asynccontextmanager
async def serving(board: Board | None = None, **options: Any) -> AsyncIterator[Endpoint]:
    board = board or calculator()
    endpoint = HttpEndpoint(
        board.handler, board.info, limits=board.limits, guard=Guard(), legacy_endpoints=["rpc"], **options
    )
    server = await listen(endpoint, board.limits)
    try:
        yield Endpoint(server.port)
    finally:
        await server.close()
        await board.stop()


PATHS = pytest.mark.parametrize("path", ["/rpc", "/ws"])


@PATHS
async def test_a_tool_is_called_by_its_name_as_the_method(path: str) -> None:
    async with serving(direct_methods=True) as served:
        added = await served.ask(path, "add_numbers", {"number1": "2", "number2": 3})
        assert added["result"]["result"] == 5
        assert "content" not in added["result"]
        assert (await served.ask(path, "raw", {"a": [1]}))["result"]["result"] == [1]
        assert (await served.ask(path, "words"))["result"]["result"] == "42"
        listed = await served.ask(path, "tools/list")
        assert len(listed["result"]["tools"]) == 4


@PATHS
async def test_hooks_run_around_such_a_call_as_around_every_other(path: str) -> None:
    board, seen = calculator(), list[Any]()

    async def refuse(call: Call, following: Handler) -> Reply:
        seen.append((call.method, call.name, call.arguments))
        raise ToolError("not for you")

    board.use(refuse)
    async with serving(board, direct_methods=True) as served:
        refused = await served.ask(path, "add_numbers", {"number1": 1})
    assert refused["error"]["message"] == "not for you"
    assert seen == [("tools/call", "add_numbers", {"number1": 1})]


@PATHS
async def test_errors_of_such_a_call_are_json_rpc_errors(path: str) -> None:
    async with serving(direct_methods=True) as served:
        wrong = (await served.ask(path, "add_numbers", {"number1": "two"}))["error"]
        assert (wrong["code"], wrong["data"]["dev.pegboard/parseErrors"][0]["path"]) == (-32602, "number1")
        failed = (await served.ask(path, "fail"))["error"]
        assert (failed["code"], failed["message"]) == (-32603, "closed")
        unknown = (await served.ask(path, "add_number"))["error"]
        assert (unknown["code"], unknown["data"]) == (-32602, {"suggestions": ["add_numbers"]})


async def test_params_of_such_a_call_are_an_object() -> None:
    async with serving(direct_methods=True) as served:
        refused = (await served.ask("/rpc", "add_numbers", [1, 2]))["error"]
    assert refused["code"] in (-32600, -32602)


@pytest.mark.parametrize(("path", "on"), [("/rpc", False), ("/ws", False), ("/mcp", True)])
async def test_elsewhere_the_error_says_how_to_call_a_tool(path: str, on: bool) -> None:
    async with serving(direct_methods=on) as served:
        if path == "/mcp":
            named = {"mcp-protocol-version": "2026-07-28", "mcp-method": "add_numbers"}
            refused = await served.post(path, "add_numbers", {"number1": 1, "_meta": META}, **named)
        else:
            refused = await served.ask(path, "add_numbers", {"number1": 1})
    assert refused["error"]["code"] == -32601
    assert "call a tool with tools/call" in refused["error"]["message"]


@PATHS
async def test_params_in_place_of_arguments_are_read_with_a_warning(
    path: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admission, "_misnaming", set())
    async with serving() as served:
        with caplog.at_level(logging.WARNING):
            for _ in range(2):
                added = await served.ask(path, "tools/call", {"name": "add_numbers", "params": {"number1": 1}})
                assert added["result"]["content"][0]["text"] == "2"
        prompt = await served.ask(path, "prompts/get", {"name": "review", "params": {"code": "x"}})
        assert prompt["result"]["messages"][0]["content"]["text"] == "x"
    assert caplog.text.count("sends params.params in place of params.arguments") == 1


@pytest.mark.parametrize("params", [None, {}])
async def test_initialize_without_params_opens_a_session_of_the_revision_that_is_assumed(params: Any) -> None:
    async with serving() as served:
        opened = await served.post("/mcp", "initialize", params)
        wrong = await served.post("/mcp", "initialize", {"protocolVersion": 5})
    assert opened["result"]["protocolVersion"] == "2025-03-26"
    assert opened["result"]["serverInfo"]["name"] == "calc"
    assert wrong["error"]["code"] == -32602
