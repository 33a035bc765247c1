"""A WebSocket connection that another ASGI server holds."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

from pegboard.limits import Limits
from pegboard.protocol.framing.websocket_messages import SUBPROTOCOL
from pegboard.server.asgi.asgi_scope import AsgiScope
from pegboard.server.asgi.asgi_sink import Event, Send
from pegboard.server.http_types import Answer, SocketHandler, Upgrade

Receive: TypeAlias = Callable[[], Awaitable[Event]]

# RFC 6455 reserves 4000 to 4999 for applications; with this offset they read as HTTP status codes.
_REFUSED: Final = 4000
_TOO_BIG: Final = 1009
_TOO_SLOW: Final = 1008


class AsgiWebSocket:
    """The endpoint's Socket: buffers what is written until the server has taken it."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._messages: list[tuple[Event, int]] = []
        self._held = 0
        self._closed = False
        self._something = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._may_read = asyncio.Event()
        self._may_read.set()

    @property
    def full(self) -> bool:
        return not self._room.is_set()

    def write(self, message: bytes) -> None:
        self._put({"type": "websocket.send", "text": message.decode()}, len(message))

    def write_bytes(self, message: bytes) -> None:
        self._put({"type": "websocket.send", "bytes": message}, len(message))

    async def drain(self) -> None:
        await self._room.wait()

    def hold(self, paused: bool) -> None:
        if paused:
            self._may_read.clear()
        else:
            self._may_read.set()

    def close(self, code: int, reason: str) -> None:
        self._put({"type": "websocket.close", "code": code, "reason": reason}, 0)
        self._closed = True

    def _put(self, message: Event, size: int) -> None:
        if self._closed:
            return
        if self._held and self._held + size > self._limits.buffered_bytes:
            # Running calls finish although the client does not read.
            self._held -= sum(waiting for _, waiting in self._messages)
            self._messages.clear()
            self.close(_TOO_SLOW, "The messages of this socket are not read fast enough")
            return
        self._messages.append((message, size))
        self._held += size
        if self._held > self._limits.write_buffer:
            self._room.clear()
        self._something.set()

    async def serve(self, upgrade: Upgrade, receive: Receive, send: Send) -> None:
        """Serve the socket until it ends."""
        socket_handler = upgrade.open(self)
        sending = asyncio.ensure_future(self._send(socket_handler, send))
        receiving = asyncio.ensure_future(self._receive(socket_handler, receive))
        try:
            await asyncio.wait({sending, receiving}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._closed = True
            self._room.set()
            socket_handler.leave()
            sending.cancel()
            receiving.cancel()
            # The server should see their exceptions; their cancellation is ours.
            for ended in await asyncio.gather(sending, receiving, return_exceptions=True):
                if isinstance(ended, Exception) and not isinstance(ended, OSError | TimeoutError):
                    raise ended

    async def _receive(self, socket_handler: SocketHandler, receive: Receive) -> None:
        while True:
            await self._may_read.wait()
            event = await receive()
            if event["type"] != "websocket.receive":
                return
            data = event.get("bytes")
            text = event.get("text")
            size = len(data or b"") + len(text or "")
            if size > self._limits.body_bytes:
                self.close(_TOO_BIG, f"A message may have at most {self._limits.body_bytes} bytes")
                await asyncio.Event().wait()
            elif data is not None:
                socket_handler.receive_bytes(data)
            elif text is not None:
                socket_handler.receive_text(text.encode())

    async def _send(self, socket_handler: SocketHandler, send: Send) -> None:
        while True:
            await self._something.wait()
            self._something.clear()
            messages, self._messages = self._messages, []
            for message, size in messages:
                async with asyncio.timeout(self._limits.write_seconds):
                    await send(message)
                self._held -= size
                if message["type"] == "websocket.close":
                    return
                if self.full and self._held <= self._limits.write_buffer // 4:
                    self._room.set()
                    socket_handler.resume_if_room()


async def reject_websocket(scope: AsgiScope, send: Send, answer: Answer) -> None:
    """Reject a WebSocket, with a response body if the server supports that."""
    if "websocket.http.response" in scope.get("extensions", {}):
        headers = [(b"content-type", answer.content_type), *answer.headers]
        await send({"type": "websocket.http.response.start", "status": answer.status, "headers": headers})
        await send({"type": "websocket.http.response.body", "body": answer.body})
    else:
        await send({"type": "websocket.close", "code": _REFUSED + answer.status, "reason": f"HTTP {answer.status}"})


async def serve_websocket(upgrade: Upgrade, scope: AsgiScope, receive: Receive, send: Send, limits: Limits) -> None:
    """Accept a WebSocket."""
    offered = scope.get("subprotocols") or ()
    await send({"type": "websocket.accept", "subprotocol": SUBPROTOCOL if SUBPROTOCOL in offered else None})
    await AsgiWebSocket(limits).serve(upgrade, receive, send)
