"""State that the connections share: buffered bytes, and the periodic sweep.

Each connection may buffer a lot in either direction before its own limits end it: half of a request, or a response that
its peer does not read. If all connections together hold too much, the one that has held something for longest is
dropped first: a connection that makes progress soon leaves the table.

The count is memory, not bytes on the wire: a header line of six bytes takes 150 as Python objects.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from email.utils import formatdate
from typing import Final, Protocol

from pegboard.limits import Limits
from pegboard.server.http_types import LIGHT

SMALL_WRITE: Final = 512
"""The assumed size of a write that was not counted by itself."""
_WRITE_COST: Final = 48


def unsent(transport: asyncio.WriteTransport, piece: int) -> int:
    """The memory of the write buffer of a transport, given the size of its last write: a partly sent write is kept whole."""
    size = transport.get_write_buffer_size()
    return -(-size // piece) * (piece + _WRITE_COST) if size else 0


class OpenConnection(Protocol):
    """A connection as its owner sees it."""

    @property
    def busy(self) -> bool:
        """Whether it has received a request and not yet sent the response."""

    @property
    def held(self) -> int:
        """The bytes of memory that the connection holds now."""

    def check(self, now: float) -> None:
        """Enforce the limits of the connection."""

    def close(self) -> None:
        """Close when everything written has been sent."""

    def abort(self) -> None:
        """Close now."""

    def drop_buffers(self) -> None:
        """Drop all buffered data: there is no room for it."""


class Connections:
    """The limits of all connections, their clock, and the current Date header."""

    __slots__ = (
        "_clock",
        "_dropping",
        "_held",
        "_wall",
        "_weight",
        "changed",
        "date",
        "keep",
        "limits",
        "live",
        "now",
        "quiet",
    )

    def __init__(
        self,
        limits: Limits,
        *,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        changed: Callable[[], object] | None = None,
    ) -> None:
        self.limits = limits
        self.live: set[OpenConnection] = set()
        self.keep = True
        self.quiet: asyncio.Event | None = None
        self.changed = changed
        # The connection that has held something for longest is the first.
        self._held: dict[OpenConnection, int] = {}
        self._weight = 0
        self._dropping = False
        self._clock = clock
        self._wall = wall
        self.tick()

    @property
    def busy(self) -> int:
        """The number of connections with an unanswered request."""
        return sum(connection.busy for connection in self.live)

    @property
    def weight(self) -> int:
        """The bytes of memory that all connections hold, without those below `LIGHT`."""
        return self._weight

    def tick(self) -> None:
        """Read the clock."""
        self.now = self._clock()
        self.date = b"date: " + formatdate(self._wall(), usegmt=True).encode() + b"\r\n"

    def sweep(self) -> None:
        """Read the clock, and enforce the limits of every connection."""
        self.tick()
        now = self.now
        for connection in tuple(self.live):
            connection.check(now)

    def weigh(self, connection: OpenConnection) -> bool:
        """Update what a connection holds; returns whether it is counted, and must be updated when it changes."""
        return self._count(connection, connection.held)

    def forget(self, connection: OpenConnection) -> None:
        """Remove a connection from the account."""
        self._count(connection, 0)

    def _count(self, connection: OpenConnection, size: int) -> bool:
        held = self._held
        if size <= LIGHT:
            self._weight -= held.pop(connection, 0)
            return False
        self._weight += size - held.get(connection, 0)
        held[connection] = size
        if self._weight > self.limits.buffered_bytes and not self._dropping:
            self._dropping = True
            # Not before the next turn of the loop: much of what was written in this one is about to be sent.
            asyncio.get_running_loop().call_soon(self._drop_buffers)
        return True

    def _drop_buffers(self) -> None:
        """Make room, after checking again what each connection holds: its peer may have read the rest by now."""
        most = self.limits.buffered_bytes
        while self._weight > most:
            connection = next(iter(self._held))
            if self.weigh(connection) and self._weight > most:
                self.forget(connection)
                connection.drop_buffers()
        self._dropping = False

    def notify_if_quiet(self) -> None:
        """Set the `quiet` event if no connection is busy."""
        if self.quiet is not None and not self.busy:
            self.quiet.set()
