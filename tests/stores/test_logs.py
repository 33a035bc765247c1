"""Logs keep their promise in every backend: numbers are dense, what is safe is read again, bounds hold and are seen."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pegboard.stores.store import LogName, LogPage, Logs
from tests.stores.backends import Backend, Clock, opened

LOG = ("session", "stream")


async def read(logs: Logs, log: LogName = LOG, after: int = 0, limit: int = 1000) -> LogPage:
    page = await logs.read(log, after, limit)
    assert page is not None
    return page


def told(page: LogPage) -> list[tuple[int, bytes]]:
    return [(entry.seq, entry.data) for entry in page.entries]


@asynccontextmanager
async def begun(backend: Backend, clock: Clock | None = None, **limits: float) -> AsyncIterator[Logs]:
    """The logs of a new store, one of them open."""
    async with opened(backend, clock, **limits) as store:
        assert await store.logs.open(LOG, b"about")
        yield store.logs


async def test_what_was_appended_is_read_in_order_after_any_cursor(backend: Backend) -> None:
    async with begun(backend) as logs:
        for seq in (1, 2, 3):
            assert await logs.append(LOG, seq, b"%d" % seq)
        page = await read(logs)
        assert told(page) == [(1, b"1"), (2, b"2"), (3, b"3")]
        assert (page.last, page.more, page.ended, page.about) == (3, False, False, b"about")
        assert told(await read(logs, after=2)) == [(3, b"3")]
        assert told(await read(logs, after=3)) == []


async def test_a_page_holds_what_was_asked_for_and_says_whether_there_is_more(backend: Backend) -> None:
    async with begun(backend) as logs:
        for seq in range(1, 6):
            await logs.append(LOG, seq, b"x")
        page = await read(logs, limit=2)
        assert ([entry.seq for entry in page.entries], page.more) == ([1, 2], True)
        page = await read(logs, after=3, limit=2)
        assert ([entry.seq for entry in page.entries], page.more) == ([4, 5], False)


@pytest.mark.parametrize("seq", [-1, 0, 1, 2, 4])
async def test_a_number_that_is_not_the_next_is_refused(backend: Backend, seq: int) -> None:
    async with begun(backend) as logs:
        for number in (1, 2):
            await logs.append(LOG, number, b"first")
        assert not await logs.append(LOG, seq, b"second")
        assert told(await read(logs)) == [(1, b"first"), (2, b"first")]


async def test_of_two_who_end_a_log_one_wins(backend: Backend) -> None:
    async with begun(backend) as logs:
        assert await logs.append(LOG, 1, b"the owner's", end=True)
        assert not await logs.append(LOG, 1, b"another's", end=True)
        assert not await logs.append(LOG, 2, b"too late")
        page = await read(logs)
        assert (told(page), page.ended) == ([(1, b"the owner's")], True)


async def test_an_unopened_log_accepts_no_entries_and_has_no_page(backend: Backend) -> None:
    async with begun(backend) as logs:
        for log in (("session", "other"), ("other", "stream")):
            assert not await logs.append(log, 1, b"x")
            assert await logs.read(log, 0, 10) is None
            await logs.release(log, 1)


async def test_an_open_log_without_entries_is_there(backend: Backend) -> None:
    async with begun(backend) as logs:
        page = await read(logs)
        assert (told(page), page.last, page.ended) == ([], 0, False)


async def test_a_name_is_given_once(backend: Backend) -> None:
    async with begun(backend) as logs:
        await logs.append(LOG, 1, b"x")
        assert not await logs.open(LOG)
        assert await logs.open(("other", "stream"))
        assert told(await read(logs)) == [(1, b"x")]


async def test_dropping_a_session_forgets_its_logs_and_no_other(backend: Backend) -> None:
    async with begun(backend) as logs:
        await logs.open(("other", "stream"))
        await logs.append(("other", "stream"), 1, b"x")
        await logs.append(LOG, 1, b"x", end=True)
        await logs.drop("session")
        await logs.drop("session")
        assert await logs.read(LOG, 0, 10) is None
        assert not await logs.append(LOG, 2, b"x")
        assert told(await read(logs, ("other", "stream"))) == [(1, b"x")]


# -- hints -----------------------------------------------------------------------------------------------------------


async def test_a_watcher_is_notified_of_each_entry_of_its_log_until_it_stops(backend: Backend) -> None:
    async with begun(backend) as logs:
        seen: list[str] = []
        stop_one, stop_two = (logs.watch(LOG, lambda name=name: seen.append(name)) for name in ("one", "two"))
        # Some may come for nothing, when a watch begins.
        await logs.append(LOG, 1, b"x")
        assert set(seen) == {"one", "two"}
        stop_one()
        seen.clear()
        await logs.append(LOG, 2, b"x")
        assert set(seen) == {"two"}
        stop_two()
        stop_two()
        seen.clear()
        await logs.append(LOG, 3, b"x")
        assert seen == []


async def test_a_watcher_is_not_notified_of_another_log(own_backend: Backend) -> None:
    async with begun(own_backend) as logs:
        await logs.open(("session", "other"))
        seen: list[int] = []
        logs.watch(LOG, lambda: seen.append(1))
        await logs.append(("session", "other"), 1, b"x")
        assert seen == []


async def test_a_watcher_is_notified_when_the_log_is_removed(backend: Backend) -> None:
    async with begun(backend) as logs:
        seen: list[int] = []
        logs.watch(LOG, lambda: seen.append(1))
        await logs.drop("session")
        assert seen


# -- bounds ----------------------------------------------------------------------------------------------------------


async def test_the_oldest_entries_of_a_long_log_are_trimmed(backend: Backend) -> None:
    async with begun(backend, stream_events=3) as logs:
        for seq in range(1, 6):
            assert await logs.append(LOG, seq, b"x")
        page = await read(logs)
        assert ([entry.seq for entry in page.entries], page.last) == ([3, 4, 5], 5)
        assert await logs.append(LOG, 6, b"x")


async def test_the_oldest_entries_of_a_heavy_log_are_trimmed(backend: Backend) -> None:
    async with begun(backend, stream_bytes=10) as logs:
        for seq in range(1, 5):
            await logs.append(LOG, seq, b"x" * 4)
        assert [entry.seq for entry in (await read(logs)).entries] == [3, 4]


async def test_what_is_to_be_kept_stays_until_it_is_released_and_the_end_stays_always(backend: Backend) -> None:
    async with begun(backend, stream_events=2) as logs:
        await logs.append(LOG, 1, b"ask", keep=True)
        for seq in range(2, 6):
            await logs.append(LOG, seq, b"x")
        assert [entry.seq for entry in (await read(logs)).entries] == [1, 5]
        await logs.release(LOG, 1)
        await logs.append(LOG, 6, b"x")
        assert [entry.seq for entry in (await read(logs)).entries] == [5, 6]
        await logs.append(LOG, 7, b"x" * 5_000_000, end=True)
        page = await read(logs)
        assert (page.entries[-1].seq, page.ended) == (7, True)


async def test_a_session_over_its_bytes_loses_the_notices_of_its_oldest_log_first(backend: Backend) -> None:
    async with begun(backend, session_bytes=10) as logs:
        young = ("session", "young")
        await logs.open(young)
        await logs.append(LOG, 1, b"xxxx")
        await logs.append(young, 1, b"xxxx")
        await logs.append(young, 2, b"xxxx")
        assert told(await read(logs)) == []
        assert [entry.seq for entry in (await read(logs, young)).entries] == [1, 2]


async def test_answers_that_are_too_heavy_together_go_whole_and_the_newest_stays(backend: Backend) -> None:
    clock = Clock()
    async with begun(backend, clock, session_bytes=10) as logs:
        names = [("session", str(number)) for number in range(3)]
        for name in names:
            clock.now += 1
            await logs.open(name)
            await logs.append(name, 1, b"x" * 8, end=True)
        assert await logs.read(names[0], 0, 1) is None
        assert await logs.read(names[1], 0, 1) is None
        assert (await read(logs, names[2])).ended
        assert await logs.append(LOG, 1, b"x")


async def test_a_log_that_ended_is_kept_for_a_while(backend: Backend) -> None:
    clock = Clock()
    async with begun(backend, clock) as logs:
        await logs.open(("session", "open"))
        await logs.append(LOG, 1, b"x", end=True)
        clock.now += 299
        assert (await read(logs)).ended
        clock.now += 2
        assert await logs.read(LOG, 0, 1) is None
        assert await logs.append(("session", "open"), 1, b"x")


async def test_of_many_logs_that_ended_the_newest_are_kept(backend: Backend) -> None:
    clock = Clock()
    async with begun(backend, clock, ended_streams=2) as logs:
        names = [("session", str(number)) for number in range(4)]
        for name in names:
            await logs.open(name)
        for name in names:
            clock.now += 1
            await logs.append(name, 1, b"x", end=True)
        assert [await logs.read(name, 0, 1) is not None for name in names] == [False, False, True, True]


async def test_a_session_has_so_many_logs_and_one_that_ended_makes_room(backend: Backend) -> None:
    async with begun(backend, session_streams=2) as logs:
        assert await logs.open(("session", "second"))
        assert not await logs.open(("session", "third"))
        assert await logs.open(("other", "third"))
        await logs.append(LOG, 1, b"x", end=True)
        assert await logs.open(("session", "third"))
        assert await logs.read(LOG, 0, 1) is None


async def test_the_only_log_of_a_session_makes_room_for_its_next(backend: Backend) -> None:
    async with begun(backend, session_streams=1) as logs:
        await logs.append(LOG, 1, b"x", end=True)
        assert await logs.open(("session", "second"))
        assert await logs.append(("session", "second"), 1, b"x")


async def test_all_sessions_together_have_a_bound(own_backend: Backend) -> None:
    clock = Clock()
    async with begun(own_backend, clock, stored_bytes=100) as logs:
        for number in range(50):
            clock.now += 1
            await logs.open((str(number), "stream"))
            await logs.append((str(number), "stream"), 1, b"x" * 20, end=number % 2 == 0)
        pages = [await logs.read((str(number), "stream"), 0, 10) for number in range(50)]
        assert sum(len(entry.data) for page in pages if page for entry in page.entries) <= 100


async def test_what_goes_first_of_all_sessions_are_answers_then_the_oldest_notices(own_backend: Backend) -> None:
    async with begun(own_backend, stored_bytes=100) as logs:
        old, young, over = ("old", "a"), ("young", "a"), ("over", "a")
        for log in (old, young, over, ("over", "b")):
            await logs.open(log)
        await logs.append(old, 1, b"x" * 30, keep=True)
        await logs.append(old, 2, b"x" * 30)
        await logs.append(over, 1, b"x" * 10, end=True)
        await logs.append(("over", "b"), 1, b"x" * 10, end=True)
        await logs.append(young, 1, b"x" * 25)
        assert await logs.read(over, 0, 1) is None
        assert [entry.seq for entry in (await read(logs, old)).entries] == [1, 2]
        await logs.append(young, 2, b"x" * 25)
        assert [entry.seq for entry in (await read(logs, old)).entries] == [1]
        assert [entry.seq for entry in (await read(logs, young)).entries] == [1, 2]
        assert (await read(logs, ("over", "b"))).ended


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["append", "keep", "release", "end", "open"]),
        st.sampled_from("abc"),
        st.sampled_from("xy"),
        st.integers(0, 12),
    ),
    max_size=60,
)


@given(steps=STEPS)
async def test_whatever_is_done_bounds_hold_and_nothing_that_must_stay_is_lost(
    backend: Backend, steps: list[tuple[str, str, str, int]]
) -> None:
    async with opened(backend, stream_events=4, stream_bytes=30, session_streams=2, session_bytes=40) as store:
        logs = store.logs
        last: dict[LogName, int] = {}
        held: dict[LogName, set[int]] = {}
        for step, stream, session, size in steps:
            log = session, stream
            if step == "open":
                if await logs.open(log):
                    last[log], held[log] = 0, set()
                continue
            if step == "release":
                if held.get(log):
                    await logs.release(log, held[log].pop())
                continue
            page = await logs.read(log, 0, 100)
            seq = last.get(log, 0) + 1
            stored = await logs.append(log, seq, b"x" * size, keep=step == "keep", end=step == "end")
            assert stored == (page is not None and not page.ended)
            if stored:
                last[log] = seq
                held[log] = {seq} if step == "end" else held[log] | ({seq} if step == "keep" else set())
        for log, number in last.items():
            page = await logs.read(log, 0, 100)
            if page is None:
                continue
            kept = [entry.seq for entry in page.entries]
            assert page.last == number
            assert kept == sorted(set(kept))
            assert held[log] <= set(kept)
            free = [entry for entry in page.entries if entry.seq not in held[log]]
            weight = sum(len(entry.data) for entry in page.entries)
            assert len(kept) <= 4 or not free
            assert weight <= 30 or not free
