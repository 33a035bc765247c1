"""All who seal for one board by one store do it with one key."""

from __future__ import annotations

import asyncio

from pegboard.stores.shared_key import shared_key
from tests.stores.backends import Backend, opened, shared


async def test_who_asks_first_makes_the_key_of_a_board_and_it_stays(backend: Backend) -> None:
    async with opened(backend) as store:
        key = await shared_key(store.records, "one")
        assert len(key) == 32
        assert await shared_key(store.records, "one") == key
        assert await shared_key(store.records, "two") != key


async def test_all_processes_that_begin_together_have_the_same_key(shared_backend: Backend) -> None:
    async with shared(shared_backend) as (one, two):
        keys = await asyncio.gather(*(shared_key(store.records, "one") for store in (one, two) * 5))
        assert len(set(keys)) == 1
