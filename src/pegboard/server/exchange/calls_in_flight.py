"""The running calls of an endpoint, their limits, and the periodic keep-alive."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import islice
from typing import Any, Final, Protocol, TypeVar

from pegboard.call import Call
from pegboard.errors import Busy
from pegboard.limits import Limits
from pegboard.logs.log_lines import announce_lines
from pegboard.server.eager_task import start
from pegboard.server.exchange.exchanges import LongRunning, shutting_down
from pegboard.server.http.connections import LIGHT

T = TypeVar("T")

_KEEP_ALIVE_SECONDS: Final = 15.0
_CLEANUP_SECONDS: Final = 1.0

_DEPTH: Final = 40
_NAMES: Final = 5


def announce_wait(tasks: Iterable[asyncio.Task[Any]], seconds: float) -> None:
    """Print what is waited for, and how to stop at once."""
    names = Counter(map(_called, tasks))
    if not names or seconds <= 0:
        return
    shown = [f"{name} ×{count}" if count > 1 else name for name, count in islice(names.items(), _NAMES)]
    if len(names) > _NAMES:
        shown.append("…")
    again = "; press Ctrl+C again to stop now" if sys.stderr is not None and sys.stderr.isatty() else ""
    calls = "1 call" if names.total() == 1 else f"{names.total()} calls"
    announce_lines([f"shutting down: waiting up to {seconds:g} s for {calls} ({', '.join(shown)}){again}"])


def _called(task: asyncio.Task[Any]) -> str:
    """The name of the tool that a task runs, found in the frames of its coroutines."""
    coroutine: Any = task.get_coro()
    for _ in range(_DEPTH):
        frame = getattr(coroutine, "cr_frame", None)
        call = None if frame is None else frame.f_locals.get("call")
        if isinstance(call, Call):
            return call.name or call.method
        coroutine = getattr(coroutine, "cr_await", None)
    return "a request"


class OpenStream(Protocol):
    """An open stream without a call: it is kept alive, and ended at shutdown."""

    since: float

    def keep_alive(self) -> None: ...

    def end(self) -> None: ...


class CallsInFlight:
    """Admits calls while there is room, keeps them and all other streams alive, and ends them at shutdown.

    `reap` is called in each sweep; `later` returns whether there will be something to reap although no call is running.
    """

    def __init__(
        self,
        limits: Limits,
        reap: Callable[[], object],
        loop: asyncio.AbstractEventLoop | None = None,
        later: Callable[[], object] = bool,
    ) -> None:
        self._limits = limits
        self._reap = reap
        self._later = later
        self._given_loop = self._loop = loop
        self._sweeping = False
        # None: admitted, but not started.
        self.running: dict[LongRunning, asyncio.Task[Any] | None] = {}
        self.followers: set[OpenStream] = set()
        # The waiting calls of each principal; those of anonymous callers are not counted, since they have nothing in common.
        self._counts: Counter[str] = Counter()
        # The bytes left for further large requests.
        self._room = limits.call_bytes
        self.draining = False

    def check_room(self, size: int = 0) -> None:
        """Reject a call if there is no room for it; `size` is the size of its request."""
        if self.draining:
            raise shutting_down()
        if len(self.running) >= self._limits.calls:
            raise Busy(f"{self._limits.calls} calls are already running; try again later", retry_after=1)
        if size > LIGHT and size > self._room:
            raise Busy("The requests of the running calls are too large together; try again later", retry_after=1)

    @contextmanager
    def holding(self, size: int) -> Iterator[None]:
        """Count a request of that size until the block ends; the caller has checked that there is room for it."""
        counted = size if size > LIGHT else 0
        self._room -= counted
        try:
            yield
        finally:
            self._room += counted

    def _check_principal(self, principal: str) -> None:
        if principal and self._counts[principal] >= self._limits.calls_per_caller:
            most = self._limits.calls_per_caller
            raise Busy(f"{most} calls of this principal are already running; try again later", retry_after=1)

    def _count(self, principal: str, change: int) -> None:
        self._counts[principal] += change
        if not self._counts[principal]:
            del self._counts[principal]

    def run(
        self, exchange: LongRunning, walk: Coroutine[Any, Any, T], size: int, principal: str = ""
    ) -> T | asyncio.Task[T]:
        """Run a call if there is room; returns its result, or its task if it is not done.

        `size` is the size of its request, `principal` the id of the principal that it counts for.
        """
        if self.draining or len(self.running) >= self._limits.calls or size > self._room or principal in self._counts:
            try:
                self.check_room(size)
                self._check_principal(principal)
            except Busy:
                walk.close()
                raise
        loop = asyncio.get_running_loop()
        task = start(walk, loop=loop)
        if task.done():
            return task.result()
        loop = self._given_loop or loop
        exchange.since = loop.time()
        self.running[exchange] = task
        # The task is passed as the default of `pop`, so the callback runs no function of ours.
        task.add_done_callback(partial(self.running.pop, exchange))
        if principal:
            self._count(principal, 1)
            task.add_done_callback(lambda _: self._count(principal, -1))
        if size > LIGHT:
            self._room -= size
            task.add_done_callback(lambda _: self._free(size))
        if loop is not self._loop or not self._sweeping:
            self._start(loop)
        return task

    def _free(self, size: int) -> None:
        self._room += size

    def admit(self, exchange: LongRunning, principal: str = "") -> None:
        """Admit a call if there is room for one more; the caller must run it, and then release it."""
        if self.draining or len(self.running) >= self._limits.calls:
            self.check_room()
        if principal:
            self._check_principal(principal)
            self._count(principal, 1)
        loop = self._given_loop or asyncio.get_running_loop()
        exchange.since = loop.time()
        self.running[exchange] = None
        if loop is not self._loop or not self._sweeping:
            self._start(loop)

    def release(self, exchange: LongRunning, principal: str = "") -> None:
        """An admitted call has ended."""
        del self.running[exchange]
        if principal:
            self._count(principal, -1)

    def follow(self, subscriber: OpenStream) -> None:
        """Keep a stream alive until `forget` is called."""
        if self.draining:
            raise shutting_down()
        loop = self._given_loop or asyncio.get_running_loop()
        subscriber.since = loop.time()
        self.followers.add(subscriber)
        self._start(loop)

    def schedule_sweep(self) -> None:
        """Make sure that a sweep runs: there will be something to reap."""
        if not self._sweeping:
            self._start(self._given_loop or asyncio.get_running_loop())

    def forget(self, subscriber: OpenStream) -> None:
        """Remove a stream that has ended."""
        self.followers.discard(subscriber)

    async def drain(self, seconds: float, hurried: asyncio.Event) -> None:
        """Reject new calls, let the running ones finish, and cancel the rest when time is up."""
        self.draining = True
        for subscriber in tuple(self.followers):
            subscriber.end()
        announce_wait((task for task in self.running.values() if task is not None), seconds)
        hurry = asyncio.ensure_future(hurried.wait())
        await asyncio.wait({hurry, asyncio.ensure_future(self._wait(seconds))}, return_when=asyncio.FIRST_COMPLETED)
        hurry.cancel()
        for exchange, task in list(self.running.items()):
            if task is not None:
                exchange.closing = True
                task.cancel()
        await self._wait(_CLEANUP_SECONDS)

    async def _wait(self, seconds: float) -> None:
        running = [task for task in self.running.values() if task is not None]
        if running:
            await asyncio.wait(running, timeout=seconds)

    def _start(self, loop: asyncio.AbstractEventLoop) -> None:
        if loop is not self._loop:
            # The event loop may be a new one, as in tests; the sweep of the previous loop ended with it.
            self._loop, self._sweeping = loop, False
        if not self._sweeping:
            self._sweeping = True
            loop.call_later(1.0, self._sweep, loop)

    def _sweep(self, loop: asyncio.AbstractEventLoop) -> None:
        """One timer for all: open the streams of calls that have been silent, and keep the open ones alive."""
        now = loop.time()
        self._reap()
        for exchange in tuple(self.running):
            if now - exchange.since >= (_KEEP_ALIVE_SECONDS if exchange.streaming else self._limits.quiet_seconds):
                exchange.since = now
                exchange.keep_alive()
        for subscriber in tuple(self.followers):
            if now - subscriber.since >= _KEEP_ALIVE_SECONDS:
                subscriber.since = now
                subscriber.keep_alive()
        self._sweeping = bool(self.running or self.followers or self._later())
        if self._sweeping:
            loop.call_later(1.0, self._sweep, loop)
