"""A change log numbers what every process publishes, for every process that reads."""

from __future__ import annotations

import asyncio

from pegboard.stores.store import ChangePage, ChangeStore
from tests.stores.backends import Backend, Clock, opened, shared
from tests.waiting import until


def told(page: ChangePage) -> list[bytes]:
    return [entry.data for entry in page.entries]


async def publish(log: ChangeStore, *changes: bytes) -> list[int]:
    return [await log.publish(change) for change in changes]


async def test_changes_are_read_in_order_after_any_cursor_of_the_log(backend: Backend) -> None:
    async with opened(backend) as store:
        log = store.changes("board")
        start = await log.last()
        assert await publish(log, b"a", b"b", b"c") == [start + 1, start + 2, start + 3]
        page = await log.read(start, 10)
        assert [(entry.seq, entry.data) for entry in page.entries] == [
            (start + 1, b"a"),
            (start + 2, b"b"),
            (start + 3, b"c"),
        ]
        assert (page.last, page.more, page.lost) == (start + 3, False, False)
        page = await log.read(start + 1, 1)
        assert (told(page), page.more, page.lost) == ([b"b"], True, False)
        page = await log.read(start + 3, 1)
        assert (told(page), page.more, page.lost) == ([], False, False)


async def test_each_board_has_its_own(backend: Backend) -> None:
    async with opened(backend) as store:
        one, two = store.changes("one"), store.changes("two")
        cursors = await one.last(), await two.last()
        await publish(one, b"a")
        assert told(await store.changes("one").read(cursors[0], 10)) == [b"a"]
        assert told(await two.read(cursors[1], 10)) == []


async def test_the_newest_are_kept_and_an_older_cursor_is_told_that_it_lost_some(backend: Backend) -> None:
    async with opened(backend, changes=3) as store:
        log = store.changes("board")
        start = await log.last()
        await publish(log, b"a", b"b", b"c", b"d", b"e")
        page = await log.read(start + 1, 10)
        assert (told(page), page.lost) == ([b"c", b"d", b"e"], True)
        page = await log.read(start + 2, 10)
        assert (told(page), page.lost) == ([b"c", b"d", b"e"], False)


async def test_a_cursor_of_another_log_is_told_so(backend: Backend) -> None:
    async with opened(backend) as store:
        log = store.changes("board")
        start = await log.last()
        await publish(log, b"a")
        page = await log.read(start + 100, 10)
        assert (told(page), page.lost) == ([b"a"], True)


async def test_a_log_that_was_lost_begins_above_its_old_numbers(shared_backend: Backend) -> None:
    clock = Clock()
    async with opened(shared_backend, clock) as store:
        old = (await publish(store.changes("board"), *[b"x"] * 50))[-1]
    clock.now += 1
    async with opened(shared_backend, clock) as store:
        log = store.changes("board")
        assert not (await log.read(0, 10)).lost
        new = (await publish(log, b"y"))[0]
        assert new > old
        assert (await log.read(old, 10)).lost


async def test_who_watches_is_told_of_each_change_in_every_process(shared_backend: Backend) -> None:
    async with shared(shared_backend) as (one, two):
        here, there = one.changes("board"), two.changes("board")
        seen = {"here": 0, "there": 0}

        def note(where: str) -> None:
            seen[where] += 1

        start = await here.last()
        ends = [here.watch(lambda: note("here")), there.watch(lambda: note("there"))]
        await publish(here, b"a")
        assert seen["here"] >= 1
        await until(lambda: seen["there"] >= 1)
        assert told(await there.read(start, 10)) == [b"a"]
        for end in ends:
            end()


async def test_numbers_of_two_who_publish_at_once_are_dense(shared_backend: Backend) -> None:
    async with shared(shared_backend) as pair:
        start = await pair[0].changes("board").last()
        numbers = await asyncio.gather(*(store.changes("board").publish(b"x") for store in pair for _ in range(50)))
        assert sorted(numbers) == list(range(start + 1, start + 101))
