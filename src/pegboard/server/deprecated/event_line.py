"""An event stream that all calls of one client share."""

from __future__ import annotations

from pegboard.protocol.framing import sse
from pegboard.server.http_types import Sink


class EventLine:
    """Writes messages as events to an open stream; what comes after its end is dropped."""

    __slots__ = ("_full", "_next", "_open", "_sink")

    def __init__(self, sink: Sink, *, numbered: bool = False) -> None:
        self._sink = sink
        self._next = 1 if numbered else 0
        self._full = False
        self._open = True

    @property
    def open(self) -> bool:
        """Whether the client may still read what is written."""
        return self._open

    @property
    def full(self) -> bool:
        """Whether the reader lags behind."""
        return self._full

    def write(self, message: bytes) -> None:
        self.write_event("message", message)

    def write_event(self, name: str, data: bytes) -> None:
        """Write an event of another type."""
        if not self._open:
            return
        event_id = None
        if self._next:
            event_id = str(self._next)
            self._next += 1
        self._full = not self._sink.write(sse.event(data, event_id, name))

    async def drain(self) -> None:
        """Wait until the reader has caught up, or has disconnected, which ends the stream and calls back."""
        try:
            await self._sink.drain()
        except ConnectionError:
            self._open = False
        self._full = False

    def keep_alive(self) -> None:
        """Send a keep-alive to the client and the proxies in between."""
        if self._open:
            self._sink.write(sse.KEEP_ALIVE)

    def leave(self) -> None:
        """The client has disconnected: write nothing more."""
        self._open = False

    def close(self) -> None:
        """End the stream gracefully."""
        if self._open:
            self._open = False
            self._sink.end()
