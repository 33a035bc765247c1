"""A server behind a WebSocket that answers whatever it is told to, and opens for whom it likes."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from websockets.frames import Frame, Opcode
from websockets.http11 import Request, Response
from websockets.server import ServerProtocol

from tests.client.fakes import MODERN

Answer = Callable[["Peer", dict[str, Any]], Awaitable[None] | None]
Admit = Callable[[ServerProtocol, Request], Response]


@dataclass
class Peer:
    """The server's end of one WebSocket."""

    protocol: ServerProtocol
    writer: asyncio.StreamWriter
    pongs: bool = True

    def say(self, message: Any) -> None:
        self.protocol.send_text(json.dumps(message).encode())
        self.flush()

    def answer(self, asked: dict[str, Any], said: str) -> None:
        self.say({"jsonrpc": "2.0", "id": asked["id"], "result": {"content": [{"type": "text", "text": said}]}})

    def flush(self) -> None:
        for data in self.protocol.data_to_send():
            if data:
                self.writer.write(data)


@dataclass
class Server:
    """Speaks 2026-07-28; `answer` answers what is no discovery, `admit` the handshake."""

    answer: Answer
    admit: Admit = ServerProtocol.accept
    port: int = 0
    pongs: bool = True
    heads: list[Any] = field(default_factory=list)
    asked: list[dict[str, Any]] = field(default_factory=list)
    tasks: set[asyncio.Task[Any]] = field(default_factory=set)

    @property
    def url(self) -> str:
        return f"ws://127.0.0.1:{self.port}/ws?of=mine"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.tasks.add(task)
        peer = Peer(ServerProtocol(subprotocols=["mcp"]), writer)  # type: ignore[list-item]
        try:
            while data := await reader.read(65_536):
                peer.protocol.receive_data(data)
                for event in peer.protocol.events_received():
                    if isinstance(event, Request):
                        self.heads.append(event)
                        peer.protocol.send_response(self.admit(peer.protocol, event))
                    elif not isinstance(event, Frame):
                        raise TypeError(event)
                    elif event.opcode is Opcode.TEXT:
                        await self.take(peer, json.loads(event.data))
                if self.pongs or not self.asked:
                    peer.flush()
                if peer.protocol.close_expected():
                    break
        except (ConnectionError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    async def take(self, peer: Peer, message: dict[str, Any]) -> None:
        if message["method"] == "server/discover":
            found = {"resultType": "complete", "supportedVersions": [MODERN], "capabilities": {"tools": {}}}
            peer.say({"jsonrpc": "2.0", "id": message["id"], "result": found})
            return
        self.asked.append(message)
        told = self.answer(peer, message)
        if told is not None:
            await told


@asynccontextmanager
async def serving(answer: Answer, *, tls: ssl.SSLContext | None = None, **how: Any) -> AsyncIterator[Server]:
    fake = Server(answer, **how)
    server = await asyncio.start_server(fake.serve, "127.0.0.1", 0, ssl=tls)
    fake.port = server.sockets[0].getsockname()[1]
    try:
        yield fake
    finally:
        server.close()
        for task in fake.tasks:
            task.cancel()
        await asyncio.gather(*fake.tasks, return_exceptions=True)
