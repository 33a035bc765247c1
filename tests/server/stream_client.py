"""A client of /ws that speaks by hand: JSON-RPC, and streams of text and of bytes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Self
from uuid import UUID, uuid4

from websockets.asyncio.client import ClientConnection, connect

from pegboard import Board, Limits
from pegboard.server.http.guard import Guard
from pegboard.server.http.listener import Http1Server, listen
from pegboard.server.streamable_http.mcp_endpoint import HttpEndpoint

SOON = 60.0


class Streamer:
    """One socket."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket
        self.heard: list[Any] = []

    async def say(self, **message: Any) -> None:
        await self.socket.send(json.dumps(message))

    async def start(self, method: str, stream_id: str | None = None, **meta: Any) -> str:
        stream_id = stream_id or str(uuid4())
        await self.say(type="start", id=stream_id, timestamp="2026-11-16T10:00:00Z", meta={"method": method, **meta})
        return stream_id

    async def text(self, stream_id: str, index: int, data: Any) -> None:
        await self.say(type="chunk", id=stream_id, timestamp="2026-11-16T10:00:00Z", index=index, data=data)

    async def bytes(self, stream_id: str, index: int, payload: bytes) -> None:
        await self.socket.send(UUID(stream_id).bytes_le + index.to_bytes(8, "little", signed=True) + payload)

    async def done(self, stream_id: str, **summary: Any) -> None:
        await self.say(type="done", id=stream_id, timestamp="2026-11-16T10:00:00Z", summary=summary)

    async def on_message(self) -> Any:
        """The next message: JSON, or (GUID, index, payload)."""
        message = await asyncio.wait_for(self.socket.recv(), SOON)
        if isinstance(message, str):
            heard: Any = json.loads(message)
        else:
            heard = str(UUID(bytes_le=message[:16])), int.from_bytes(message[16:24], "little"), message[24:]
        self.heard.append(heard)
        return heard

    async def until(self, kind: str, stream_id: str) -> Any:
        """The message of that kind on that stream; what comes before it is kept in `heard`."""
        while True:
            heard = await self.on_message()
            if isinstance(heard, dict) and heard.get("type") == kind and heard.get("id") == stream_id:
                return heard

    async def result(self, stream_id: str) -> Any:
        """What ends the call that the stream began."""
        return (await self.until("done", stream_id))["summary"]

    async def error(self, stream_id: str) -> Any:
        return (await self.until("error", stream_id))["error"]

    async def answer(self, request_id: Any) -> Any:
        while True:
            heard = await self.on_message()
            if (
                isinstance(heard, dict)
                and "jsonrpc" in heard
                and heard.get("id") == request_id
                and "method" not in heard
            ):
                return heard

    async def initialize(self, **capabilities: Any) -> None:
        info = {"name": "t", "version": "1"}
        hello = {"protocolVersion": "2025-11-25", "capabilities": capabilities, "clientInfo": info}
        await self.say(jsonrpc="2.0", id="hello", method="initialize", params=hello)
        assert "result" in await self.answer("hello")


class Held:
    """The peer's end of a WebSocket without a network, which keeps what it is sent."""

    full = False

    def __init__(self) -> None:
        self.lines: list[dict[str, Any]] = []
        self.reading = True

    def write(self, message: bytes) -> None:
        self.lines.append(json.loads(message))

    def write_bytes(self, message: bytes) -> None:
        self.lines.append({"bytes": message})

    async def drain(self) -> None: ...

    def hold(self, paused: bool) -> None:
        self.reading = not paused

    def close(self, code: int, reason: str) -> None: ...


class House:
    """A board on a port, and sockets to it."""

    def __init__(self, server: Http1Server, endpoint: HttpEndpoint) -> None:
        self.server = server
        self.endpoint = endpoint
        self._open: list[ClientConnection] = []

    @property
    def url(self) -> str:
        return f"ws://127.0.0.1:{self.server.port}/ws"

    async def connect(self, **options: Any) -> Streamer:
        socket = await connect(self.url, compression=None, proxy=None, **options)
        self._open.append(socket)
        return Streamer(socket)

    async def close(self) -> None:
        for socket in self._open:
            await socket.close()
        await self.server.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


async def serve(board: Board, limits: Limits | None = None, **settings: Any) -> House:
    limits = limits or board.limits
    endpoint = HttpEndpoint(board.handler, board.info, limits=limits, guard=settings.pop("guard", Guard()), **settings)
    return House(await listen(endpoint, limits), endpoint)


@asynccontextmanager
async def streaming(board: Board, limits: Limits | None = None) -> AsyncIterator[Streamer]:
    """One socket to a board that is served for it alone."""
    async with await serve(board, limits) as house:
        yield await house.connect()
