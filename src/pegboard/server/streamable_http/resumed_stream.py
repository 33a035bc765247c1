"""Resumes a stream of a legacy client: GET with `Last-Event-ID`."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from pegboard.errors import StoreDown
from pegboard.protocol.framing import sse
from pegboard.server.exchange.exchanges import STREAM
from pegboard.server.exchange.session_exchange import RETRY_MS
from pegboard.server.http_types import Headers, Sink
from pegboard.sessions.resumable_streams import SessionStreams

_log = logging.getLogger("pegboard.server")

_CLEANUP_SECONDS: Final = 0.5


class ResumedStream:
    """Sends the stream of a call that was made on another connection; it counts as a call, since it ends with one."""

    def __init__(self, sink: Sink, headers: Headers) -> None:
        self._sink = sink
        self._headers = headers
        self._task: asyncio.Task[object] | None = None
        self._started = False
        self._gone = False
        self._last = ""
        self._retry_ms: int | None = None
        self.streaming = True
        self.closing = False
        self.since = 0.0

    async def run(self, streams: SessionStreams, last: str) -> bool:
        """Send what the client has not seen, until the stream or the connection ends; False if there is no such stream."""
        self._task = asyncio.current_task()
        self._last = last
        self._sink.on_gone(self._leave)
        try:
            if not await streams.holds(last):
                self._task = None
                return False
            # "The server MUST send each of its JSON-RPC messages on only one of the connected streams" (Multiple
            # Connections): the previous connection has ended when this one starts.
            await streams.take_over(last)
            self._begin()
            await streams.follow(last, self, self._write)
        except ConnectionError:
            self._gone = True
        except StoreDown as problem:
            _log.warning("a stream could not be resumed: %s", problem)
            self._retry_ms = RETRY_MS
        except asyncio.CancelledError:
            # The client has disconnected, another connection carries the stream, or the server shuts down. Only this
            # connection ends.
            if self.closing and not self._gone:
                self._begin()
                await self._close_gracefully(streams)
        self._task = None
        if not self._gone:
            self._begin()
            if self.closing or self._retry_ms is not None:
                self._sink.write(sse.retry(RETRY_MS if self._retry_ms is None else self._retry_ms))
            self._sink.end()
        return True

    def keep_alive(self) -> None:
        """Send a keep-alive to the client and the proxies in between."""
        if self._started and self._task is not None and not self._gone:
            self._sink.write(sse.KEEP_ALIVE)

    def detach_connection(self, retry_ms: int | None) -> None:
        """The stream continues on another connection, or later."""
        self._retry_ms = retry_ms
        if self._task is not None:
            self._task.cancel()

    async def _close_gracefully(self, streams: SessionStreams) -> None:
        """The call is cancelled too, and its response is about to come."""
        try:
            async with asyncio.timeout(_CLEANUP_SECONDS):
                await streams.follow(self._last, self, self._write)
        except (TimeoutError, asyncio.CancelledError):
            pass
        except ConnectionError:
            self._gone = True

    def _begin(self) -> None:
        if not self._started:
            self._started = True
            self._sink.start(200, STREAM + self._headers)

    def _leave(self) -> None:
        self._gone = True
        if self._task is not None:
            self._task.cancel()

    async def _write(self, event: bytes, event_id: str) -> None:
        self._last = event_id
        if not self._sink.write(event):
            await self._sink.drain()
