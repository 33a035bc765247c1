"""The walk of one tools/call, traced: it stays short enough to be read by a person."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Self

import pytest

import pegboard
from pegboard import Board, Limits
from pegboard.server.http.guard import Guard
from pegboard.server.http.listener import listen
from pegboard.server.streamable_http.mcp_endpoint import HttpEndpoint
from tests.server_processes import MODERN, modern

HOME = str(Path(pegboard.__file__).parent)
MOST_FILES = 20
MOST_FUNCTIONS = 75


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
        # A coroutine that is resumed is entered again, and is still the same step of the walk.
        if event == "call" and frame.f_code.co_filename.startswith(HOME) and frame.f_lasti <= _FIRST:
            self.entered.append(frame.f_code)


# A resumed coroutine starts further on than its first instructions.
_FIRST = 8


def request(body: dict[str, Any], headers: dict[str, str]) -> bytes:
    sent = json.dumps(body).encode()
    lines = {
        "Host": "127.0.0.1",
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "Content-Length": str(len(sent)),
        **headers,
    }
    return b"POST /mcp HTTP/1.1\r\n" + "".join(f"{k}: {v}\r\n" for k, v in lines.items()).encode() + b"\r\n" + sent


async def exchange(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, sent: bytes) -> tuple[bytes, bytes]:
    writer.write(sent)
    head = await reader.readuntil(b"\r\n\r\n")
    length = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
    assert length is not None, head
    return head, await reader.readexactly(int(length[1]))


@pytest.mark.parametrize("era", ["modern", "legacy"])
@pytest.mark.parametrize("tool", ["add", "add_async"])
async def test_one_call_goes_through_few_files_and_functions(era: str, tool: str) -> None:
    board = Board("walked")

    @board.tool
    def add(a: float, b: float) -> float:
        return a + b

    @board.tool
    async def add_async(a: float, b: float) -> float:
        return a + b

    endpoint = HttpEndpoint(board.handler, board.info, limits=Limits(), guard=Guard())
    server = await listen(endpoint, Limits())
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    params = {"name": tool, "arguments": {"a": 1, "b": 2}}
    call: dict[str, Any] = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params}
    if era == "modern":
        call["params"] = modern(params)
        headers = {"MCP-Protocol-Version": MODERN, "Mcp-Method": "tools/call", "Mcp-Name": tool}
    else:
        hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
        begun = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}
        head, _ = await exchange(reader, writer, request(begun, {}))
        session = re.search(rb"mcp-session-id: (\w+)", head, re.IGNORECASE)
        assert session is not None, head
        headers = {"MCP-Protocol-Version": "2025-11-25", "Mcp-Session-Id": session[1].decode()}
    # The first call compiles what later ones find ready.
    await exchange(reader, writer, request(call, headers))
    with Trace() as trace:
        _, body = await exchange(reader, writer, request(call, headers))
    writer.close()
    await server.close()
    assert json.loads(body)["result"]["structuredContent"] in (3, {"result": 3})
    files = sorted({code.co_filename.removeprefix(HOME + "/") for code in trace.entered})
    functions = sorted({f"{code.co_filename.removeprefix(HOME + '/')}:{code.co_qualname}" for code in trace.entered})
    told = f"{len(files)} files, {len(functions)} functions, {len(trace.entered)} calls:\n" + "\n".join(functions)
    assert "execution/run.py" in files, told
    assert len(files) <= MOST_FILES, told
    assert len(functions) <= MOST_FUNCTIONS, told
