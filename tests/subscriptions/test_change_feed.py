"""Changes of one process are told to who follows in another, under the same numbers."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from pegboard.call import Change
from pegboard.errors import StoreDown
from pegboard.stores.store import Feeds
from pegboard.subscriptions.change_feed import ChangeFeed
from pegboard.subscriptions.change_log import ANYTHING, ChangeLog
from tests.stores import backends
from tests.waiting import until

TOOLS, PROMPTS = Change("tools"), Change("prompts")


class Place:
    """One process: its log, and what brings it changes."""

    def __init__(self, feeds: Feeds, keep: int) -> None:
        self.log = ChangeLog(keep)
        self.feeds = feeds
        self.feed = ChangeFeed(self.log, feeds, "board", keep)

    def has(self, after: int, count: int = 1) -> Callable[[], bool]:
        return lambda: len(self.log.read(after)) >= count


@asynccontextmanager
async def places(keep: int = 100) -> AsyncIterator[tuple[Place, Place]]:
    async with backends.shared(backends.sqlite) as (one, two):
        both = Place(one.feeds, keep), Place(two.feeds, keep)
        # Hung before anybody served: nobody is to hear of it.
        both[0].log.publish(PROMPTS)
        for place in both:
            await place.feed.start()
        try:
            yield both
        finally:
            for place in both:
                await place.feed.stop()


async def test_a_change_is_published_everywhere_with_the_same_number_and_wakes_watchers() -> None:
    async with places() as (one, two):
        before, woken = two.log.last, asyncio.Event()
        assert before == one.log.last
        two.log.watch(woken.set)
        one.log.publish(TOOLS)
        await woken.wait()
        await until(one.has(before))
        assert two.log.read(before) == one.log.read(before) == [(before + 1, TOOLS)]


async def test_a_newly_started_process_knows_earlier_changes() -> None:
    async with places() as (one, two):
        before = one.log.last
        one.log.publish(TOOLS)
        await until(two.has(before))
        third = Place(two.feeds, 100)
        await third.feed.start()
        assert third.log.read(before) == two.log.read(before)
        await third.feed.stop()


async def test_changes_come_from_any_thread() -> None:
    async with places() as (one, two):
        before = one.log.last
        threads = [threading.Thread(target=one.log.publish, args=(Change("updated", f"a://{n}"),)) for n in range(20)]
        for thread in threads:
            thread.start()
        await until(two.has(before, 20))
        for thread in threads:
            thread.join()
        assert {change.uri for _, change in two.log.read(before)} == {f"a://{n}" for n in range(20)}


async def test_pending_changes_are_published_before_the_stop_and_none_after() -> None:
    async with places() as (one, two):
        before = two.log.last
        one.log.publish(TOOLS)
        await asyncio.sleep(0)
        await one.feed.stop()
        await until(two.has(before))
        one.log.publish(PROMPTS)
        assert (await two.feeds.read("changes:board", before, 10)).last == before + 1


async def test_while_the_store_is_down_each_change_is_queued_once_and_published_afterwards(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with places() as (one, two):
        before, publish, down = two.log.last, one.feeds.publish, asyncio.Event()

        async def fail_at_first(feed: str, change: bytes, *, keep: int) -> int | None:
            if not down.is_set():
                down.set()
                raise StoreDown("gone fishing")
            return await publish(feed, change, keep=keep)

        monkeypatch.setattr(one.feeds, "publish", fail_at_first)
        monkeypatch.setattr("pegboard.subscriptions.change_feed._RETRY_SECONDS", 0.01)
        for _ in range(5):
            one.log.publish(TOOLS)
        one.log.publish(PROMPTS)
        await until(two.has(before, 2))
        assert sorted(number for number, _ in two.log.read(before)) == [before + 1, before + 2]
        assert "gone fishing" in caplog.text


async def test_too_many_that_wait_become_one_of_every_uri(monkeypatch: pytest.MonkeyPatch) -> None:
    async with places(keep=5) as (one, two):
        before, publish, go_on = two.log.last, one.feeds.publish, asyncio.Event()

        async def wait(feed: str, change: bytes, *, keep: int) -> int | None:
            await go_on.wait()
            return await publish(feed, change, keep=keep)

        monkeypatch.setattr(one.feeds, "publish", wait)
        one.log.publish(TOOLS)
        for number in range(20):
            one.log.publish(Change("updated", f"a://{number}"))
        await asyncio.sleep(0.01)
        go_on.set()
        await until(lambda: any(change == Change("updated") for _, change in two.log.read(before)))
        assert len(two.log.read(before)) <= 7


async def test_a_process_that_missed_more_than_is_kept_reports_that_anything_may_have_changed() -> None:
    async with places(keep=5) as (one, two):
        before = two.log.last
        for number in range(12):
            one.log.publish(Change("updated", f"a://{number}"))
            await until(lambda after=before + number: two.log.last > after)  # type: ignore[misc]
        assert {change for _, change in two.log.read(before)} >= set(ANYTHING)
        third = Place(two.feeds, 5)
        await third.feed.start()
        assert {change for _, change in third.log.read(before)} >= set(ANYTHING)
        await third.feed.stop()


class Deaf:
    """Feeds whose watchers are never called."""

    def __init__(self, feeds: Feeds) -> None:
        self.publish, self.read, self.trim = feeds.publish, feeds.read, feeds.trim

    def watch(self, feed: str, watcher: Callable[[], object]) -> Callable[[], None]:
        return lambda: None


async def test_concurrent_readers_catch_up_to_a_number_published_by_another_process() -> None:
    async with places() as (one, two):
        late = Place(Deaf(two.feeds), 100)
        await late.feed.start()
        before = late.log.last
        one.log.publish(TOOLS)
        one.log.publish(PROMPTS)
        await until(one.has(before, 2))
        assert late.log.last == before
        await asyncio.gather(*(late.log.catch_up_to(before + 2) for _ in range(3)))
        assert late.log.read(before) == [(before + 1, TOOLS), (before + 2, PROMPTS)]
        # There are not so many, and that is found out without waiting for them.
        await late.log.catch_up_to(before + 100)
        assert late.log.last == before + 2
        await late.feed.stop()
