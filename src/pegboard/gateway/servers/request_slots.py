"""Limits the concurrent and waiting requests of one server."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from pegboard.errors import Busy
from pegboard.fair_slots import FairSlots

MAX_WAITING: Final = 256


class RequestSlots:
    """Serves callers in turn, and the requests of one caller in order of arrival; rejects a request if too many wait.

    `owner` is the account of the caller, or empty for requests of the gateway itself.
    """

    def __init__(self, name: str, size: int, waiting: int = MAX_WAITING) -> None:
        self._name = name
        self._slots = FairSlots[asyncio.Future[None]](size, waiting)

    @property
    def taken(self) -> int:
        """How many requests have a slot."""
        return self._slots.taken

    @property
    def waiting(self) -> int:
        """How many requests wait for a slot."""
        return self._slots.waiting

    def take_now(self, owner: str = "") -> bool:
        """Take a slot if one is free for this caller."""
        slots = self._slots
        if owner or slots.waiting or slots.taken >= slots.size:
            return slots.take(owner)
        slots.taken += 1
        return True

    async def take(self, seconds: float, owner: str = "") -> None:
        """Wait for a slot, at most this long; raises Busy if there is none."""
        if self.take_now(owner):
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        removed = self._slots.displace(owner)
        if removed is not None and not removed.done():
            removed.set_exception(self._full())
        if not self._slots.wait(owner, turn):
            raise self._full()
        try:
            async with asyncio.timeout(seconds):
                await turn
        except TimeoutError:
            self._leave(turn, owner)
            raise Busy(f"The server {self._name!r} was busy for {seconds:g} s", retry_after=1) from None
        except BaseException:
            self._leave(turn, owner)
            raise

    def resize(self, size: int) -> None:
        """Have so many slots from now on; requests that hold one keep it."""
        self._slots.size = size
        self._pass_on()

    def free(self, owner: str = "") -> None:
        """Return a slot; the next waiting request gets it."""
        if owner or self._slots.waiting:
            self._slots.free(owner)
            self._pass_on()
        else:
            self._slots.taken -= 1

    def _pass_on(self) -> None:
        while (granted := self._slots.grant()) is not None:
            owner, turn = granted
            if turn.done():
                # Its caller has left and does not know yet that it had a turn.
                self._slots.free(owner)
            else:
                turn.set_result(None)

    @contextmanager
    def released(self, owner: str = "") -> Iterator[None]:
        """Let another request use the slot meanwhile.

        It is taken back without waiting, so there may be one too many for a while: an answer that a server waits for
        must not wait for that server.
        """
        self.free(owner)
        try:
            yield
        finally:
            self._slots.take_back(owner)

    def _full(self) -> Busy:
        most = self._slots.most_waiting
        return Busy(f"The server {self._name!r} is busy, and {most} calls wait for it already", retry_after=1)

    def _leave(self, turn: asyncio.Future[None], owner: str) -> None:
        if self._slots.leave(owner, turn):
            turn.cancel()
        elif turn.done() and not turn.cancelled() and turn.exception() is None:
            # It got a slot and does not need it any more.
            self.free(owner)
