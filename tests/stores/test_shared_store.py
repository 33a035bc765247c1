"""Two processes at one store: each sees what the other has done, and hears of it."""

from __future__ import annotations

import asyncio

from tests.stores.backends import Backend, Clock, shared

LOG = ("session", "stream")


async def test_a_log_is_read_and_ended_by_another_process_which_fences_its_owner(shared_backend: Backend) -> None:
    async with shared(shared_backend) as (owner, other):
        assert await owner.logs.open(LOG, b"about")
        assert not await other.logs.open(LOG)
        assert await owner.logs.append(LOG, 1, b"one")
        page = await other.logs.read(LOG, 0, 10)
        assert page is not None
        assert (page.last, page.about) == (1, b"about")
        assert await other.logs.append(LOG, 2, b"the owner is dead", end=True)
        assert not await owner.logs.append(LOG, 2, b"it is not")
        assert not await owner.logs.append(LOG, 3, b"it is not")


async def test_of_many_who_append_one_number_at_once_one_wins(shared_backend: Backend) -> None:
    async with shared(shared_backend) as pair:
        await pair[0].logs.open(LOG)
        for seq in range(1, 20):
            won = await asyncio.gather(
                *(store.logs.append(LOG, seq, b"%d" % number) for number, store in enumerate(pair * 3))
            )
            assert won.count(True) == 1
            page = await pair[1].logs.read(LOG, seq - 1, 10)
            assert page is not None
            assert [entry.data for entry in page.entries] == [b"%d" % won.index(True)]


async def test_who_watches_hears_of_another_process(shared_backend: Backend) -> None:
    async with shared(shared_backend) as (owner, other):
        await owner.logs.open(LOG)
        woken = asyncio.Event()
        end = other.logs.watch(LOG, woken.set)
        for seq in range(1, 6):
            # A subscription may wake it too when it begins.
            assert await owner.logs.append(LOG, seq, b"x")
            page = None
            while page is None or page.last < seq:
                await woken.wait()
                woken.clear()
                page = await other.logs.read(LOG, 0, 10)
        end()


async def test_who_watches_hears_when_another_process_drops_the_log(shared_backend: Backend) -> None:
    async with shared(shared_backend) as (owner, other):
        await owner.logs.open(LOG)
        await owner.logs.append(LOG, 1, b"x")
        woken = asyncio.Event()
        other.logs.watch(LOG, woken.set)
        await owner.logs.drop("session")
        while await other.logs.read(LOG, 0, 10) is not None:
            await woken.wait()
            woken.clear()


async def test_of_two_who_write_the_version_they_know_one_wins(shared_backend: Backend) -> None:
    async with shared(shared_backend) as pair:
        for version in range(10):
            wrote = await asyncio.gather(
                *(store.records.put("key", b"%d" % number, if_version=version) for number, store in enumerate(pair * 2))
            )
            assert sorted(wrote, key=str) == sorted([version + 1, None, None, None], key=str)
        sums = await asyncio.gather(*(store.records.add("sum", 1) for store in pair * 20))
        assert sorted(sums) == list(range(1, 41))


async def test_logs_of_an_idle_session_are_removed_and_those_of_an_active_session_are_kept(own_file: Backend) -> None:
    clock = Clock()
    async with shared(own_file, clock, session_seconds=100, ended_seconds=50) as (one, two):
        alive, dead = ("alive", "stream"), ("dead", "stream")
        for log in (alive, dead):
            await one.logs.open(log)
            await one.logs.append(log, 1, b"x")
        for _ in range(10):
            clock.now += 90
            await two.logs.touch("alive")
        await two.logs.open(("another", "stream"))
        assert await two.logs.read(dead, 0, 10) is None
        assert not await one.logs.append(dead, 2, b"x")
        assert await one.logs.append(alive, 2, b"x")
        page = await two.logs.read(alive, 0, 10)
        assert page is not None
        assert page.last == 2
