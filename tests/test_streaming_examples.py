"""The examples of docs/streaming.md, the client against the server."""

from __future__ import annotations

import hashlib
import importlib
from pathlib import Path
from typing import Any

from pegboard import Client
from tests.server.stream_client import streaming
from tests.server_processes import ROOT, HttpChild


async def test_the_client_sends_a_file_to_the_server(tmp_path: Path) -> None:
    send = importlib.import_module("examples.streaming_client").send
    path = tmp_path / "file"
    path.write_bytes(bytes(range(256)) * 1000)
    with HttpChild(target=ROOT / "examples" / "streaming.py") as child:
        told = await send(f"ws://127.0.0.1:{child.port}/ws", path)
    assert told == hashlib.sha256(path.read_bytes()).hexdigest()


async def test_every_tool_streams() -> None:
    board: Any = importlib.import_module("examples.streaming").board
    async with streaming(board) as client:
        await client.start("zeros", "z", arguments={"size": 100_000})
        assert (await client.result("z"))["content"][0]["text"] == "100000 bytes sent"
        assert sum(len(heard[2]) for heard in client.heard if isinstance(heard, tuple)) == 100_000
        await client.start("count", "c", arguments={"upto": 3})
        assert (await client.result("c"))["structuredContent"] == [1, 2, 3]
        await client.start("echo", "e")
        await client.text("e", 0, {"any": "json"})
        await client.done("e")
        await client.result("e")
    assert {"any": "json"} in [heard.get("data") for heard in client.heard if isinstance(heard, dict)]


async def test_without_a_stream_each_says_what_it_can() -> None:
    board: Any = importlib.import_module("examples.streaming").board
    told: list[str | None] = []
    async with Client(board) as client:
        await client.call("count", {"upto": 2}, progress=lambda _done, _total, message: told.append(message))
        assert told == ["1", "2"]
        refused = await client.call("checksum")
        assert refused.is_error
        assert "over /ws" in refused.text
