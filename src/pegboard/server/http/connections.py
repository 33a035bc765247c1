"""What the connections of one server share, and the sweep that keeps time for all of them.

Each connection may hold back a lot, in either direction, before its own limits end it: half of a request, or an answer that
its peer does not read. Where all together hold too much, the one that has done so for longest makes room: who gets on with
it is gone from the table soon.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from email.utils import formatdate
from typing import Final, Protocol

from pegboard.limits import Limits

_LIGHT: Final = 4096
"""So many bytes are not counted: nearly every request is smaller, and ten thousand of them are no burden."""


class OpenConnection(Protocol):
    """A connection as its owner sees it."""

    @property
    def busy(self) -> bool:
        """Whether a request has come that is not yet answered."""

    def check(self, now: float) -> None:
        """Hold the connection to its limits."""

    def close(self) -> None:
        """Close when everything written has been sent."""

    def abort(self) -> None:
        """Close now."""

    def drop_buffers(self) -> None:
        """Let go of all that is held back: there is no room for it."""


class Connections:
    """The limits of all connections, the clock they are judged by, the date they state."""

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
        # The one that has held something for longest is the first.
        self._held: dict[OpenConnection, int] = {}
        self._weight = 0
        self._dropping = False
        self._clock = clock
        self._wall = wall
        self.tick()

    @property
    def busy(self) -> int:
        """How many connections owe an answer."""
        return sum(connection.busy for connection in self.live)

    def tick(self) -> None:
        """Let time pass."""
        self.now = self._clock()
        self.date = b"date: " + formatdate(self._wall(), usegmt=True).encode() + b"\r\n"

    def sweep(self) -> None:
        """Let time pass, and hold every connection to its limits."""
        self.tick()
        now = self.now
        for connection in tuple(self.live):
            connection.check(now)

    def weigh(self, connection: OpenConnection, size: int) -> bool:
        """A connection holds so many bytes back; whether they are counted, and are to be weighed anew when they change."""
        held = self._held
        if size <= _LIGHT:
            self._weight -= held.pop(connection, 0)
            return False
        self._weight += size - held.get(connection, 0)
        held[connection] = size
        if self._weight > self.limits.buffered_bytes and not self._dropping:
            self._dropping = True
            # Not before the next turn: much of what was written in this one is about to be taken.
            asyncio.get_running_loop().call_soon(self._drop_buffers)
        return True

    def _drop_buffers(self) -> None:
        self._dropping = False
        while self._weight > self.limits.buffered_bytes:
            connection = next(iter(self._held))
            self._weight -= self._held.pop(connection)
            connection.drop_buffers()

    def notify_if_quiet(self) -> None:
        """Tell whoever waits for quiet, if it is quiet."""
        if self.quiet is not None and not self.busy:
            self.quiet.set()
