"""Threads for synchronous tools: bounded, daemonic, with one wake-up of the loop for all that finished meanwhile.

Theory of operation. Jobs wait in one queue; a thread is started when a job comes and none is idle, up to the limit.
A finished job goes onto a deque, and the first to put one there since the loop last looked wakes the loop: however
many finish together, the loop is woken once. A caller that is cancelled leaves at once; its thread cannot be stopped
and keeps its place until the function returns. The threads are daemons, so a function that never returns does not
keep the process from ending.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, TypeAlias

from pegboard.errors import ToolError

_Job: TypeAlias = tuple["asyncio.Future[Any]", contextvars.Context, Callable[..., Any], tuple[Any, ...]]


class Raised:
    """What a function raised in its thread, kept apart from what it returned."""

    __slots__ = ("exception",)

    def __init__(self, exception: BaseException) -> None:
        self.exception = exception


class Threads:
    """A pool of threads for one event loop, started when first needed."""

    def __init__(self, limit: int, waiting: int) -> None:
        self._limit = limit
        self._waiting = waiting
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._finished: deque[tuple[asyncio.Future[Any], Any]] = deque()
        self._lock = threading.Lock()
        self._started = 0
        self._unfinished = 0
        self._woken = False
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def busy(self) -> int:
        """How many threads are at work, those whose caller has left included."""
        return min(self._unfinished, self._started)

    async def run(self, function: Callable[..., Any], *args: Any) -> Any:
        """Run the function in a thread, in a copy of this call's context; raises what it raises."""
        loop = self._loop
        if loop is None:
            loop = self._loop = asyncio.get_running_loop()
        with self._lock:
            spare = self._started - self._unfinished
            if spare <= 0 and self._started < self._limit:
                self._started += 1
                threading.Thread(target=self._work, name=f"pegboard-{self._started}", daemon=True).start()
            elif -spare >= self._waiting:
                raise ToolError(
                    f"busy: all {self._limit} threads are at work and {self._waiting} calls wait; try again later"
                )
            self._unfinished += 1
        future: asyncio.Future[Any] = loop.create_future()
        self._jobs.put((future, contextvars.copy_context(), function, args))
        outcome = await future
        if type(outcome) is Raised:
            raise outcome.exception
        return outcome

    def close(self) -> None:
        """Let the threads end as they become idle."""
        for _ in range(self._started):
            self._jobs.put(None)

    def _work(self) -> None:
        while True:
            job = self._jobs.get()
            if job is None:
                return
            future, context, function, args = job
            outcome: Any = None
            # A caller that left while its job waited has nobody to tell: the function is not begun.
            if not future.cancelled():
                try:
                    outcome = context.run(function, *args)
                except BaseException as exception:  # noqa: BLE001 — an author's SystemExit ends the call, not the thread
                    outcome = Raised(exception)
            del job, context, function, args
            # Counted before told: whoever is told may come back at once and shall find this thread free.
            with self._lock:
                self._unfinished -= 1
            self._tell(future, outcome)
            del future, outcome

    def _tell(self, future: asyncio.Future[Any], outcome: Any) -> None:
        self._finished.append((future, outcome))
        if not self._woken:
            self._woken = True
            loop = self._loop
            if loop is not None and not loop.is_closed():
                try:
                    loop.call_soon_threadsafe(self._collect)
                except RuntimeError:
                    return  # the loop closed between the two lines

    def _collect(self) -> None:
        # Lowered before the deque is read: what is put there after our last look wakes the loop again.
        self._woken = False
        finished = self._finished
        while finished:
            future, outcome = finished.popleft()
            if not future.done():
                future.set_result(outcome)
