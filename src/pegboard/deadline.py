"""Deadlines of a call, shared by its retries, questions and resumed streams.

Theory of operation. This is `asyncio.timeout` for deadlines that move often and rarely pass. All deadlines of a loop
share one timer, set for the nearest. When that deadline moves or is met, the timer stays; when it fires, it checks all
deadlines and is set for the next one. The task of a passed deadline is cancelled, and that cancellation, but no other,
leaves the block as a TimeoutError.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Self
from weakref import WeakKeyDictionary, ref


class _Timers:
    """The timer of a loop, to which it has only a weak reference, so that the loop can be garbage-collected."""

    __slots__ = ("loop", "nearest", "waiting")

    def __init__(self, loop: Callable[[], asyncio.AbstractEventLoop | None]) -> None:
        self.loop = loop
        self.waiting: set[Deadline] = set()
        self.nearest = math.inf

    def set(self, when: float, loop: asyncio.AbstractEventLoop) -> None:
        """Look at all deadlines at that time."""
        self.nearest = when
        loop.call_at(when, self._look, when)

    def _look(self, when: float) -> None:
        if when != self.nearest:
            # An earlier timer has been set since, and checks all waiters.
            return
        loop = asyncio.get_running_loop()
        now, self.nearest = loop.time(), math.inf
        for deadline in [waiting for waiting in self.waiting if waiting.until <= now]:
            self.waiting.discard(deadline)
            deadline.expire()
        nearest = min((waiting.until for waiting in self.waiting), default=math.inf)
        if nearest < math.inf:
            self.set(nearest, loop)


_timers: WeakKeyDictionary[asyncio.AbstractEventLoop, _Timers] = WeakKeyDictionary()
# Those of the loop that was asked for last: most processes have one loop, and the dict takes longer than a deadline.
_latest = _Timers(lambda: None)


def _timers_of(loop: asyncio.AbstractEventLoop) -> _Timers:
    global _latest  # noqa: PLW0603 — the cache of this function
    timers = _timers.get(loop)
    if timers is None:
        timers = _timers[loop] = _Timers(ref(loop))
    _latest = timers
    return timers


class Deadline:
    """The deadlines of one call: a limit without news and a limit in total, not counting the time its own side is asked.

    `seconds` is the shorter limit, `until` the time of the loop's clock when it ends without news, infinite while it is
    paused; `expired` says that one of the limits has passed.
    """

    _since: float
    _cancelling: int
    _held = 0
    _task: asyncio.Task[object] | None = None
    expired = False

    def __init__(self, quiet: float, longest: float) -> None:
        self._loop = loop = asyncio.get_running_loop()
        timers = _latest
        self._timers = timers if timers.loop() is loop else _timers_of(loop)
        now = loop.time()
        self.seconds = min(quiet, longest)
        self._quiet = quiet
        self._end = now + longest
        self.until = now + self.seconds

    def __enter__(self) -> Self:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 — only a task can wait
        self._task = task
        self._cancelling = task.cancelling()
        timers, until = self._timers, self.until
        timers.waiting.add(self)
        if until < timers.nearest:
            timers.set(until, self._loop)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exception: BaseException | None, traceback: TracebackType | None
    ) -> None:
        task, self._task = self._task, None
        self._timers.waiting.discard(self)
        if self.expired and task is not None and task.uncancel() <= self._cancelling and kind is asyncio.CancelledError:
            raise TimeoutError from exception

    def left(self) -> float:
        """How many seconds remain if no news comes."""
        return self.until - self._loop.time()

    def extend(self) -> None:
        """News came: restart the wait."""
        if not self._held:
            self.until = min(self._loop.time() + self._quiet, self._end)

    def pause(self) -> None:
        """Pause: the peer waits for us."""
        if not self._held:
            self._since = self._loop.time()
            self.until = math.inf
        self._held += 1

    def resume(self) -> None:
        """Continue: we wait for the peer again."""
        self._held -= 1
        if not self._held:
            self._end += self._loop.time() - self._since
            self.extend()
            if self._task is not None and not self.expired:
                self._timers.waiting.add(self)
                if self.until < self._timers.nearest:
                    self._timers.set(self.until, self._loop)

    def expire(self) -> None:
        """The timer fired."""
        if self._task is not None:
            self.expired = True
            self._task.cancel()


@contextmanager
def paused(waits: Collection[Deadline]) -> Iterator[None]:
    """Pause these deadlines for the duration of the block."""
    stopped = list(waits)
    for deadline in stopped:
        deadline.pause()
    try:
        yield
    finally:
        for deadline in stopped:
            deadline.resume()
