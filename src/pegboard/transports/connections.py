"""What the connections of one server share, and the sweep that keeps time for all of them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from email.utils import formatdate
from typing import Protocol

from pegboard.limits import Limits


class Connection(Protocol):
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


class Connections:
    """The limits of all connections, the clock they are judged by, the date they state."""

    __slots__ = ("_clock", "_wall", "changed", "date", "keep", "limits", "live", "now", "quiet")

    def __init__(
        self,
        limits: Limits,
        *,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        changed: Callable[[], object] | None = None,
    ) -> None:
        self.limits = limits
        self.live: set[Connection] = set()
        self.keep = True
        self.quiet: asyncio.Event | None = None
        self.changed = changed
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

    def settle(self) -> None:
        """Tell whoever waits for quiet, if it is quiet."""
        if self.quiet is not None and not self.busy:
            self.quiet.set()
