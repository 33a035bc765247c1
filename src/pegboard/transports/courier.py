"""Carries one streamed response from an endpoint that writes at once to an ASGI server that takes its time."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, TypeAlias

from pegboard.limits import Limits
from pegboard.transports.answers import encode_headers
from pegboard.transports.door import Answer, Headers

Event: TypeAlias = MutableMapping[str, Any]
Send: TypeAlias = Callable[[Event], Awaitable[None]]

log = logging.getLogger("pegboard.http")


class Courier:
    """The Sink of one request: keeps what the endpoint writes until the server has taken it."""

    __slots__ = (
        "_bodyless",
        "_callbacks",
        "_held",
        "_limits",
        "_loop",
        "_parcels",
        "_room",
        "_waker",
        "ended",
        "gone",
        "started",
    )

    def __init__(self, loop: asyncio.AbstractEventLoop, limits: Limits, *, bodyless: bool = False) -> None:
        self.started = False
        self.ended = False
        self.gone = False
        self._loop = loop
        self._limits = limits
        self._bodyless = bodyless
        self._held = 0
        self._parcels: deque[Event] = deque()
        self._callbacks: tuple[Callable[[], object], ...] = ()
        self._waker: asyncio.Future[None] | None = None
        self._room: asyncio.Event | None = None

    def start(self, status: int, headers: Headers) -> None:
        if self.started:
            raise RuntimeError("the response has already begun")
        encode_headers(headers)
        self.started = True
        self._add({"type": "http.response.start", "status": status, "headers": list(headers)})

    def write(self, chunk: bytes) -> None:
        if not self.started or self.ended:
            raise RuntimeError("the response is not open")
        if chunk and not self._bodyless:
            self._add({"type": "http.response.body", "body": chunk, "more_body": True})

    async def drain(self) -> None:
        if self._held > self._limits.write_buffer:
            if self._room is None:
                self._room = asyncio.Event()
            self._room.clear()
            await self._room.wait()
        if self.gone:
            raise ConnectionError("the client is gone, or has read too slowly for too long")

    def end(self) -> None:
        if not self.started or self.ended:
            raise RuntimeError("the response is not open")
        self.ended = True
        self._add({"type": "http.response.body", "body": b"", "more_body": False})

    def on_gone(self, callback: Callable[[], object]) -> None:
        if self.gone:
            self._loop.call_soon(callback)
        elif not self.ended:
            self._callbacks += (callback,)

    def leave(self) -> None:
        """The client is gone: nothing is sent any more, and whoever asked is told, once."""
        if self.gone:
            return
        self.gone = True
        self._parcels.clear()
        self._held = 0
        callbacks, self._callbacks = self._callbacks, ()
        for callback in () if self.ended else callbacks:
            try:
                callback()
            except Exception:
                log.exception("A disconnect callback failed")
        if self._room is not None:
            self._room.set()
        self.wake()

    def forget(self) -> None:
        """The response has ended: nobody is called back, and no circle waits for the garbage collector."""
        self._callbacks = ()

    def wake(self) -> None:
        """End the rest: there is something to look at."""
        if self._waker is not None and not self._waker.done():
            self._waker.set_result(None)

    async def rest(self) -> None:
        """Wait until there is something to look at."""
        if not self._parcels and not self.gone:
            self._waker = self._loop.create_future()
            await self._waker

    async def deliver(self, send: Send) -> None:
        """Hand everything written so far to the server."""
        while self._parcels:
            parcel = self._parcels.popleft()
            try:
                async with asyncio.timeout(self._limits.write_seconds):
                    await send(parcel)
            except (OSError, TimeoutError):
                self.leave()
                return
            if not self.gone:
                self._held -= len(parcel.get("body", b""))
            if self._room is not None and self._held <= self._limits.write_buffer // 4:
                self._room.set()

    def open_after(self, task: asyncio.Task[Answer | None]) -> bool:
        """Whether somebody still writes to the stream although the coroutine that opened it has returned."""
        return self.started and not task.cancelled() and task.exception() is None and task.result() is None

    def _add(self, parcel: Event) -> None:
        if not self.gone:
            self._held += len(parcel.get("body", b""))
            self._parcels.append(parcel)
            self.wake()
