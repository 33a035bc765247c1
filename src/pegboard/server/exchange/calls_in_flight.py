"""The running calls of an endpoint, their limits, and the periodic keep-alive."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import islice
from typing import Any, Final, Protocol, TypeVar

from pegboard.accounts.account import Account
from pegboard.accounts.accounts import Accounts, CountedCaller
from pegboard.call import Call
from pegboard.errors import Busy, Refusal
from pegboard.limits import Limits
from pegboard.logs.log_lines import announce_lines
from pegboard.server.access import NO_ACCESS
from pegboard.server.eager_task import start
from pegboard.server.exchange.exchanges import LongRunning, shutting_down
from pegboard.server.http_types import LIGHT

T = TypeVar("T")

_KEEP_ALIVE_SECONDS: Final = 15.0
_CLEANUP_SECONDS: Final = 1.0

_DEPTH: Final = 40
_NAMES: Final = 5


def announce_wait(tasks: Iterable[asyncio.Task[Any]], seconds: float, *, replaced: bool = False) -> None:
    """Print what is waited for: at shutdown with how to stop at once, or after a newer version has replaced this one."""
    names = Counter(map(_called, tasks))
    if not names or seconds <= 0:
        return
    shown = [f"{name} ×{count}" if count > 1 else name for name, count in islice(names.items(), _NAMES)]
    if len(names) > _NAMES:
        shown.append("…")
    calls = "1 call" if names.total() == 1 else f"{names.total()} calls"
    if replaced:
        announce_lines([f"the previous version finishes {calls} ({', '.join(shown)}), for up to {seconds:g} s"])
        return
    again = "; press Ctrl+C again to stop now" if sys.stderr is not None and sys.stderr.isatty() else ""
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


class RunningExchange(LongRunning, Protocol):
    """The exchange of a call, as far as it can be rejected before the call begins."""

    def refuse(self, refusal: Refusal) -> Any: ...

    def end_cancelled(self) -> Any: ...

    def add_headers(self, headers: tuple[tuple[bytes, bytes], ...]) -> None: ...


class OpenStream(Protocol):
    """An open stream without a call: it is kept alive, and ended at shutdown; `account` is what it counts for."""

    since: float

    @property
    def account(self) -> str: ...

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
        accounts: Accounts | None = None,
    ) -> None:
        self._limits = limits
        self.accounts = Accounts(limits) if accounts is None else accounts
        self._reap = reap
        self._later = later
        self._given_loop = self._loop = loop
        self._sweeping = False
        # None: admitted, but not started.
        self.running: dict[LongRunning, asyncio.Task[Any] | None] = {}
        self.followers: set[OpenStream] = set()
        # The bytes left for further large requests.
        self._room = limits.call_bytes
        self.draining = False
        self.rejected = 0

    def check_room(self, size: int = 0) -> None:
        """Reject a call if there is no room for it; `size` is the size of its request."""
        if self.draining:
            raise shutting_down()
        if len(self.running) >= self._limits.calls:
            self.rejected += 1
            raise Busy(f"{self._limits.calls} calls are already running; try again later", retry_after=1)
        if size > LIGHT and size > self._room:
            self.rejected += 1
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

    def charge(self, caller: CountedCaller, size: int) -> Awaitable[None] | None:
        """Charge a request to its caller, whose quota may reject it now or when the result has been awaited."""
        account = self.accounts.of(caller)
        return None if account is None else account.enter(size)

    def run(
        self,
        exchange: RunningExchange,
        walk: Coroutine[Any, Any, T],
        size: int,
        caller: CountedCaller = NO_ACCESS,
        account: Account | None = None,
    ) -> T | asyncio.Task[T]:
        """Run a call if there is room; returns its result, or its task if it is not done.

        `size` is the size of its request, and `caller` the caller that it counts for; `account` is the account of one whose
        request was charged already.
        """
        if self.draining or len(self.running) >= self._limits.calls or size > self._room or caller.account:
            try:
                self.check_room(size)
                if account is None and (account := self.accounts.of(caller)) is not None:
                    pending = account.enter(size)
                    if pending is not None:
                        waiting = self._run_later(pending, exchange, walk, size, caller, account)
                        return start(waiting, loop=asyncio.get_running_loop())
                    headers = account.low_headers()
                    if headers:
                        exchange.add_headers(headers)
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
        if account is not None:
            held = account
            held.held["calls"] += 1
            task.add_done_callback(lambda _: held.give_back("calls"))
        if size > LIGHT:
            self._room -= size
            task.add_done_callback(lambda _: self._free(size))
        if loop is not self._loop or not self._sweeping:
            self._start(loop)
        return task

    async def _run_later(
        self,
        pending: Awaitable[None],
        exchange: RunningExchange,
        walk: Coroutine[Any, Any, T],
        size: int,
        caller: CountedCaller,
        account: Account,
    ) -> T:
        """Run a call whose caller has to wait for its share, or for its rejection."""
        try:
            await pending
            served = self.run(exchange, walk, size, caller, account)
        except Refusal as refusal:
            walk.close()
            rejected: T = exchange.refuse(refusal)
            return rejected
        except asyncio.CancelledError:
            walk.close()
            ended: T = exchange.end_cancelled()
            return ended
        return await served if isinstance(served, asyncio.Task) else served

    def _free(self, size: int) -> None:
        self._room += size

    async def admit_for(self, caller: CountedCaller, exchange: LongRunning, size: int) -> None:
        """Admit a call of that size and charge it to its caller; `release_for` ends it."""
        account = self.accounts.of(caller)
        pending = None if account is None else account.enter(size)
        if pending is not None:
            await pending
        self.admit(exchange)
        if account is not None:
            account.held["calls"] += 1

    def release_for(self, caller: CountedCaller, exchange: LongRunning) -> None:
        """An admitted call of that caller has ended."""
        self.release(exchange)
        account = self.accounts.of(caller)
        if account is not None:
            account.give_back("calls")

    def admit(self, exchange: LongRunning) -> None:
        """Admit a call if there is room for one more; the caller must run it, and then release it."""
        if self.draining or len(self.running) >= self._limits.calls:
            self.check_room()
        loop = self._given_loop or asyncio.get_running_loop()
        exchange.since = loop.time()
        self.running[exchange] = None
        if loop is not self._loop or not self._sweeping:
            self._start(loop)

    def release(self, exchange: LongRunning) -> None:
        """An admitted call has ended."""
        del self.running[exchange]

    def follow(self, subscriber: OpenStream) -> None:
        """Keep a stream alive until `forget` is called."""
        if self.draining:
            raise shutting_down()
        account = self.accounts.named(subscriber.account)
        if account is not None and not account.take("streams"):
            raise account.exceeded("streams")
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
        if subscriber in self.followers:
            self.followers.discard(subscriber)
            account = self.accounts.find(subscriber.account)
            if account is not None:
                account.give_back("streams")

    async def drain(self, seconds: float, hurried: asyncio.Event, *, replaced: bool = False) -> None:
        """Reject new calls, let the running ones finish, and cancel the rest when time is up."""
        self.draining = True
        for subscriber in tuple(self.followers):
            subscriber.end()
        announce_wait((task for task in self.running.values() if task is not None), seconds, replaced=replaced)
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
