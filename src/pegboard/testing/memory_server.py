"""Serves a board to a client in the same process, over messages as on a wire."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from pegboard.call import Channel
from pegboard.client.links.duplex_link import DuplexLink
from pegboard.client.links.in_process import InProcessServer
from pegboard.client.links.link import Identity, LinkOptions, ServerLink
from pegboard.errors import ServerFault
from pegboard.limits import Limits
from pegboard.protocol.revisions import MODERN
from pegboard.server.exchange.conversation import Conversation, LineService
from pegboard.server.exchange.subscribers import Subscribers

_CLEANUP_SECONDS = 1.0


class MemoryServer:
    """A target for a client: a board or gateway that is reached over messages in memory, in any protocol revision.

    `Client(MemoryServer(board), version="2025-06-18")` performs the handshake, is asked during the call, and gets its
    results as that revision defines them, without a socket or a process. `board` is started and stopped with the client.
    """

    def __init__(self, board: InProcessServer) -> None:
        self._board = board

    def link(self, identity: Identity, unattributed: Channel, options: LinkOptions) -> ServerLink:
        """Return a link for the `identity` of a client, its `options`, and the channel of `unattributed` messages."""
        return _MemoryLink(self._board, identity, unattributed, options)


class _MemoryLink(DuplexLink):
    def __init__(self, board: InProcessServer, identity: Identity, unattributed: Channel, options: LinkOptions) -> None:
        super().__init__("the board", "memory", identity, unattributed, options)
        self._board = board

    async def open(self) -> None:
        await self._board.start()
        try:
            await super().open()
        except BaseException:
            await self._board.stop()
            raise

    async def close(self) -> None:
        await super().close()
        await self._board.stop()

    async def _connect(self, _again: bool, version: str | None) -> None:
        await self._speak(_MemoryPipe(self._board), version or MODERN)


class _MemoryPipe:
    """The client's end: each message reaches the other end in a later turn of the loop, in order."""

    name = "the board"
    transport = "memory"

    def __init__(self, board: InProcessServer) -> None:
        self._board = board
        self._server: _MemoryConversation
        self._loop = asyncio.get_running_loop()
        self._is_open = False

    async def open(self, receive: Callable[[bytes], None], _lost: Callable[[ServerFault], None]) -> None:
        limits: Limits = getattr(self._board, "limits", None) or Limits()
        service = LineService(self._board.handler, self._board.info, limits, Subscribers(limits.subscribers), "memory")
        self._is_open = True
        self._server = _MemoryConversation(service, _MemoryLine(self, receive), self._loop)

    async def send(self, message: bytes) -> None:
        self.send_now(message)

    def send_now(self, message: bytes) -> None:
        self.deliver(self._server.receive, message)

    def deliver(self, receive: Callable[[bytes], Any], message: bytes) -> None:
        self._loop.call_soon(lambda: receive(message) if self._is_open else None)

    async def close(self) -> None:
        self._is_open = False
        self._server.following.end()
        running = [task for task, _ in self._server.calls.values()]
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running, timeout=_CLEANUP_SECONDS)


class _MemoryConversation(Conversation):
    def receive(self, message: bytes) -> None:
        self._waiting.append(message)
        self.resume_if_room()


class _MemoryLine:
    """The server's end."""

    full = False

    def __init__(self, pipe: _MemoryPipe, receive: Callable[[bytes], None]) -> None:
        self._pipe = pipe
        self._receive = receive

    def write(self, message: bytes) -> None:
        self._pipe.deliver(self._receive, message)

    async def drain(self) -> None:
        """Return at once: messages are delivered in memory."""
