"""How long a call is waited for: the deadlines that all of its retries, questions and resumptions share.

Theory of operation. It is `asyncio.timeout` for a deadline that moves often and rarely comes: the timer is left as it is
when the deadline moves on, and looks again when it fires. Then the task is cancelled, and what leaves the block because of
that, and of no other cancellation, is turned into a TimeoutError.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Self


class Patience:
    """The deadlines of one call: so long without news, so long in all; what its own side takes to answer is not counted.

    `expired` says that one of them has passed.
    """

    __slots__ = ("_cancelling", "_end", "_held", "_loop", "_quiet", "_since", "_task", "_timer", "_until", "expired")

    _since: float
    _cancelling: int
    _task: asyncio.Task[object] | None
    _timer: asyncio.TimerHandle | None

    def __init__(self, quiet: float, longest: float) -> None:
        self._loop = asyncio.get_running_loop()
        now = self._loop.time()
        self._quiet = quiet
        self._end = now + longest
        self._until = now + min(quiet, longest)
        self._held = 0
        self.expired = False

    def __enter__(self) -> Self:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 — whoever waits is a task
        self._task = task
        self._cancelling = task.cancelling()
        self._timer = self._loop.call_at(self._until, self._look)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exception: BaseException | None, traceback: TracebackType | None
    ) -> None:
        task, self._task = self._task, None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self.expired and task is not None and task.uncancel() <= self._cancelling and kind is asyncio.CancelledError:
            raise TimeoutError from exception

    def left(self) -> float:
        """How many seconds remain if no news comes."""
        return math.inf if self._held else self._until - self._loop.time()

    def news(self) -> None:
        """Something came: the wait begins anew."""
        if not self._held:
            self._until = min(self._loop.time() + self._quiet, self._end)

    def hold(self) -> None:
        """What is waited for now is not to be done by who is timed."""
        if not self._held:
            self._since = self._loop.time()
        self._held += 1

    def release(self) -> None:
        """It is their turn again."""
        self._held -= 1
        if not self._held:
            self._end += self._loop.time() - self._since
            self.news()
            if self._timer is None and self._task is not None and not self.expired:
                self._timer = self._loop.call_at(self._until, self._look)

    def _look(self) -> None:
        self._timer = None
        if self._task is None or self._held:
            return
        if self._loop.time() < self._until:
            self._timer = self._loop.call_at(self._until, self._look)
            return
        self.expired = True
        self._task.cancel()


@contextmanager
def held(waits: Collection[Patience]) -> Iterator[None]:
    """Deadlines that stand still meanwhile."""
    stopped = list(waits)
    for patience in stopped:
        patience.hold()
    try:
        yield
    finally:
        for patience in stopped:
            patience.release()
