"""The processes that share a store: which ones are alive, and the messages between them.

Theory of operation. Every process sends heartbeats and has one inbox; modules register for the kinds of messages they
expect. Some messages need no reply. Others ask every process to do something and wait, for a limited time, until all
live ones have confirmed; a process that does not answer in time is stuck or dying. A process whose own heartbeat was
overdue, or whose inbox overflowed, may have missed messages, and notifies the owners of cached copies.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from copy import copy
from itertools import count
from typing import Final, TypeAlias

import msgspec
from msgspec import Struct

from pegboard.background_tasks import OwnedTasks, end_tasks
from pegboard.errors import StoreDown
from pegboard.limits import Limits
from pegboard.stores.store import Store, new_worker, wait_for_hint

_log = logging.getLogger("pegboard.stores")

_ANSWER: Final = "done"
_REPLY_SECONDS: Final = 0.25
_CACHED_SECONDS: Final = 0.5

Hear: TypeAlias = Callable[[bytes], Awaitable[bytes] | None]
"""Handles the payload of a message; the bytes it returns are the reply, if the sender waits for one."""

_PAGE: Final = 100
_ALL: Final = 2**53

Receiver: TypeAlias = Callable[[bytes], object]
"""Called with a message in the event loop; it must return at once."""


class Workers:
    """This process among those that share a store.

    A worker is alive while it holds a lease of its name, and its inbox is a feed that only accepts messages while the
    lease is held. Messages arrive in the order they were sent; those to a process that dies are lost with it.
    """

    def __init__(self, store: Store, limits: Limits) -> None:
        self.me = new_worker()
        self._feeds = store.feeds
        self._leases = store.leases
        self._lease_seconds = limits.worker_seconds
        self._keep = limits.worker_messages
        self._inbox = _inbox(self.me)
        self._received = self._trimmed = -1
        self._task: asyncio.Task[None] | None = None

    async def beat(self) -> None:
        """Renew the lease of this process; due every third of `worker_seconds`."""
        await self._leases.renew(self.me, self._lease_seconds)

    async def leave(self) -> None:
        """End the lease of this process, and delete its messages."""
        await asyncio.gather(self._leases.release(self.me), self._feeds.trim(self._inbox, _ALL))

    async def living(self) -> Sequence[str]:
        """All live processes; this one is among them after its first beat."""
        return await self._leases.holders()

    async def send(self, worker: str, message: bytes) -> bool:
        """Put a message into the inbox of a worker; False if it is not alive.

        The store keeps the message as it is: a session must be named by its digest.
        """
        number = await self._feeds.publish(_inbox(worker), message, keep=self._keep, holder=worker)
        return number is not None

    def receive(self, receiver: Receiver, on_lost: Callable[[], object]) -> None:
        """Call the receiver with each message to this process, and `on_lost` when the inbox had overflowed."""
        self._task = asyncio.get_running_loop().create_task(self._receive(receiver, on_lost))

    async def stop(self) -> None:
        """Stop receiving; further messages wait in the inbox."""
        task, self._task = self._task, None
        await end_tasks(task)

    async def _receive(self, receiver: Receiver, on_lost: Callable[[], object]) -> None:
        published = asyncio.Event()
        published.set()
        end_watch = self._feeds.watch(self._inbox, published.set)
        try:
            while True:
                await wait_for_hint(published, self._lease_seconds)
                try:
                    while await self._receive_page(receiver, on_lost):
                        pass
                except StoreDown as problem:
                    _log.warning("the inbox of this process cannot be read: %s", problem)
        finally:
            end_watch()

    async def _receive_page(self, receiver: Receiver, on_lost: Callable[[], object]) -> bool:
        """Deliver a page of messages and delete the previous page; returns whether there are more."""
        after = self._received
        reading = self._feeds.read(self._inbox, after, _PAGE)
        if after > self._trimmed:
            page, _ = await asyncio.gather(reading, self._feeds.trim(self._inbox, after))
            self._trimmed = after
        else:
            page = await reading
        if page.lost and after >= 0:
            _log.warning("messages to this process were lost")
            on_lost()
        for entry in page.entries:
            self._received = entry.seq
            try:
                receiver(entry.data)
            except Exception:  # noqa: BLE001 — a message that cannot be processed must not stop the next one
                _log.exception("a message of another process could not be processed")
        return page.more


def _inbox(worker: str) -> str:
    return f"inbox:{worker}"


class _ClusterMessage(Struct, array_like=True):
    """`number` is 0 if the sender does not wait for a reply."""

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
        self._at_work = OwnedTasks()
        self._prefix = ""
        self.in_touch = True
        """Whether the last heartbeat could be sent."""
        self._lapse_logged = False

    def within(self, prefix: str) -> Cluster:
        """A view of this cluster for one part of the process: its messages reach only the same part of the others."""
        part = copy(self)
        part._prefix = self._prefix + prefix
        return part

    async def start(self) -> None:
        """Join the cluster and begin to send heartbeats."""
        await self._workers.beat()
        self._workers.receive(self._take, self._report_lapse)
        self._beating = asyncio.get_running_loop().create_task(self._send_heartbeats(self._clock()))

    async def close(self) -> None:
        """Leave the cluster, and let the other processes know."""
        await end_tasks(*self._at_work, self._beating)
        await self._workers.stop()
        try:
            await self._workers.leave()
        except StoreDown:
            # They notice when the lease expires.
            _log.warning("the other processes could not be notified that this one ends")

    def on_message(self, kind: str, handler: Hear) -> None:
        """Register the handler for messages of that kind."""
        self._handlers[self._prefix + kind] = handler

    def on_lapse(self, callback: Callable[[], object]) -> None:
        """Call this when the process may have missed messages: others took it for dead, or its inbox overflowed."""
        self._lapsed.append(callback)

    async def is_alive(self, worker: str) -> bool:
        """Whether that process is alive; the answer may be up to half a second old."""
        return worker == self.me or worker in await self.members()

    async def members(self) -> frozenset[str]:
        """All live processes; the answer may be up to half a second old."""
        seen, living = self._living
        now = self._clock()
        if now - seen > _CACHED_SECONDS:
            living = frozenset(await self._workers.living()) | {self.me}
            self._living = now, living
        return living

    async def send_to(self, worker: str, kind: str, payload: bytes) -> bool:
        """Send a message to one process; False if it is not alive."""
        return await self._workers.send(worker, _encode(_ClusterMessage(self._prefix + kind, self.me, 0, payload)))

    async def broadcast(self, kind: str, payload: bytes) -> None:
        """Send a message to all other processes."""
        message = _encode(_ClusterMessage(self._prefix + kind, self.me, 0, payload))
        await asyncio.gather(*(self._workers.send(worker, message) for worker in await self._others()))

    async def ask(self, worker: str, kind: str, payload: bytes, seconds: float = _REPLY_SECONDS) -> bytes | None:
        """The reply of one process; None if it is not alive or does not reply in time."""
        return (await self._ask([worker], kind, payload, seconds)).get(worker)

    async def ask_others(self, kind: str, payload: bytes, seconds: float = _REPLY_SECONDS) -> Mapping[str, bytes]:
        """The replies of the other processes, by name; those that do not reply in time are missing."""
        return await self._ask(await self._others(), kind, payload, seconds)

    async def _others(self) -> list[str]:
        # Read again each time: a process that has just started may already have read what is about to change.
        return [worker for worker in await self._workers.living() if worker != self.me]

    async def _ask(self, workers: list[str], kind: str, payload: bytes, seconds: float) -> Mapping[str, bytes]:
        if not workers:
            return {}
        loop = asyncio.get_running_loop()
        number = next(self._numbers)
        message = _encode(_ClusterMessage(self._prefix + kind, self.me, number, payload))
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
            _log.warning("%d of %d other processes did not reply in time", len(there) - len(answered), len(there))
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
        self._at_work.start(self._answer(word, answering))

    async def _answer(self, word: _ClusterMessage, answering: Awaitable[bytes] | None) -> None:
        try:
            answer = b"" if answering is None else await answering
            if word.number:
                await self._workers.send(word.sender, _encode(_ClusterMessage(_ANSWER, self.me, word.number, answer)))
        except StoreDown as problem:
            _log.warning("a reply to another process could not be sent: %s", problem)
        except Exception:  # noqa: BLE001 — a message that cannot be handled must not affect the others
            _log.exception("a message of another process could not be handled")

    async def _send_heartbeats(self, last: float) -> None:
        while True:
            await asyncio.sleep(self.lease / 3)
            self._check(last)
            try:
                await self._workers.beat()
            except StoreDown as problem:
                if self.in_touch:
                    # Once for an outage, which may last for days.
                    _log.warning("the heartbeat of this process could not be sent: %s", problem)
                self.in_touch = False
                continue
            self._check(last)
            last = self._clock()
            if not self.in_touch:
                _log.info("the heartbeat of this process can be sent again")
            self.in_touch, self._lapse_logged = True, False

    def _check(self, last: float) -> None:
        late = self._clock() - last - self.lease
        if late > 0:
            if not self._lapse_logged:
                self._lapse_logged = True
                _log.warning("this process is considered dead by others: its heartbeat is %.1f s late", late)
            self._report_lapse()

    def _report_lapse(self) -> None:
        for callback in self._lapsed:
            callback()


class SharedStore(Struct, frozen=True):
    """A store that several processes can use, and this process as a member of the cluster."""

    store: Store
    cluster: Cluster
