"""The processes that share a store: which ones are alive, and an inbox for each."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from pegboard.background_tasks import end_tasks
from pegboard.errors import StoreDown
from pegboard.limits import Limits
from pegboard.stores.identifiers import new_worker
from pegboard.stores.store import Store, wait_for_hint

_log = logging.getLogger("pegboard.stores")

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
