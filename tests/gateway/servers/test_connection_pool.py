"""The lanes to one server: made when they are needed, bounded, and closed when nobody uses them."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable

import pytest

from pegboard.errors import Busy, Unreachable
from pegboard.gateway.servers import connection_pool as module
from pegboard.gateway.servers.connection_pool import OWN_KEY, ConnectionPool
from pegboard.gateway.servers.server_connection import ServerConnection
from tests.client.process_leftovers import nothing_left
from tests.gateway.fake_link import FakeLink
from tests.waiting import until

pytestmark = pytest.mark.process


class Made:
    """Makes lanes, and keeps the links they are over."""

    def __init__(self) -> None:
        self.links: dict[Hashable, FakeLink] = {}

    def __call__(self, key: Hashable) -> ServerConnection:
        self.links[key] = FakeLink()
        return self.links[key].connection()


async def test_a_key_has_one_lane() -> None:
    made = Made()
    pool = ConnectionPool("x", made)
    assert pool.connection() is pool.connection(OWN_KEY)
    assert pool.connection("ann") is pool.connection("ann")
    assert pool.connection("ann") is not pool.connection("bob")
    await pool.close()
    assert all(link.closed == 1 for link in made.links.values())


async def test_the_one_that_was_not_used_for_longest_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_CONNECTIONS", 2)
    made = Made()
    async with nothing_left():
        pool = ConnectionPool("x", made)
        pool.connection()
        for key in ("ann", "bob"):
            pool.connection(key).used_at = {"ann": 2.0, "bob": 1.0}[key]
        pool.connection("eve").users = 1
        await until(lambda: made.links["bob"].closed == 1)
        assert (made.links["ann"].closed, made.links[OWN_KEY].closed) == (0, 0)
        pool.connection("ann").users = 1
        with pytest.raises(Busy, match="'x' is used by 2 other callers"):
            pool.connection("bob")
        assert pool.connection() is not None
        await pool.close()


async def test_idle_connections_of_callers_are_closed_and_the_gateways_own_is_kept() -> None:
    made = Made()
    async with nothing_left():
        pool = ConnectionPool("x", made, idle_seconds=0.05)
        for key in (OWN_KEY, "ann", "bob"):
            pool.connection(key)
        pool.connection("bob").users = 1
        await until(lambda: made.links["ann"].closed == 1)
        assert (made.links["bob"].closed, made.links[OWN_KEY].closed, len(pool)) == (0, 0, 2)
        pool.connection("bob").users = 0
        await until(lambda: made.links["bob"].closed == 1)
        await pool.close()


async def test_a_retired_connection_ends_with_its_running_requests() -> None:
    made = Made()
    async with nothing_left():
        pool = ConnectionPool("x", made)
        first, unused = pool.connection("ann"), pool.connection("bob")
        first_link, first.users = made.links["ann"], 1
        pool.retire("ann")
        pool.retire("bob")
        await until(lambda: made.links["bob"].closed == 1)
        assert unused.retired
        # The next request gets a new one meanwhile.
        assert pool.connection("ann") is not first
        pool.close_retired(first)
        assert first_link.closed == 0
        first.users = 0
        pool.close_retired(first)
        await until(lambda: first_link.closed == 1)
        pool.connection("eve").users = 1
        pool.retire("eve")
        await pool.close()
        assert made.links["eve"].closed == 1


async def test_a_lane_that_does_not_close_is_left_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "STOP_SECONDS", 0.05)
    made = Made()
    pool = ConnectionPool("x", made)
    pool.connection()

    async def hang() -> None:
        await asyncio.sleep(600)

    made.links[OWN_KEY].close = hang  # type: ignore[method-assign]  # one that hangs
    async with nothing_left():
        await pool.close()


async def test_a_lane_that_is_cancelled_while_it_closes_has_cleaned_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "STOP_SECONDS", 0.05)
    made, cleaned = Made(), []
    pool = ConnectionPool("x", made)
    pool.connection()

    async def close() -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            # A killed process takes a moment to be gone.
            for _ in range(10):
                await asyncio.sleep(0)
            cleaned.append(True)

    made.links[OWN_KEY].close = close  # type: ignore[method-assign]  # one that hangs
    await pool.close()
    assert cleaned


async def test_once_closed_it_makes_no_more() -> None:
    pool = ConnectionPool("x", Made())
    await pool.close()
    with pytest.raises(Unreachable):
        pool.connection()
