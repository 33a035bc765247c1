"""The server's end of a line of messages in memory: every revision, without a socket or a process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

from pegboard.call import Handler, Json
from pegboard.limits import Limits
from pegboard.server.exchange.conversation import Conversation
from pegboard.server.exchange.service import Service
from pegboard.server.exchange.subscribers import Subscribers

_CLEANUP_SECONDS: Final = 1.0


class MemoryLine:
    """Serves one client; each message reaches the other end in a later turn of the event loop, in order."""

    full = False

    def __init__(
        self, handler: Handler, info: Mapping[str, Json], limits: Limits, receive: Callable[[bytes], None]
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._receive = receive
        self._is_open = True
        service = Service(handler, info, limits, Subscribers(limits.subscribers), "memory")
        self._server = _MemoryConversation(service, self, self._loop)

    def send(self, message: bytes) -> None:
        """Send a message of the client to the server."""
        self._deliver(self._server.receive, message)

    def write(self, message: bytes) -> None:
        """Send a message of the server to the client."""
        self._deliver(self._receive, message)

    async def drain(self) -> None:
        """Return at once: messages are delivered in memory."""

    async def close(self) -> None:
        """End the subscriptions and the running calls of the client."""
        self._is_open = False
        self._server.following.end()
        running = [task for task, _ in self._server.calls.values()]
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running, timeout=_CLEANUP_SECONDS)

    def _deliver(self, receive: Callable[[bytes], None], message: bytes) -> None:
        self._loop.call_soon(lambda: receive(message) if self._is_open else None)


class _MemoryConversation(Conversation):
    def receive(self, message: bytes) -> None:
        self._waiting.append(message)
        self.resume_if_room()
