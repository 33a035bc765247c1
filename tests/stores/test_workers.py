"""Processes that share a store know who lives, and what one tells another arrives."""

from __future__ import annotations

import pytest

from tests.stores.backends import Backend, Clock, opened, shared
from tests.waiting import until


async def test_a_process_hears_what_it_tells_itself_in_order(backend: Backend) -> None:
    async with opened(backend) as store:
        workers, came = store.workers, list[bytes]()
        await workers.beat()
        assert list(await workers.living()) == [workers.me]
        assert await workers.send(workers.me, b"before anybody listens") == "sent"
        end = workers.receive(came.append)
        assert await workers.send(workers.me, b"\0after") == "sent"
        await until(lambda: len(came) == 2)
        assert came == [b"before anybody listens", b"\0after"]
        end()
        await workers.send(workers.me, b"for the next")
        workers.receive(came.append)
        await until(lambda: len(came) == 3)
        assert came[2] == b"for the next"


async def test_nobody_is_told_what_is_sent_to_a_name_nobody_has(backend: Backend) -> None:
    async with opened(backend) as store:
        assert await store.workers.send("nobody", b"x") == "gone"
        assert not await store.workers.alive("nobody")


async def test_an_inbox_is_bounded_and_whoever_overfills_it_is_told(backend: Backend) -> None:
    async with opened(backend, worker_messages=3) as store:
        workers, came = store.workers, list[bytes]()
        await workers.beat()
        said = [await workers.send(workers.me, b"%d" % number) for number in range(5)]
        assert said == ["sent", "sent", "sent", "full", "full"]
        workers.receive(came.append)
        await until(lambda: len(came) == 3)
        assert came == [b"2", b"3", b"4"]


async def test_who_leaves_is_gone_and_so_is_what_it_was_told(shared_backend: Backend) -> None:
    async with shared(shared_backend) as (one, two):
        await one.workers.beat()
        assert await two.workers.send(one.workers.me, b"unread") == "sent"
        await one.workers.leave()
        assert not await two.workers.alive(one.workers.me)
        assert await two.workers.send(one.workers.me, b"x") == "gone"
        came: list[bytes] = []
        await one.workers.beat()
        one.workers.receive(came.append)
        await two.workers.send(one.workers.me, b"new")
        await until(lambda: bool(came))
        assert came == [b"new"]


async def test_a_process_lives_for_a_while_after_each_beat(shared_backend: Backend) -> None:
    clock = Clock()
    async with shared(shared_backend, clock, worker_seconds=3) as (one, two):
        me = one.workers.me
        assert me != two.workers.me
        assert not await two.workers.alive(me)
        await one.workers.beat()
        await two.workers.beat()
        assert sorted(await one.workers.living()) == sorted([me, two.workers.me])
        clock.now += 2
        await one.workers.beat()
        clock.now += 2
        assert await two.workers.alive(me)
        assert not await one.workers.alive(two.workers.me)
        assert await one.workers.send(two.workers.me, b"x") == "gone"
        clock.now += 1
        assert not await two.workers.alive(me)


async def test_what_two_tell_each_other_arrives_once_and_in_order(shared_backend: Backend) -> None:
    async with shared(shared_backend) as pair:
        came: dict[str, list[int]] = {}
        for store in pair:
            await store.workers.beat()
            heard = came[store.workers.me] = []
            store.workers.receive(lambda message, heard=heard: heard.append(int(message)))
        for number in range(250):
            for store, other in (pair, pair[::-1]):
                assert await store.workers.send(other.workers.me, b"%d" % number) == "sent"
        await until(lambda: all(len(heard) >= 250 for heard in came.values()))
        assert list(came.values()) == [list(range(250)), list(range(250))]


async def test_a_message_that_cannot_be_taken_does_not_stop_the_next(
    shared_backend: Backend, caplog: pytest.LogCaptureFixture
) -> None:
    came: list[bytes] = []

    def take(message: bytes) -> None:
        came.append(message)
        assert message != b"bad"

    async with shared(shared_backend) as (one, two):
        await one.workers.beat()
        one.workers.receive(take)
        for message in (b"bad", b"good"):
            await two.workers.send(one.workers.me, message)
        await until(lambda: len(came) == 2)
    assert "could not be taken" in caplog.text
