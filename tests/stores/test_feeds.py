"""A feed numbers what every process publishes, keeps the newest, and wakes those who watch it."""

from __future__ import annotations

import asyncio

import pytest

from pegboard.stores.store import FEED_SECONDS, FeedPage, Store
from tests.stores.backends import Backend, Clock, opened, shared
from tests.waiting import until

FEED = "changes:board"


def data(page: FeedPage) -> list[bytes]:
    return [entry.data for entry in page.entries]


async def publish(store: Store, *changes: bytes, feed: str = FEED, keep: int = 100) -> int:
    """Publish in order; the number of the last entry."""
    numbers = [await store.feeds.publish(feed, change, keep=keep) for change in changes]
    assert numbers[0] is not None
    assert numbers == list(range(numbers[0], numbers[0] + len(changes)))
    return numbers[0] + len(changes) - 1


async def test_entries_are_read_in_order_after_any_cursor(backend: Backend) -> None:
    async with opened(backend) as store:
        start = await publish(store, b"first")
        assert await publish(store, b"a", b"b", b"c") == start + 3
        page = await store.feeds.read(FEED, start, 10)
        assert [(entry.seq, entry.data) for entry in page.entries] == [
            (start + 1, b"a"),
            (start + 2, b"b"),
            (start + 3, b"c"),
        ]
        assert (page.last, page.more, page.lost) == (start + 3, False, False)
        page = await store.feeds.read(FEED, start + 1, 1)
        assert (data(page), page.more, page.lost) == ([b"b"], True, False)
        page = await store.feeds.read(FEED, start + 3, 1)
        assert (data(page), page.more, page.lost) == ([], False, False)


async def test_a_feed_without_entries_is_empty_and_nothing_is_lost(backend: Backend) -> None:
    async with opened(backend) as store:
        await store.feeds.trim(FEED, 5)
        assert await store.feeds.read(FEED, 0, 10) == FeedPage((), 0, False, False)


async def test_each_feed_has_its_own_entries(backend: Backend) -> None:
    async with opened(backend) as store:
        await publish(store, b"a", feed="one")
        assert data(await store.feeds.read("one", -1, 10)) == [b"a"]
        assert data(await store.feeds.read("two", -1, 10)) == []


async def test_the_newest_are_kept_and_an_older_cursor_learns_that_it_lost_some(backend: Backend) -> None:
    async with opened(backend) as store:
        start = await publish(store, b"first", keep=3)
        await publish(store, b"a", b"b", b"c", b"d", b"e", keep=3)
        page = await store.feeds.read(FEED, start + 1, 10)
        assert (data(page), page.lost) == ([b"c", b"d", b"e"], True)
        page = await store.feeds.read(FEED, start + 2, 10)
        assert (data(page), page.lost) == ([b"c", b"d", b"e"], False)


async def test_a_cursor_of_another_feed_is_lost(backend: Backend) -> None:
    async with opened(backend) as store:
        number = await publish(store, b"a")
        page = await store.feeds.read(FEED, number + 100, 10)
        assert (data(page), page.lost) == ([b"a"], True)


async def test_trimmed_entries_are_gone_and_the_numbers_go_on(backend: Backend) -> None:
    async with opened(backend) as store:
        last = await publish(store, b"a", b"b", b"c")
        await store.feeds.trim(FEED, last - 1)
        page = await store.feeds.read(FEED, last - 1, 10)
        assert (data(page), page.lost) == ([b"c"], False)
        await store.feeds.trim(FEED, 2**53)
        page = await store.feeds.read(FEED, last, 10)
        assert (data(page), page.last, page.lost) == ([], last, False)
        assert await publish(store, b"d") == last + 1


async def test_what_needs_a_lease_is_published_only_while_it_is_held(backend: Backend) -> None:
    clock = Clock()
    async with opened(backend, clock) as store:
        assert await store.feeds.publish(FEED, b"early", keep=10, holder="me") is None
        await store.leases.renew("me", 5)
        assert await store.feeds.publish(FEED, b"held", keep=10, holder="me")
        clock.now += 5
        assert await store.feeds.publish(FEED, b"expired", keep=10, holder="me") is None
        await store.leases.renew("me", 5)
        await store.leases.release("me")
        assert await store.feeds.publish(FEED, b"released", keep=10, holder="me") is None
        assert data(await store.feeds.read(FEED, -1, 10)) == [b"held"]


async def test_a_feed_that_was_lost_begins_above_its_old_numbers(shared_backend: Backend) -> None:
    clock = Clock()
    async with opened(shared_backend, clock) as store:
        old = await publish(store, *[b"x"] * 50)
    clock.now += 1
    async with opened(shared_backend, clock) as store:
        assert await publish(store, b"y") > old
        assert (await store.feeds.read(FEED, old, 10)).lost


async def test_an_unused_feed_is_removed_from_the_file(own_file: Backend) -> None:
    clock = Clock()
    async with opened(own_file, clock) as store:
        await publish(store, b"x", feed="unused")
        await publish(store, b"x", feed="used")
        clock.now += FEED_SECONDS / 2
        await publish(store, b"y", feed="used")
        clock.now += FEED_SECONDS / 2
        await publish(store, b"x", feed="new")
        assert (await store.feeds.read("unused", -1, 10)).last == 0
        assert data(await store.feeds.read("unused", -1, 10)) == []
        assert data(await store.feeds.read("used", -1, 10)) == [b"x", b"y"]


async def test_numbers_of_two_who_publish_at_once_are_dense(shared_backend: Backend) -> None:
    async with shared(shared_backend) as pair:
        start = await publish(pair[0], b"first")
        numbers = await asyncio.gather(*(store.feeds.publish(FEED, b"x", keep=1000) for store in pair * 50))
        assert sorted(number or 0 for number in numbers) == list(range(start + 1, start + 101))


# -- watchers --------------------------------------------------------------------------------------------------------


async def test_watchers_are_called_for_each_entry_of_their_feed_until_they_stop(backend: Backend) -> None:
    async with opened(backend) as store:
        seen: list[str] = []
        end = store.feeds.watch("a", lambda: seen.append("a"))
        await publish(store, b"x", feed="a")
        assert set(seen) == {"a"}
        end()
        seen.clear()
        await publish(store, b"x", feed="a")
        assert seen == []


async def test_a_watcher_that_fails_keeps_no_other_from_its_hint(
    backend: Backend, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(backend) as store:
        seen: list[str] = []

        def fail() -> None:
            raise LookupError("of no use")

        store.feeds.watch("a", fail)
        store.feeds.watch("a", lambda: seen.append("a"))
        await publish(store, b"x", feed="a")
        assert set(seen) == {"a"}
        assert "a watcher failed" in caplog.text


async def test_a_watcher_that_watches_twice_stops_twice(own_backend: Backend) -> None:
    async with opened(own_backend) as store:
        seen: list[int] = []

        def note() -> None:
            seen.append(1)

        end_one, end_two = store.feeds.watch("a", note), store.feeds.watch("a", note)
        end_one()
        end_one()
        await publish(store, b"x", feed="a")
        assert seen == [1]
        end_two()
        await publish(store, b"x", feed="a")
        assert seen == [1]


async def test_a_watcher_in_another_process_is_called_for_its_own_feed_only(shared_backend: Backend) -> None:
    async with shared(shared_backend) as (one, two):
        seen: list[str] = []
        two.feeds.watch("here", lambda: seen.append("here"))
        two.feeds.watch("elsewhere", lambda: seen.append("elsewhere"))
        ready: list[str] = []
        two.feeds.watch("ready", lambda: ready.append("x"))
        await publish(one, b"x", feed="ready")
        await until(lambda: bool(ready))
        seen.clear()
        await publish(one, b"x", feed="here")
        await until(lambda: bool(seen))
        assert seen == ["here"]
        assert data(await two.feeds.read("here", -1, 10)) == [b"x"]
