"""The thread pool for synchronous tools.

Theory of operation. A job needs one of `limit` slots, which callers get in turn. A job with a slot goes into the queue of
the threads, and one more thread starts if none is idle.
A finished job goes into the result queue of its loop, and the first one since the loop last looked wakes the loop, so
many results cause one wake-up. A cancelled caller returns at once; its thread cannot be stopped and keeps its slot
until the function returns. A thread that waits for an answer from a person lends its slot to another thread, or a few
open questions would stop all synchronous tools; when it continues, there is one thread too many, and the next one that
finishes ends. The threads are daemons, so a function that never returns does not keep the process alive. An idle thread
refers to the queue and not to the pool, so a pool that is no longer used is deleted, which ends its threads.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import SimpleQueue
from time import perf_counter
from typing import Any

from msgspec import Struct, field

from pegboard.call import Call
from pegboard.errors import ToolError
from pegboard.fair_slots import FairSlots


class Raised:
    """An exception of a function, distinct from a returned one."""

    __slots__ = ("exception",)

    def __init__(self, exception: BaseException) -> None:
        self.exception = exception


class ResultQueue:
    """The finished jobs of one event loop, until it collects them."""

    __slots__ = ("_finished", "_woken", "loop")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._finished: deque[tuple[asyncio.Future[Any], Any]] = deque()
        self._woken = False

    def put(self, future: asyncio.Future[Any], outcome: Any) -> None:
        """Add an outcome, from any thread."""
        self._finished.append((future, outcome))
        if not self._woken:
            self._woken = True
            try:
                self.loop.call_soon_threadsafe(self._collect)
            except RuntimeError:
                return  # the loop is closed, so no caller waits for it

    def _collect(self) -> None:
        # Cleared before the deque is read, so that an outcome added after our last look wakes the loop again.
        self._woken = False
        finished = self._finished
        while finished:
            future, outcome = finished.popleft()
            if not future.done():
                future.set_result(outcome)


class ThreadJob(Struct, eq=False):
    """One function that runs in a thread; the pool's lock guards its state."""

    pool: Threads
    future: asyncio.Future[Any]
    results: ResultQueue
    function: Callable[..., Any]
    args: tuple[Any, ...]
    owner: str
    context: contextvars.Context = field(default_factory=contextvars.copy_context)
    queued: float = 0.0
    waited: float = 0.0
    begun: bool = False
    returned: bool = False
    left: asyncio.Future[None] | None = None


class Threads:
    """A pool of threads, started on demand, shared by all event loops."""

    def __init__(self, limit: int, waiting: int, resting: int = 0) -> None:
        self._limit = limit
        self._max_resting = resting
        # The jobs that have a slot; None ends the thread that takes it.
        self._jobs: SimpleQueue[ThreadJob | None] = SimpleQueue()
        self._slots = FairSlots[ThreadJob](limit, waiting)
        self._lock = threading.Lock()
        self._started = 0
        self._unfinished = 0
        self._abandoned = 0
        self._resting = 0
        self._results: ResultQueue | None = None

    @property
    def busy(self) -> int:
        """How many threads are busy, including those whose caller has left."""
        return self._unfinished

    @property
    def abandoned(self) -> int:
        """How many threads are busy for a caller that has left."""
        return self._abandoned

    async def run(
        self,
        function: Callable[..., Any],
        *args: Any,
        owner: str = "",
        call: Call | None = None,
        on_leave: Callable[[asyncio.Future[None]], None] | None = None,
    ) -> Any:
        """Run the function in a thread, in a copy of the current context; raises what the function raises.

        `owner` is the account that it counts for; `call` gets a note if it had to wait for a thread. If cancelled while the function runs, calls `on_leave` with a future
        that is done when the function returns.
        """
        loop = asyncio.get_running_loop()
        results = self._results
        if results is None or results.loop is not loop:
            results = self._results = ResultQueue(loop)
        job = ThreadJob(self, loop.create_future(), results, function, args, owner)
        slots = self._slots
        with self._lock:
            if owner or slots.waiting or slots.taken >= slots.size or self._abandoned:
                self._enter(job)
            else:
                slots.taken += 1
                self._begin(job)
        try:
            outcome = await job.future
        except asyncio.CancelledError:
            left = self._leave(job)
            if left is not None and on_leave is not None:
                on_leave(left)
            raise
        if job.waited and call is not None:
            call.note_wait("thread", job.waited)
        if type(outcome) is Raised:
            raise outcome.exception
        return outcome

    def _enter(self, job: ThreadJob) -> None:
        if self._abandoned >= self._limit:
            raise ToolError(f"busy: all {self._limit} threads are held by cancelled calls; try again later")
        if self._slots.take(job.owner):
            self._begin(job)
            return
        removed = self._slots.displace(job.owner)
        if removed is not None:
            removed.results.put(removed.future, Raised(self._full()))
        if not self._slots.wait(job.owner, job):
            raise self._full()
        job.queued = perf_counter()

    def _full(self) -> ToolError:
        waiting = self._slots.most_waiting
        return ToolError(f"busy: all {self._limit} threads are in use and {waiting} calls wait; try again later")

    def _begin(self, job: ThreadJob) -> None:
        """Hand a job that has a slot to a thread."""
        self._unfinished += 1
        if self._started < self._unfinished:
            self._started += 1
            _PoolThread(self._jobs, self._started).start()
        self._jobs.put(job)

    def _begin_waiting(self) -> None:
        while (granted := self._slots.grant()) is not None:
            job = granted[1]
            job.waited = perf_counter() - job.queued
            self._begin(job)

    def release(self) -> None:
        """End the idle threads; later jobs start new ones."""
        with self._lock:
            idle = max(0, self._started - self._unfinished)
            self._started -= idle
        for _ in range(idle):
            self._jobs.put(None)

    def __del__(self) -> None:
        # A job holds its pool, so all threads are idle now. Do not take the lock: garbage collection may have
        # interrupted code that holds it, and nothing else uses this pool.
        for _ in range(self._started):
            self._jobs.put(None)

    @contextmanager
    def lend_slot(self, owner: str) -> Iterator[None]:
        """Let another thread run in place of this one, which waits; not if too many wait already."""
        with self._lock:
            lent = self._resting < self._max_resting
            if lent:
                self._resting += 1
                self._slots.free(owner)
                self._begin_waiting()
        try:
            yield
        finally:
            if lent:
                with self._lock:
                    self._resting -= 1
                    self._slots.take_back(owner)

    def _leave(self, job: ThreadJob) -> asyncio.Future[None] | None:
        with self._lock:
            if self._slots.leave(job.owner, job) or not job.begun or job.returned:
                return None
            job.left = job.results.loop.create_future()
            self._abandoned += 1
            return job.left

    def perform(self, job: ThreadJob) -> bool:
        """Run a job in this thread; returns whether the thread is still needed."""
        with self._lock:
            # The caller left before a thread took its job: do not start the function.
            job.begun = not job.future.cancelled()
        outcome: Any = None
        if job.begun:
            try:
                outcome = job.context.run(job.function, *job.args)
            except BaseException as exception:  # noqa: BLE001 — an author's SystemExit ends the call, not the thread
                outcome = Raised(exception)
        # Before the caller learns of it: this thread may hold the job a moment longer than its caller expects.
        del job.function, job.args, job.context
        # Counted before the caller learns of it, since its next call must find this thread free.
        with self._lock:
            job.returned = True
            self._unfinished -= 1
            if job.left is not None:
                self._abandoned -= 1
            if job.owner or self._slots.waiting:
                self._slots.free(job.owner)
                self._begin_waiting()
            else:
                self._slots.taken -= 1
            surplus = self._started > self._unfinished and self._started - self._resting > self._limit
            if surplus:
                self._started -= 1
        if job.left is None:
            job.results.put(job.future, outcome)
        else:
            job.results.put(job.left, None)
        return not surplus


class _PoolThread(threading.Thread):
    """A thread that runs jobs from a queue, and knows its current job."""

    def __init__(self, jobs: SimpleQueue[ThreadJob | None], number: int) -> None:
        super().__init__(name=f"pegboard-{number}", daemon=True)
        self._jobs = jobs
        self.job: ThreadJob | None = None

    def run(self) -> None:
        needed = True
        while needed:
            job = self._jobs.get()
            if job is None:
                return
            self.job = job
            needed = job.pool.perform(job)
            # A thread that waits for its next job must not keep the last one, or the pool, alive.
            self.job = None
            del job


@contextmanager
def waiting_outside() -> Iterator[None]:
    """While this thread waits for an outside event, a pool thread lends its place."""
    thread = threading.current_thread()
    if isinstance(thread, _PoolThread) and thread.job is not None:
        with thread.job.pool.lend_slot(thread.job.owner):
            yield
    else:
        yield
