"""Processes that serve together tell and ask each other, and notice who is silent, dead or was."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager

import pytest

from pegboard.errors import StoreDown
from pegboard.limits import Limits
from pegboard.stores.cluster import Cluster
from tests.stores.backends import Backend, Clock, shared
from tests.waiting import SOON, until

LEASE = 0.6
LIMITS = Limits(worker_seconds=LEASE)


@asynccontextmanager
async def two(backend: Backend, clock: Clock | None = None) -> AsyncIterator[tuple[Cluster, Cluster]]:
    async with shared(backend) as (one, other):
        crews = Cluster(one, LIMITS), Cluster(other, LIMITS, clock or Clock())
        for cluster in crews:
            await cluster.start()
        try:
            yield crews
        finally:
            for cluster in crews:
                await cluster.close()


async def reply(said: bytes) -> bytes:
    return b"re: " + said


async def test_messages_are_delivered_to_one_process_and_broadcast_to_all_others(shared_backend: Backend) -> None:
    async with two(shared_backend) as (one, other):
        came: list[bytes] = []
        other.on_message("news", came.append)
        one.on_message("news", came.append)
        assert await one.send_to(other.me, "news", b"1")
        await one.broadcast("news", b"2")
        await until(lambda: len(came) == 2)
        assert came == [b"1", b"2"]


async def test_who_is_asked_answers_and_who_does_not_know_what_is_meant_says_that_it_has_heard(
    shared_backend: Backend,
) -> None:
    async with two(shared_backend) as (one, other):
        other.on_message("question", reply)
        assert await one.ask_others("question", b"x", 5) == {other.me: b"re: x"}
        assert await one.ask(other.me, "what", b"x", 5) == b""


async def test_who_is_silent_is_not_waited_for_long(shared_backend: Backend, caplog: pytest.LogCaptureFixture) -> None:
    async with two(shared_backend) as (one, other):
        released = asyncio.Event()

        def ponder(said: bytes) -> Awaitable[bytes]:
            async def wait() -> bytes:
                await released.wait()
                return said

            return wait()

        other.on_message("question", ponder)
        with caplog.at_level(logging.WARNING, "pegboard.stores"):
            assert await one.ask_others("question", b"x", 0.2) == {}
        assert "1 of 1 other processes did not reply in time" in caplog.text
        # What comes too late disturbs nobody.
        released.set()
        assert await one.ask(other.me, "what", b"x", 5) == b""


async def test_who_is_gone_is_not_waited_for_at_all(shared_backend: Backend) -> None:
    async with two(shared_backend) as (one, other):
        async with asyncio.timeout(SOON):
            assert await one.ask("nobody", "question", b"x", 60) is None
        assert not await one.is_alive("nobody")
        assert await one.is_alive(one.me)
        assert await one.is_alive(other.me)


async def test_who_ends_is_gone_at_once_for_who_asks_all(shared_backend: Backend) -> None:
    async with two(shared_backend) as (one, other):
        await other.close()
        async with asyncio.timeout(SOON):
            assert await one.ask_others("question", b"x", 60) == {}


async def test_what_cannot_be_taken_does_not_stop_the_next(
    shared_backend: Backend, caplog: pytest.LogCaptureFixture
) -> None:
    async with two(shared_backend) as (one, other):

        async def fail(said: bytes) -> bytes:
            raise ValueError(said)

        other.on_message("bad", fail)
        other.on_message("good", reply)
        assert await one.ask(other.me, "bad", b"x", 0.2) is None
        assert await one.ask(other.me, "good", b"x", 5) == b"re: x"
        assert "could not be handled" in caplog.text


async def test_a_process_considered_dead_is_notified(shared_backend: Backend, caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    async with two(shared_backend, clock) as (_, other):
        lapses: list[bool] = []
        other.on_lapse(lambda: lapses.append(True))
        clock.now += LEASE + 0.1
        await until(lambda: bool(lapses))
        assert "considered dead" in caplog.text


async def test_a_beat_that_fails_is_said_and_tried_again(
    shared_backend: Backend, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with shared(shared_backend) as (one, two):
        cluster = Cluster(one, LIMITS)
        await cluster.start()
        renew, beats = one.leases.renew, list[bool]()

        async def fail_once(holder: str, seconds: float) -> None:
            beats.append(True)
            if len(beats) == 1:
                raise StoreDown("gone fishing")
            await renew(holder, seconds)

        monkeypatch.setattr(one.leases, "renew", fail_once)
        await until(lambda: len(beats) > 1)
        assert "gone fishing" in caplog.text
        await cluster.close()
        assert not await two.leases.holders()


async def test_a_process_whose_inbox_overflowed_learns_that_it_missed_messages(
    shared_backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = Limits(worker_seconds=60, worker_messages=3)
    async with shared(shared_backend) as (one, two):
        sender, reader = Cluster(one, limits), Cluster(two, limits)
        came, lapses, may_read = list[bytes](), list[bool](), asyncio.Event()
        reader.on_message("news", came.append)
        reader.on_lapse(lambda: lapses.append(True))
        for cluster in (sender, reader):
            await cluster.start()
        await sender.send_to(reader.me, "news", b"first")
        await until(lambda: bool(came))
        read = two.feeds.read

        async def read_later(feed: str, after: int, limit: int) -> object:
            await may_read.wait()
            return await read(feed, after, limit)

        monkeypatch.setattr(two.feeds, "read", read_later)
        for number in range(6):
            await sender.send_to(reader.me, "news", b"%d" % number)
        assert not lapses
        may_read.set()
        await until(lambda: came[-1] == b"5")
        assert lapses
        for cluster in (sender, reader):
            await cluster.close()
