"""A connection of our server with its limits: write buffer, slow readers, the memory account.

Connections have no timers. Their owner sweeps them about once a second, and the sweep is also the clock: between two
sweeps the time does not advance.
"""

from __future__ import annotations

import asyncio
from typing import Final

from pegboard.limits import Limits
from pegboard.server.http.connections import SMALL_WRITE, Connections

# How long input is read and dropped after the last response: closing at once would reset the connection and lose it.
LINGER_SECONDS: Final = 2.0


class LimitedConnection(asyncio.Protocol):
    """The common part of HTTP and WebSocket connections.

    `full` while the peer lags behind with reading, `_leaving` once nothing more is served, `_lost` once the peer has
    disconnected.
    """

    __slots__ = (
        "_connections", "_heavy", "_leaving", "_limits", "_lost", "_mark", "_room", "_since", "_transport", "_written", "full",
    )  # fmt: skip

    _transport: asyncio.Transport

    def __init__(self, limits: Limits, connections: Connections) -> None:
        self._limits = limits
        self._connections = connections
        self._since = connections.now
        self._leaving = False
        self._lost = False
        self._heavy = False
        self._mark = 0
        # The size of the last large write.
        self._written = SMALL_WRITE
        self._room: asyncio.Event | None = None
        self.full = False

    @property
    def busy(self) -> bool:
        """Whether it has received a request and not yet sent the response."""
        return False

    @property
    def held(self) -> int:
        """The bytes of memory that the connection holds now."""
        raise NotImplementedError

    def pause_writing(self) -> None:
        self.full = True
        self._since = self._connections.now
        self._mark = self._transport.get_write_buffer_size()
        if self._room is not None:
            self._room.clear()
        self.weigh()

    def resume_writing(self) -> None:
        self.full = False
        self._since = self._connections.now
        self.weigh()
        if self._room is not None:
            self._room.set()

    async def drain(self) -> None:
        """Wait until the peer has read enough, or has disconnected."""
        if self.full and not self._lost:
            if self._room is None:
                self._room = asyncio.Event()
            await self._room.wait()

    def note(self, size: int) -> None:
        """Count the write buffer after a large write of this size."""
        self._written = size
        self.weigh()

    def weigh(self) -> None:
        """Update the account of this connection."""
        self._heavy = self._connections.weigh(self)

    def check(self, now: float) -> None:
        """Enforce the limits of the connection; called by each sweep."""
        unsent = self._transport.get_write_buffer_size()
        if self._heavy or unsent:
            # Small writes are counted here only.
            self.weigh()
        else:
            self._written = SMALL_WRITE
        if self._leaving or self._lost:
            if now - self._since > (self._limits.write_seconds if unsent else LINGER_SECONDS):
                self._transport.abort()
        elif not self.full:
            self._check_input(now)
        elif unsent <= self._mark - self._limits.write_buffer:
            self._mark = unsent
            self._since = now
        elif now - self._since > self._limits.write_seconds:
            # The peer has read less than a buffer in the time allowed.
            self._transport.abort()

    def _check_input(self, now: float) -> None:
        """Reject a peer that sends too slowly, or nothing."""

    def close(self) -> None:
        """Close when everything written has been sent."""
        self._leaving = True
        self._since = self._connections.now
        self._transport.close()

    def abort(self) -> None:
        """Close now."""
        self._transport.abort()

    def drop_buffers(self) -> None:
        """Drop all buffered data: there is no room for it."""
        self._transport.abort()

    def _forget(self) -> None:
        """Remove a lost connection from the account and from the open ones."""
        connections = self._connections
        connections.live.discard(self)
        connections.forget(self)
        if connections.changed is not None:
            connections.changed()
        connections.notify_if_quiet()
