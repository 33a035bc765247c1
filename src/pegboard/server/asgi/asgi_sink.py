"""Sends one streamed response through ASGI."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, MutableMapping
from functools import lru_cache
from typing import Any, TypeAlias

from msgspec import Struct

from pegboard.limits import Limits
from pegboard.server.http.responses import encode_headers
from pegboard.server.http_types import Answer, Headers

Event: TypeAlias = MutableMapping[str, Any]
Send: TypeAlias = Callable[[Event], Awaitable[None]]

log = logging.getLogger("pegboard.http")


# The responses to a client have the same fields each time: those of its session.
@lru_cache(maxsize=1024)
def check_headers(headers: Headers) -> None:
    """Reject header fields with a control character: ASGI servers do not."""
    encode_headers(headers)


class AsgiSink(Struct, eq=False):
    """The Sink of one request: buffers what the endpoint writes until the server has taken it.

    Most requests are answered whole and do not use it, so it is cheap to create.
    """

    limits: Limits
    bodyless: bool = False
    started: bool = False
    ended: bool = False
    gone: bool = False
    callbacks: tuple[Callable[[], object], ...] = ()
    _head: Event | None = None
    _chunks: list[bytes] = []
    _held: int = 0
    _end_sent: bool = False
    _waker: asyncio.Future[None] | None = None
    _room: asyncio.Event | None = None

    def start(self, status: int, headers: Headers) -> None:
        if self.started:
            raise RuntimeError("the response has already begun")
        check_headers(headers)
        self.started = True
        self._head = {"type": "http.response.start", "status": status, "headers": list(headers)}
        self.wake()

    def write(self, chunk: bytes) -> bool:
        if not self.started or self.ended:
            raise RuntimeError("the response is not open")
        if self.gone:
            return False
        if chunk and not self.bodyless:
            self._held += len(chunk)
            self._chunks.append(chunk)
            self.wake()
        return self._held <= self.limits.write_buffer

    def flush(self) -> None:
        """Do nothing: the task of the ASGI server sends, when it has its turn."""

    async def drain(self) -> None:
        if self._held > self.limits.write_buffer:
            if self._room is None:
                self._room = asyncio.Event()
            self._room.clear()
            await self._room.wait()
        if self.gone:
            raise ConnectionError("the client has disconnected, or has read too slowly for too long")

    def end(self) -> None:
        if not self.started or self.ended:
            raise RuntimeError("the response is not open")
        self.ended = True
        self.wake()

    def on_gone(self, callback: Callable[[], object]) -> None:
        if self.gone:
            asyncio.get_running_loop().call_soon(callback)
        elif not self.ended:
            self.callbacks += (callback,)

    @property
    def is_open(self) -> bool:
        return self.started and not self.ended and not self.gone

    def cut(self) -> None:
        if not self.ended:
            self.leave()

    def leave(self) -> None:
        """The client has disconnected: drop everything, and call back once."""
        if self.gone:
            return
        self.gone = True
        self._head = None
        self._chunks.clear()
        self._held = 0
        callbacks, self.callbacks = self.callbacks, ()
        for callback in () if self.ended else callbacks:
            try:
                callback()
            except Exception:
                log.exception("A disconnect callback failed")
        if self._room is not None:
            self._room.set()
        self.wake()

    def wake(self) -> None:
        """Wake the waiter."""
        if self._waker is not None and not self._waker.done():
            self._waker.set_result(None)

    async def rest(self) -> None:
        """Wait for something to send."""
        if not self._waits() and not self.gone:
            self._waker = asyncio.get_running_loop().create_future()
            await self._waker

    async def deliver(self, send: Send) -> None:
        """Pass everything written so far to the server, in as few chunks as possible."""
        while self._waits():
            try:
                async with asyncio.timeout(self.limits.write_seconds):
                    await self._hand_over(send)
            except (OSError, TimeoutError):
                self.leave()
                return
            if self._room is not None and self._held <= self.limits.write_buffer // 4:
                self._room.set()

    def open_after(self, task: asyncio.Task[Answer | None]) -> bool:
        """Whether the stream is still written although the coroutine that opened it has returned."""
        return self.started and not task.cancelled() and task.exception() is None and task.result() is None

    def _waits(self) -> bool:
        """Whether there is something to send."""
        return not self.gone and bool(self._head or self._chunks or self.ended > self._end_sent)

    async def _hand_over(self, send: Send) -> None:
        head, self._head = self._head, None
        if head is not None:
            await send(head)
        chunks, self._chunks = self._chunks, []
        if (chunks or self.ended) and not self.gone:
            self._end_sent = self.ended
            body = b"".join(chunks)
            await send({"type": "http.response.body", "body": body, "more_body": not self.ended})
            # After a disconnect nothing is buffered: bytes that were in transit no longer count.
            self._held = max(0, self._held - len(body))
