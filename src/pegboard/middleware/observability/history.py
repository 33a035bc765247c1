"""Keeps the latest calls of a server, of all its processes, so that people can look at them.

Theory of operation. Calls wait in a ring until someone looks. With a store, they are also stored every second, at most
`STORED_PER_SECOND` of them, so that the cost stays bounded, whatever the number of calls; the feed of the store is the history
of all processes. Without a store, the feed is in the memory of this process, and nothing is moved to it until someone looks.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Final

from pegboard.background_tasks import OwnedTasks, end_tasks
from pegboard.errors import StoreDown
from pegboard.hooks.middleware import Middleware
from pegboard.limits import Limits
from pegboard.middleware.observability.call_feed import MAX_BATCH_BYTES, CallFeed, StoredCall, split_batches
from pegboard.middleware.observability.call_masking import CallMasking
from pegboard.middleware.observability.call_ring import CallRing, KeptCall
from pegboard.stores.memory import MemoryStore
from pegboard.stores.store import Store

MAX_CALLS: Final = 5000
MAX_BYTES: Final = 32 * 2**20
RING_CALLS: Final = 2000
STORED_PER_SECOND: Final = 500
MAX_TEXT: Final = 16_000
"""The length from which a text of an argument or result is cut."""
_STORE_SECONDS: Final = 1.0
_FEW: Final = 20

_log = logging.getLogger("pegboard.history")


class History(Middleware):
    """Keeps the latest calls of a board or gateway; the console and `pegboard history` show them.

    calls: about how many calls are kept.
    max_bytes: about how large they may be together; as much may wait in memory.
    names: further names of arguments whose values are masked.
    store: whether they are kept in the store of the server, if it has one; otherwise in memory.
    """

    def __init__(
        self, calls: int = MAX_CALLS, max_bytes: int = MAX_BYTES, *, names: Iterable[str] = (), store: bool = True
    ) -> None:
        self._calls, self._max_bytes, self._stores = calls, max_bytes, store
        self._masking = CallMasking(names, MAX_TEXT)
        self._ring = CallRing(min(calls, RING_CALLS), max_bytes)
        self._report = self._ring.report
        self._feed = self._own_feed()
        self._shared = self._is_down = False
        self._tasks = OwnedTasks()
        self._moving = asyncio.Lock()

    def use_store(self, store: Store) -> None:
        # A gateway has several boards; the first one has the whole store.
        if self._stores and not self._shared:
            self._feed = CallFeed(store.feeds, self._calls, self._max_bytes)
            self._shared = True

    async def start(self) -> None:
        """Store calls from now on."""
        self._moving = asyncio.Lock()
        if self._shared:
            self._tasks.start(self._store_regularly())

    async def stop(self) -> None:
        """Store what is left; what comes later is kept in memory."""
        await end_tasks(*self._tasks)
        if self._shared:
            await self._move_quietly(STORED_PER_SECOND)
            self._feed, self._shared = self._own_feed(), False

    async def since(self, number: int, limit: int) -> list[StoredCall]:
        """The calls after this one, the oldest first, at most `limit`."""
        await self._move(self._calls)
        return await self._feed.since(number, limit)

    async def latest(self, limit: int) -> list[StoredCall]:
        """The newest calls, the oldest first."""
        await self._move(self._calls)
        return await self._feed.latest(limit)

    async def find(self, number: int) -> StoredCall | None:
        """The call with this number, if it is still kept."""
        return await self._feed.find(number)

    async def all(self) -> AsyncIterator[StoredCall]:
        """All calls, the oldest first."""
        number = 0
        while calls := await self.since(number, STORED_PER_SECOND):
            for call in calls:
                yield call
            number = calls[-1].number

    def watch(self, listener: Callable[[], object]) -> Callable[[], None]:
        """Call back soon after each call, of any process; returns a function that ends this."""
        leave_ring, leave_feed = self._ring.watch(listener), self._feed.watch(listener)

        def leave() -> None:
            leave_ring()
            leave_feed()

        return leave

    def _own_feed(self) -> CallFeed:
        return CallFeed(MemoryStore(Limits()).feeds, self._calls, self._max_bytes)

    async def _store_regularly(self) -> None:
        while True:
            await asyncio.sleep(_STORE_SECONDS)
            await self._move_quietly(STORED_PER_SECOND)

    async def _move_quietly(self, limit: int) -> None:
        """Move calls to the feed; that the store is down is logged once for an outage."""
        if not len(self._ring):
            return
        try:
            await self._move(limit)
        except StoreDown as problem:
            if not self._is_down:
                _log.warning("calls are not kept in the history now: %s", problem)
            self._is_down = True
        else:
            self._is_down = False

    async def _move(self, limit: int) -> None:
        """Move the calls that wait to the feed: the newest `limit` of them."""
        if not len(self._ring):
            return
        async with self._moving:
            calls = self._ring.take(limit)
            if len(calls) > _FEW:
                # Masking many calls takes a while.
                batches = await asyncio.to_thread(self._encode, calls)
            else:
                batches = self._encode(calls)
            for batch, count in batches:
                await self._feed.publish(batch, count)

    def _encode(self, calls: list[KeptCall]) -> list[tuple[bytes, int]]:
        # So that the oldest calls can be dropped a few at a time.
        size = min(MAX_BATCH_BYTES, self._max_bytes // 32)
        return split_batches([call.mask(self._masking) for call in calls], size)
