"""The processes that share a store, and the messages between them.

Theory of operation. Every process sends heartbeats and has one inbox; modules register for the kinds of messages they
expect. Some messages need no reply. Others ask every process to do something and wait, for a limited time, until all
live ones have confirmed; a process that does not answer in time is stuck or dying. A process whose own heartbeat was
overdue, or whose inbox overflowed, may have missed messages, and notifies the owners of cached copies.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from copy import copy
from itertools import count
from typing import Final, TypeAlias

import msgspec
from msgspec import Struct

from pegboard.errors import StoreDown
from pegboard.limits import Limits
from pegboard.stores.store import Store
from pegboard.stores.workers import Workers

_log = logging.getLogger("pegboard.stores")

_ANSWER: Final = "done"
_REPLY_SECONDS: Final = 0.25
_CACHED_SECONDS: Final = 0.5

Hear: TypeAlias = Callable[[bytes], Awaitable[bytes] | None]
"""Takes what was said; what it comes to is the answer to whoever waits for one."""


class _ClusterMessage(Struct, array_like=True):
    """`number` is 0 where nobody waits for an answer."""

    kind: str
    sender: str
    number: int
    said: bytes


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_ClusterMessage).decode


class Cluster:
    """This process among the others that share its store."""

    def __init__(self, store: Store, limits: Limits, clock: Callable[[], float] = time.monotonic) -> None:
        self._workers = Workers(store, limits)
        self.me = self._workers.me
        self.lease = limits.worker_seconds
        self._clock = clock
        self._handlers: dict[str, Hear] = {}
        self._lapsed: list[Callable[[], object]] = []
        self._numbers = count(1)
        self._asked: dict[tuple[int, str], asyncio.Future[bytes]] = {}
        self._living: tuple[float, frozenset[str]] = (-1.0, frozenset())
        self._beating: asyncio.Task[None] | None = None
        self._at_work: set[asyncio.Task[None]] = set()
        self._prefix = ""

    def within(self, prefix: str) -> Cluster:
        """The same crew for a part of this process: what it says is heard by that part of the others only."""
        part = copy(self)
        part._prefix = self._prefix + prefix
        return part

    async def start(self) -> None:
        """Be one of them."""
        await self._workers.beat()
        self._workers.receive(self._take, self._report_lapse)
        self._beating = asyncio.get_running_loop().create_task(self._send_heartbeats(self._clock()))

    async def close(self) -> None:
        """Be none of them any more, and let the others know."""
        tasks = [*self._at_work, *(() if self._beating is None else (self._beating,))]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        await self._workers.stop()
        try:
            await self._workers.leave()
        except StoreDown:
            # They will notice.
            _log.warning("the other processes could not be told that this one ends")

    def on_message(self, kind: str, handler: Hear) -> None:
        """Have what is said of that kind brought there."""
        self._handlers[self._prefix + kind] = handler

    def on_lapse(self, callback: Callable[[], object]) -> None:
        """Call this when the process may have missed messages: others took it for dead, or its inbox overflowed."""
        self._lapsed.append(callback)

    async def is_alive(self, worker: str) -> bool:
        """Whether that process lives, as of a moment ago."""
        if worker == self.me:
            return True
        seen, living = self._living
        now = self._clock()
        if now - seen > _CACHED_SECONDS:
            living = frozenset(await self._workers.living())
            self._living = now, living
        return worker in living

    async def send_to(self, worker: str, kind: str, said: bytes) -> bool:
        """Send a message to one process; False if it is not alive."""
        return await self._workers.send(worker, _encode(_ClusterMessage(self._prefix + kind, self.me, 0, said)))

    async def broadcast(self, kind: str, said: bytes) -> None:
        """Say something to all others."""
        message = _encode(_ClusterMessage(self._prefix + kind, self.me, 0, said))
        await asyncio.gather(*(self._workers.send(worker, message) for worker in await self._others()))

    async def ask(self, worker: str, kind: str, said: bytes, seconds: float = _REPLY_SECONDS) -> bytes | None:
        """What one of them answers; None where it is gone or silent."""
        return (await self._ask([worker], kind, said, seconds)).get(worker)

    async def ask_others(self, kind: str, said: bytes, seconds: float = _REPLY_SECONDS) -> Mapping[str, bytes]:
        """What each of the others answers, of those who do in time."""
        return await self._ask(await self._others(), kind, said, seconds)

    async def _others(self) -> list[str]:
        # Asked anew each time: one that has just come may already have read what is about to change.
        return [worker for worker in await self._workers.living() if worker != self.me]

    async def _ask(self, workers: list[str], kind: str, said: bytes, seconds: float) -> Mapping[str, bytes]:
        if not workers:
            return {}
        loop = asyncio.get_running_loop()
        number = next(self._numbers)
        message = _encode(_ClusterMessage(self._prefix + kind, self.me, number, said))
        waiting = {worker: loop.create_future() for worker in workers}
        self._asked.update({(number, worker): future for worker, future in waiting.items()})
        try:
            sent = await asyncio.gather(*(self._workers.send(worker, message) for worker in workers))
            there = [waiting[worker] for worker, is_alive in zip(workers, sent, strict=True) if is_alive]
            if there:
                await asyncio.wait(there, timeout=seconds)
        finally:
            for worker in workers:
                self._asked.pop((number, worker), None)
        answered = {worker: future.result() for worker, future in waiting.items() if future.done()}
        if len(answered) < len(there):
            _log.warning("%d of %d other processes did not answer in time", len(there) - len(answered), len(there))
        return answered

    def _take(self, message: bytes) -> None:
        word = _decode(message)
        if word.kind == _ANSWER:
            waiting = self._asked.get((word.number, word.sender))
            if waiting is not None and not waiting.done():
                waiting.set_result(word.said)
            return
        handler = self._handlers.get(word.kind)
        answering = None if handler is None else handler(word.said)
        if answering is None and not word.number:
            return
        task = asyncio.get_running_loop().create_task(self._answer(word, answering))
        self._at_work.add(task)
        task.add_done_callback(self._at_work.discard)

    async def _answer(self, word: _ClusterMessage, answering: Awaitable[bytes] | None) -> None:
        try:
            said = b"" if answering is None else await answering
            if word.number:
                await self._workers.send(word.sender, _encode(_ClusterMessage(_ANSWER, self.me, word.number, said)))
        except StoreDown as problem:
            _log.warning("another process could not be answered: %s", problem)
        except Exception:  # noqa: BLE001 — one that cannot be taken must not end the others
            _log.exception("what another process said could not be taken")

    async def _send_heartbeats(self, last: float) -> None:
        while True:
            await asyncio.sleep(self.lease / 3)
            self._check(last)
            try:
                await self._workers.beat()
            except StoreDown as problem:
                _log.warning("this process could not say that it lives: %s", problem)
                continue
            self._check(last)
            last = self._clock()

    def _check(self, last: float) -> None:
        late = self._clock() - last - self.lease
        if late > 0:
            _log.warning("this process was taken for dead for %.1f seconds", late)
            self._report_lapse()

    def _report_lapse(self) -> None:
        for callback in self._lapsed:
            callback()


class SharedStore(Struct, frozen=True):
    """A store that other processes use too, or will, and this one among them."""

    store: Store
    cluster: Cluster
