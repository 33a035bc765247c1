"""Processes that share a store know who is alive, and messages from one to another arrive."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from pegboard.errors import StoreDown
from pegboard.limits import Limits
from pegboard.stores.cluster import Workers
from pegboard.stores.store import Store
from tests.stores.backends import Backend, Clock, opened, shared
from tests.waiting import until


@asynccontextmanager
async def worker(store: Store, **limits: float) -> AsyncIterator[Workers]:
    found = Workers(store, Limits(**limits))
    try:
        yield found
    finally:
        await found.stop()


@asynccontextmanager
async def two_workers(backend: Backend, clock: Clock | None = None, **limits: float) -> AsyncIterator[list[Workers]]:
    async with shared(backend, clock) as (one, two), worker(one, **limits) as first, worker(two, **limits) as second:
        yield [first, second]


def ignore() -> None:
    """Messages that were lost do not matter here."""


async def test_a_process_receives_its_own_messages_in_order(backend: Backend) -> None:
    async with opened(backend) as store, worker(store) as workers:
        came = list[bytes]()
        await workers.beat()
        assert list(await workers.living()) == [workers.me]
        assert await workers.send(workers.me, b"before it receives")
        workers.receive(came.append, ignore)
        assert await workers.send(workers.me, b"\0after")
        await until(lambda: len(came) == 2)
        assert came == [b"before it receives", b"\0after"]
        await workers.stop()
        await workers.send(workers.me, b"for the next")
        workers.receive(came.append, ignore)
        await until(lambda: len(came) == 3)
        assert came[2] == b"for the next"


async def test_a_message_to_a_name_that_no_process_has_is_not_sent(backend: Backend) -> None:
    async with opened(backend) as store, worker(store) as workers:
        assert not await workers.send("nobody", b"x")
        assert "nobody" not in await workers.living()


async def test_an_inbox_is_bounded_and_its_reader_learns_that_messages_were_lost(
    backend: Backend, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(backend) as store, worker(store, worker_messages=3) as workers:
        came, lost = list[bytes](), list[bool]()
        await workers.beat()
        workers.receive(came.append, ignore)
        await workers.send(workers.me, b"first")
        await until(lambda: bool(came))
        await workers.stop()
        for number in range(5):
            assert await workers.send(workers.me, b"%d" % number)
        workers.receive(came.append, lambda: lost.append(True))
        await until(lambda: len(came) == 4)
        assert came == [b"first", b"2", b"3", b"4"]
        assert lost == [True]
        assert "messages to this process were lost" in caplog.text


async def test_messages_that_were_received_leave_the_store(backend: Backend) -> None:
    async with opened(backend) as store, worker(store, worker_messages=3) as workers:
        came, lost = list[bytes](), list[bool]()
        await workers.beat()
        workers.receive(came.append, lambda: lost.append(True))
        for number in range(20):
            await workers.send(workers.me, b"%d" % number)
            await until(lambda count=number: len(came) > count)  # type: ignore[misc]
        assert not lost
        page = await store.feeds.read(f"inbox:{workers.me}", -1, 10)
        assert len(page.entries) <= 2


async def test_a_process_that_leaves_is_gone_and_so_are_its_messages(shared_backend: Backend) -> None:
    async with two_workers(shared_backend) as (one, two):
        await one.beat()
        assert await two.send(one.me, b"unread")
        await one.leave()
        assert one.me not in await two.living()
        assert not await two.send(one.me, b"x")
        came: list[bytes] = []
        await one.beat()
        one.receive(came.append, ignore)
        await two.send(one.me, b"new")
        await until(lambda: bool(came))
        assert came == [b"new"]


async def test_a_process_is_alive_for_a_while_after_each_beat(shared_backend: Backend) -> None:
    clock = Clock()
    async with two_workers(shared_backend, clock, worker_seconds=3) as (one, two):
        assert one.me != two.me
        assert one.me not in await two.living()
        await one.beat()
        await two.beat()
        assert sorted(await one.living()) == sorted([one.me, two.me])
        clock.now += 2
        await one.beat()
        clock.now += 2
        assert list(await two.living()) == [one.me]
        assert not await one.send(two.me, b"x")
        clock.now += 1
        assert not await two.living()


async def test_messages_between_two_processes_arrive_once_and_in_order(shared_backend: Backend) -> None:
    async with two_workers(shared_backend) as pair:
        came: dict[str, list[int]] = {}
        for workers in pair:
            await workers.beat()
            heard = came[workers.me] = []
            workers.receive(lambda message, heard=heard: heard.append(int(message)), ignore)
        for number in range(250):
            for workers, other in (pair, pair[::-1]):
                assert await workers.send(other.me, b"%d" % number)
        await until(lambda: all(len(heard) >= 250 for heard in came.values()))
        assert list(came.values()) == [list(range(250)), list(range(250))]


async def test_a_message_that_cannot_be_processed_does_not_stop_the_next(
    shared_backend: Backend, caplog: pytest.LogCaptureFixture
) -> None:
    came: list[bytes] = []

    def take(message: bytes) -> None:
        came.append(message)
        assert message != b"bad"

    async with two_workers(shared_backend) as (one, two):
        await one.beat()
        one.receive(take, ignore)
        for message in (b"bad", b"good"):
            await two.send(one.me, message)
        await until(lambda: len(came) == 2)
    assert "could not be processed" in caplog.text


async def test_an_inbox_is_read_again_without_a_hint_and_after_a_failure(
    shared_backend: Backend, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(shared_backend) as store, worker(store, worker_seconds=0.05) as workers:
        came, failures = list[bytes](), list[bool]()
        read = store.feeds.read

        async def fail_once(feed: str, after: int, limit: int) -> object:
            if not failures:
                failures.append(True)
                raise StoreDown("for a moment")
            return await read(feed, after, limit)

        monkeypatch.setattr(store.feeds, "read", fail_once)
        monkeypatch.setattr(store.feeds, "watch", lambda feed, watcher: lambda: None)
        workers.receive(came.append, ignore)
        await store.leases.renew(workers.me, 100)
        await workers.send(workers.me, b"x")
        await until(lambda: came == [b"x"])
        assert "for a moment" in caplog.text
