"""Limits the concurrent and waiting requests of one server."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from pegboard.errors import Busy

MAX_WAITING: Final = 256


class RequestSlots:
    """Serves requests in order of arrival; rejects a request if too many are waiting."""

    def __init__(self, name: str, size: int, waiting: int = MAX_WAITING) -> None:
        self._name = name
        self._size = size
        self._most = waiting
        self._waiting: deque[asyncio.Future[None]] = deque()
        self.taken = 0

    def take_now(self) -> bool:
        """Take a slot if one is free and no request waits."""
        if self.taken >= self._size or self._waiting:
            return False
        self.taken += 1
        return True

    async def take(self, seconds: float) -> None:
        """Wait for a slot, at most this long; raises Busy if there is none."""
        if self.take_now():
            return
        if len(self._waiting) >= self._most:
            raise Busy(f"The server {self._name!r} is busy, and {self._most} calls wait for it already", retry_after=1)
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            async with asyncio.timeout(seconds):
                await turn
        except TimeoutError:
            self._leave(turn)
            raise Busy(f"The server {self._name!r} was busy for {seconds:g} s", retry_after=1) from None
        except BaseException:
            self._leave(turn)
            raise

    def resize(self, size: int) -> None:
        """Have so many slots from now on; requests that hold one keep it."""
        self._size = size
        self._pass_on()

    def free(self) -> None:
        """Return a slot; the next waiting request gets it."""
        self.taken -= 1
        self._pass_on()

    def _pass_on(self) -> None:
        while self._waiting and self.taken < self._size:
            turn = self._waiting.popleft()
            if not turn.done():
                self.taken += 1
                turn.set_result(None)

    @contextmanager
    def released(self) -> Iterator[None]:
        """Let another request use the slot meanwhile.

        It is taken back without waiting, so there may be one too many for a while: an answer that a server waits for
        must not wait for that server.
        """
        self.free()
        try:
            yield
        finally:
            self.taken += 1

    def _leave(self, turn: asyncio.Future[None]) -> None:
        if turn.done() and not turn.cancelled():
            # It got a slot and does not need it any more.
            self.free()
            return
        turn.cancel()
        if turn in self._waiting:
            self._waiting.remove(turn)
