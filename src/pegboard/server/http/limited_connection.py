"""A connection of our server, held to its limits: write buffer, slow readers, the memory account.

No connection has a timer. The owner of the connections sweeps them about once a second, and the sweep is also the clock:
between two sweeps the time stands still.
"""

from __future__ import annotations

import asyncio
from typing import Final

from pegboard.limits import Limits
from pegboard.server.http.connections import SMALL_WRITE, Connections

# How long input is read and dropped after the last response: closing at once would reset the connection and could lose it.
LINGER_SECONDS: Final = 2.0


class LimitedConnection(asyncio.Protocol):
    """What HTTP and WebSocket connections have in common.

    `full` while the peer is behind with reading, `_leaving` once nothing more is served, `_lost` once the peer is gone.
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
        """Whether a request has come that is not yet answered."""
        return False

    @property
    def held(self) -> int:
        """How many bytes of memory the connection holds now."""
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
        """Wait until the peer has read enough of what was written, or is gone."""
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
        """Hold the connection to its limits; called by each sweep."""
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
        """Let go of everything that is buffered: there is no room for it."""
        self._transport.abort()

    def _forget(self) -> None:
        """Remove a connection that is lost from the account and from the open ones."""
        connections = self._connections
        connections.live.discard(self)
        connections.forget(self)
        if connections.changed is not None:
            connections.changed()
        connections.notify_if_quiet()
