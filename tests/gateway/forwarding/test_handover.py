"""Legs of a parked call that come to another process of the gateway."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest

from pegboard.errors import InvalidParams
from pegboard.limits import Limits
from pegboard.stores.cluster import Cluster, SharedStore
from tests.gateway.asking_server import Asker
from tests.gateway.forwarding.test_parking_lot import Heard, accept, asked, resume, text
from tests.gateway.minimal_gateway import LEGACY, Crossing, crossing, served
from tests.stores import backends
from tests.waiting import until

LEASE = 0.6


@dataclass
class Pair:
    """Two processes of one gateway, in front of one server."""

    board: Asker
    one: Crossing
    other: Crossing
    crews: tuple[Cluster, Cluster]


@asynccontextmanager
async def pair() -> AsyncIterator[Pair]:
    board = Asker()
    async with (
        served(board) as url,
        backends.shared(backends.sqlite) as stores,
        crossing(url, LEGACY) as one,
        crossing(url, LEGACY) as other,
    ):
        crews = Cluster(stores[0], Limits(worker_seconds=LEASE)), Cluster(stores[1], Limits(worker_seconds=LEASE))
        for gateway, store, cluster in zip((one, other), stores, crews, strict=True):
            await cluster.start()
            gateway.forwarder.share(SharedStore(store, cluster))
        try:
            yield Pair(board, one, other, crews)
        finally:
            for cluster in crews:
                await cluster.close()


async def test_a_leg_is_served_wherever_it_comes() -> None:
    async with pair() as both:
        first = await both.one.call("ask_twice")
        second = await resume(both.other, "ask_twice", first, "Ann")
        assert (len(both.one.forwarder.parking_lot), len(both.other.forwarder.parking_lot)) == (1, 0)
        assert text(await resume(both.other, "ask_twice", second, "Bob")) == "Ann, then Bob"
        assert len(both.one.forwarder.parking_lot) == 0


async def test_a_call_that_was_elsewhere_can_come_home() -> None:
    async with pair() as both:
        second = await resume(both.other, "ask_twice", await both.one.call("ask_twice"), "Ann")
        assert text(await resume(both.one, "ask_twice", second, "Bob")) == "Ann, then Bob"


async def test_a_ticket_is_good_for_one_leg_in_all_processes() -> None:
    async with pair() as both:
        first = await both.one.call("ask_twice")
        second = await resume(both.other, "ask_twice", first, "Ann")
        for gateway in (both.one, both.other):
            with pytest.raises(InvalidParams, match="used before"):
                await resume(gateway, "ask_twice", first, "Eve")
            with pytest.raises(InvalidParams, match="another caller"):
                await resume(gateway, "ask_twice", second, "Eve", principal="eve")
        assert text(await resume(both.one, "ask_twice", second, "Bob")) == "Ann, then Bob"


async def test_progress_comes_with_the_answer() -> None:
    async with pair() as both:
        heard = Heard()
        first = await both.one.call("ask_and_tell", token="one")
        assert text(await resume(both.other, "ask_and_tell", first, "Ann", token="two", channel=heard)) == "Ann"
        assert [notice.params for notice in heard.notices] == [
            {"progressToken": "two", "progress": 2, "total": 3, "message": "after"}
        ]


async def test_who_leaves_at_another_process_ends_the_request() -> None:
    async with pair() as both:
        board = both.board
        keys, ticket = asked(await both.one.call("ask_then_wait"))
        leg = asyncio.create_task(both.other.call("ask_then_wait", answers={keys[0]: accept("Ann")}, ticket=ticket))
        await board.waiting.wait()
        leg.cancel()
        await until(lambda: board.stopped == ["ask_then_wait"])
        await until(lambda: len(both.one.forwarder.parking_lot) == 0 and both.one.downstream.in_flight == 0)
        await asyncio.wait({leg})


async def test_errors_are_returned_from_the_other_gateway() -> None:
    async with pair() as both:
        first = await both.one.call("ask_and_refuse")
        with pytest.raises(InvalidParams, match="not Ann") as refused:
            await resume(both.other, "ask_and_refuse", first, "Ann")
        assert refused.value.data == {"hint": "otherwise"}


async def test_when_the_holder_is_dead_only_what_does_no_harm_twice_is_called_again() -> None:
    async with pair() as both:
        harmless, other = await both.one.call("read_only"), await both.one.call("ask")
        await both.crews[0].close()
        await until(lambda: both.board.begun == 2)
        again = await resume(both.other, "read_only", harmless, "Ann")
        assert both.board.begun == 3
        assert text(await resume(both.other, "read_only", again, "Bob")) == "Hello Bob"
        assert "the question expired" in text(await resume(both.other, "ask", other, "Ann"))
        assert both.board.begun == 3
        await both.one.forwarder.close()
