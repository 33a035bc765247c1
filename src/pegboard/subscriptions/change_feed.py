"""Synchronizes the change log between the processes that share a store.

Theory of operation. Once the feed runs, the log in this process is a copy: a local change is first published in the
shared log, which numbers it, and is read from there like those of all other processes. So all processes have the same
changes under the same numbers, and a subscriber can continue at any of them. Of changes that cannot be published yet,
each kind and URI waits once.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

import msgspec

from pegboard.background_tasks import end_tasks
from pegboard.call import Change
from pegboard.errors import StoreDown
from pegboard.stores.store import Feeds, wait_for_hint
from pegboard.subscriptions.change_log import ChangeLog

_log = logging.getLogger("pegboard")

_PAGE: Final = 500
_POLL_SECONDS: Final = 5.0
_RETRY_SECONDS: Final = 1.0
_BEGINNING: Final = b""

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Change).decode


class ChangeFeed:
    """Copies the changes of a board between the log of this process and the shared one; `keep` bounds both."""

    def __init__(self, log: ChangeLog, feeds: Feeds, board: str, keep: int) -> None:
        self._local = log
        self._feeds = feeds
        self._shared = f"changes:{board}"
        self._keep = keep
        self._waiting: dict[Change, None] = {}
        self._some = asyncio.Event()
        self._came = asyncio.Event()
        self._reading = asyncio.Lock()
        self._tasks: tuple[asyncio.Task[None], ...] = ()

    async def start(self) -> None:
        """Make the local log a copy of the shared one."""
        loop = asyncio.get_running_loop()
        end_watch = self._feeds.watch(self._shared, self._came.set)
        try:
            # No subscriber can have a position in what was published before.
            self._local.restart(-1)
            if (await self._feeds.read(self._shared, 0, 1)).last == 0:
                # Otherwise the first change would look like the first after a loss.
                await self._feeds.publish(self._shared, _BEGINNING, keep=self._keep)
            await self._catch_up()
        except BaseException:
            end_watch()
            raise
        self._local.redirect_to(lambda change: loop.call_soon_threadsafe(self._put, change), self._poll)
        self._tasks = loop.create_task(self._publish()), loop.create_task(self._follow())
        self._tasks[1].add_done_callback(lambda _: end_watch())

    async def stop(self) -> None:
        """Publish the waiting changes, and stop."""
        if not self._tasks:
            return
        self._local.redirect_to(None)
        try:
            while self._waiting:
                await self._publish_next()
        except StoreDown as problem:
            _log.warning("%d changes were not published to other processes: %s", len(self._waiting), problem)
        await end_tasks(*self._tasks)
        self._tasks = ()

    async def publish(self, change: Change) -> None:
        """Publish a change now; StoreDown if the store cannot be reached."""
        await self._feeds.publish(self._shared, _encode(change), keep=self._keep)

    def _put(self, change: Change) -> None:
        self._waiting.pop(change, None)
        if len(self._waiting) >= self._keep:
            # Without a URI, so for every URI. Notifications of the author cannot be summed up.
            self._waiting = {
                waiting: None for waiting in self._waiting if waiting.kind not in ("updated", "notification")
            }
            change = Change("updated")
        self._waiting[change] = None
        self._some.set()

    async def _publish(self) -> None:
        failing = False
        while True:
            await self._some.wait()
            try:
                await self._publish_next()
                failing = False
            except StoreDown as problem:
                if not failing:
                    _log.warning("changes cannot be published to other processes: %s", problem)
                failing = True
                await asyncio.sleep(_RETRY_SECONDS)

    async def _publish_next(self) -> None:
        change = next(iter(self._waiting))
        # Removed before it is published: if it occurs again in the meantime, it is queued again.
        del self._waiting[change]
        try:
            await self._feeds.publish(self._shared, _encode(change), keep=self._keep)
        except BaseException:
            self._waiting.setdefault(change)
            raise
        if not self._waiting:
            self._some.clear()

    async def _follow(self) -> None:
        while True:
            await wait_for_hint(self._came, _POLL_SECONDS)
            await self._poll()

    async def _poll(self) -> None:
        try:
            # One at a time: two would take the same changes twice.
            async with self._reading:
                await self._catch_up()
        except StoreDown as problem:
            _log.warning("changes of other processes cannot be read: %s", problem)

    async def _catch_up(self) -> None:
        more = True
        while more:
            page = await self._feeds.read(self._shared, self._local.last, _PAGE)
            if page.lost:
                self._local.restart(page.entries[0].seq - 1 if page.entries else page.last)
            for entry in page.entries:
                if entry.data == _BEGINNING:
                    self._local.skip_number(entry.seq)
                else:
                    self._local.take(entry.seq, _decode(entry.data))
            more = page.more
