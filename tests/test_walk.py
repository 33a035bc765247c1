"""The functions that one call runs through, traced: the path stays short enough for a person to read.

`pytest -s tests/test_walk.py` prints the number of files and functions of each path.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Self

import pytest

import pegboard
from pegboard import Accepted, Board, Context, Gateway, Limits
from pegboard.config.gateway_config import GatewayConfig, ServerConfig, ToolboxConfig
from pegboard.middleware import Logging, Metrics, Timing
from pegboard.server.http.guard import Guard
from pegboard.server.http.listener import listen
from pegboard.server.streamable_http.mcp_endpoint import HttpEndpoint
from tests.gateway.one_server import battery
from tests.server_processes import MODERN, modern

HOME = str(Path(pegboard.__file__).parent) + "/"
LEGACY = "2025-11-25"
ASKABLE = {"elicitation": {"form": {}}}
# A resumed coroutine starts further on than its first instructions.
FIRST = 8


class Trace:
    """Notes every function of ours that is entered while it is on."""

    def __init__(self) -> None:
        self.entered: list[CodeType] = []

    def __enter__(self) -> Self:
        sys.setprofile(self._note)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _note(self, frame: FrameType, event: str, _argument: object) -> None:
        # A coroutine that is resumed is entered again, and is still the same step of the path.
        if event == "call" and frame.f_code.co_filename.startswith(HOME) and frame.f_lasti <= FIRST:
            self.entered.append(frame.f_code)

    @property
    def functions(self) -> set[str]:
        # Comprehensions are functions of their own before Python 3.12.
        return {
            f"{code.co_filename.removeprefix(HOME)}:{code.co_qualname}"
            for code in self.entered
            if not code.co_name.endswith("comp>")
        }


class Connection:
    """A client on one HTTP connection, which counts as little as possible."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, era: str) -> None:
        self._reader = reader
        self._writer = writer
        self._modern = era == "modern"
        self._headers = {"MCP-Protocol-Version": MODERN if self._modern else LEGACY}
        self._id = 0

    async def open(self) -> None:
        if self._modern:
            return
        hello = {"protocolVersion": LEGACY, "capabilities": ASKABLE, "clientInfo": {"name": "t", "version": "1"}}
        head, _ = await self.exchange({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello})
        session = re.search(rb"mcp-session-id: (\w+)", head, re.IGNORECASE)
        assert session is not None, head
        self._headers["Mcp-Session-Id"] = session[1].decode()

    def send_call(self, tool: str, arguments: dict[str, Any], token: str | None = None, **more: Any) -> None:
        self._id += 1
        params: dict[str, Any] = {"name": tool, "arguments": arguments, **more}
        headers = {}
        meta = {} if token is None else {"progressToken": token}
        if self._modern:
            params = modern(params, **{"io.modelcontextprotocol/clientCapabilities": ASKABLE}, **meta)
            headers = {"Mcp-Method": "tools/call", "Mcp-Name": tool}
        elif meta:
            params["_meta"] = meta
        self.post({"jsonrpc": "2.0", "id": self._id, "method": "tools/call", "params": params}, **headers)

    async def call(self, tool: str, arguments: dict[str, Any], **more: Any) -> Any:
        self.send_call(tool, arguments, **more)
        _, body = await self.response()
        return json.loads(body)["result"]

    async def exchange(self, message: dict[str, Any]) -> tuple[bytes, bytes]:
        self.post(message)
        return await self.response()

    def post(self, message: dict[str, Any], **headers: str) -> None:
        body = json.dumps(message).encode()
        fields = {
            "Host": "127.0.0.1",
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
            "Content-Length": str(len(body)),
            **self._headers,
            **headers,
        }
        head = "".join(f"{name}: {value}\r\n" for name, value in fields.items()).encode()
        self._writer.write(b"POST /mcp HTTP/1.1\r\n" + head + b"\r\n" + body)

    async def response(self) -> tuple[bytes, bytes]:
        head = await self.read_until(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
        assert length is not None, head
        return head, await self._reader.readexactly(int(length[1]))

    async def read_until(self, end: bytes) -> bytes:
        return await self._reader.readuntil(end)

    def beside(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Connection:
        """The same client on a second connection."""
        other = Connection(reader, writer, "modern" if self._modern else "legacy")
        other._headers = self._headers
        return other

    async def close(self) -> None:
        self._writer.close()
        await self._writer.wait_closed()


@asynccontextmanager
async def serving(app: Board | Gateway, era: str) -> AsyncIterator[tuple[Connection, Connection]]:
    """Two connections of one client to what is served."""
    endpoint = HttpEndpoint(app.handler, app.info, limits=Limits(), guard=Guard())
    server = await listen(endpoint, Limits())
    client = Connection(*await asyncio.open_connection("127.0.0.1", server.port), era)
    await client.open()
    second = client.beside(*await asyncio.open_connection("127.0.0.1", server.port))
    try:
        yield client, second
    finally:
        await client.close()
        await second.close()
        await server.close()


async def path_of(call: Callable[[], Awaitable[object]]) -> tuple[int, int]:
    """The number of files and functions that a call runs through."""
    # The first call compiles what later ones find ready.
    await call()
    paths = []
    for _ in range(6):
        with Trace() as trace:
            await call()
        paths.append(trace.functions)
    # A timer or a finalizer that runs meanwhile is not a part of the call.
    functions = set.intersection(*paths)
    files = {function.partition(":")[0] for function in functions}
    print(f"\n{len(files)} files, {len(functions)} functions:", *sorted(functions), sep="\n  ")
    return len(files), len(functions)


def adding_board() -> Board:
    board = Board("walked")

    @board.tool
    def add(a: float, b: float) -> float:
        return a + b

    @board.tool
    async def add_async(a: float, b: float) -> float:
        return a + b

    return board


# A coroutine takes ten functions fewer than a thread.
@pytest.mark.parametrize(("era", "most_files", "most_functions"), [("modern", 14, 34), ("legacy", 16, 40)])
@pytest.mark.parametrize("tool", ["add", "add_async"])
async def test_one_call_goes_through_few_files_and_functions(
    era: str, tool: str, most_files: int, most_functions: int
) -> None:
    async with serving(adding_board(), era) as (client, _):

        async def call() -> None:
            assert (await client.call(tool, {"a": 1, "b": 2}))["structuredContent"] in (3, {"result": 3})

        files, functions = await path_of(call)
    assert files <= most_files
    assert functions <= most_functions


# One file for each hook and one for their chain. Python 3.11, which has no eager tasks, takes about five functions more.
@pytest.mark.parametrize(("era", "most_files", "most_functions"), [("modern", 18, 38), ("legacy", 20, 43)])
async def test_three_hooks_add_few_files_and_functions(era: str, most_files: int, most_functions: int) -> None:
    board = adding_board()
    board.use(Logging(), Timing(), Metrics())
    async with serving(board, era) as (client, _):

        async def call() -> None:
            assert not (await client.call("add_async", {"a": 1, "b": 2})).get("isError")

        files, functions = await path_of(call)
    assert files <= most_files
    assert functions <= most_functions


@pytest.mark.process
@pytest.mark.parametrize(("era", "most_files", "most_functions"), [("modern", 29, 54), ("legacy", 31, 58)])
async def test_a_call_through_a_gateway_goes_through_few_files_and_functions(
    era: str, most_files: int, most_functions: int
) -> None:
    server: ServerConfig = battery()
    toolbox = ToolboxConfig(name="dev", description="For tests", servers={server.name: server})
    gateway = Gateway(GatewayConfig(path="gateway.json", lock="off", toolboxes={"dev": toolbox}))
    await gateway.start()
    try:
        await gateway.downstreams[0].wait_connected()
        async with serving(gateway, era) as (client, _):

            async def call() -> None:
                result = await client.call("dev__battery__add", {"a": 1, "b": 2})
                assert result["structuredContent"] in (3, {"result": 3})

            files, functions = await path_of(call)
    finally:
        await gateway.stop()
    assert files <= most_files
    assert functions <= most_functions


@pytest.mark.parametrize(("era", "most_files", "most_functions"), [("modern", 25, 101), ("legacy", 32, 145)])
async def test_an_elicitation_goes_through_few_files_and_functions(
    era: str, most_files: int, most_functions: int
) -> None:
    board = Board("asking")

    @board.tool
    async def greet(ctx: Context) -> str:
        answer = await ctx.elicit("Your name?", str)
        return f"Hello {answer.content if isinstance(answer, Accepted) else '?'}"

    answer = {"action": "accept", "content": {"value": "Ada"}}

    async with serving(board, era) as (client, second):

        async def ask_in_two_requests() -> None:
            asked = await client.call("greet", {})
            (key,) = asked["inputRequests"]
            state = {"requestState": asked["requestState"]} if "requestState" in asked else {}
            answered = await client.call("greet", {}, inputResponses={key: answer}, **state)
            assert answered["content"][0]["text"] == "Hello Ada"

        async def ask_during_the_call() -> None:
            client.send_call("greet", {})
            asked = await client.read_until(b"elicitation/create") + await client.read_until(b"\r\n")
            number = re.search(rb'"id":("[^"]+"|\d+)', asked)
            assert number is not None, asked
            await second.exchange({"jsonrpc": "2.0", "id": json.loads(number[1]), "result": answer})
            assert b"Hello Ada" in await client.read_until(b"\r\n0\r\n\r\n")

        files, functions = await path_of(ask_in_two_requests if era == "modern" else ask_during_the_call)
    assert files <= most_files
    # Before Python 3.12 there are no eager tasks: the response is written by the callbacks of a task.
    assert functions <= most_functions + (3 if sys.version_info < (3, 12) else 0)
