"""The lanes to one server: one that all share, or one for each who calls."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Hashable
from typing import Final

from pegboard.errors import Busy, Unreachable
from pegboard.gateway.servers.lane import Lane

LANES: Final = 64
"""How many who call have a lane of their own at a time."""
IDLE_SECONDS: Final = 300.0
STOP_SECONDS: Final = 3.0

_log = logging.getLogger("pegboard.gateway")

OURS: Final = None
"""The key of the lane that is the gateway's own."""


class Pool:
    """Makes a lane when it is first needed; those that nobody has used for a while are closed, but for our own."""

    def __init__(self, name: str, make: Callable[[Hashable], Lane], idle_seconds: float = IDLE_SECONDS) -> None:
        self._name = name
        self._make = make
        self._idle_seconds = idle_seconds
        self._lanes: dict[Hashable, Lane] = {}
        self._closing: dict[asyncio.Task[None], Lane] = {}
        self._sweeping: asyncio.TimerHandle | None = None
        self._spawns = 0
        self._closed = False

    @property
    def spawns(self) -> int:
        """How many processes were started, of lanes that are closed too."""
        return self._spawns + sum(lane.spawns for lane in (*self._lanes.values(), *self._closing.values()))

    def __len__(self) -> int:
        return len(self._lanes)

    def lane(self, key: Hashable = OURS) -> Lane:
        """The lane of that key; Busy where there are too many and all of them are in use, Unreachable once closed."""
        lane = self._lanes.get(key)
        if lane is None:
            if self._closed:
                raise Unreachable(f"{self._name}: is stopped")
            if len(self._lanes) > LANES:
                self._make_room()
            lane = self._lanes[key] = self._make(key)
            if key is not OURS and self._sweeping is None:
                self._sweep_later()
        lane.used_at = asyncio.get_running_loop().time()
        return lane

    def drop(self, key: Hashable) -> None:
        """Close a lane, soon; the next who needs it gets a new one."""
        lane = self._lanes.pop(key, None)
        if lane is not None:
            task = asyncio.create_task(lane.close())
            self._closing[task] = lane
            task.add_done_callback(self._close)

    async def close(self) -> None:
        """Close them all, and wait for those that were dropped."""
        self._closed = True
        if self._sweeping is not None:
            self._sweeping.cancel()
        for key in list(self._lanes):
            self.drop(key)
        if self._closing:
            _, late = await asyncio.wait(self._closing, timeout=STOP_SECONDS)
            for task in late:
                task.cancel()

    def _close(self, closed: asyncio.Task[None]) -> None:
        self._spawns += self._closing.pop(closed).spawns
        if not closed.cancelled() and (problem := closed.exception()) is not None:
            _log.error("%s: could not be closed in order", self._name, exc_info=problem)

    def _make_room(self) -> None:
        unused = [key for key, lane in self._lanes.items() if key is not OURS and not lane.users]
        if not unused:
            raise Busy(f"The server {self._name!r} is used by {LANES} others at once", retry_after=5)
        self.drop(min(unused, key=lambda key: self._lanes[key].used_at))

    def _sweep_later(self) -> None:
        self._sweeping = asyncio.get_running_loop().call_later(self._idle_seconds / 2, self._sweep)

    def _sweep(self) -> None:
        self._sweeping = None
        before = asyncio.get_running_loop().time() - self._idle_seconds
        for key, lane in list(self._lanes.items()):
            if key is not OURS and not lane.users and lane.used_at <= before:
                self.drop(key)
        if any(key is not OURS for key in self._lanes):
            self._sweep_later()
