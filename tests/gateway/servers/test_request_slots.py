"""How many a server is given at a time: first come, first served, and never lost."""

from __future__ import annotations

import asyncio
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pegboard.errors import Busy
from pegboard.gateway.servers.request_slots import RequestSlots

pytestmark = pytest.mark.process


async def test_who_comes_first_is_served_first() -> None:
    slots = RequestSlots("x", 1)
    order: list[int] = []

    async def running_call(number: int) -> None:
        await slots.take(5)
        order.append(number)
        await asyncio.sleep(0)
        slots.free()

    await asyncio.gather(*(running_call(number) for number in range(20)))
    assert order == list(range(20))
    assert slots.taken == 0


async def test_a_request_that_finds_the_queue_full_is_rejected_immediately() -> None:
    slots = RequestSlots("x", 1, waiting=1)
    await slots.take(5)
    waiting = asyncio.create_task(slots.take(5))
    await asyncio.sleep(0)
    with pytest.raises(Busy, match="'x' is busy") as refused:
        await slots.take(5)
    assert refused.value.retry_after == 1
    slots.free()
    await waiting


async def test_a_wait_has_an_end() -> None:
    slots = RequestSlots("x", 1)
    await slots.take(5)
    with pytest.raises(Busy, match=r"for 0\.01 s"):
        await slots.take(0.01)
    slots.free()
    await slots.take(0.01)
    assert slots.taken == 1


async def test_a_slot_that_is_lent_serves_another_and_is_taken_back_without_a_wait() -> None:
    slots = RequestSlots("x", 1)
    await slots.take(5)
    waiting = asyncio.create_task(slots.take(5))
    await asyncio.sleep(0)
    with slots.released():
        await waiting
        assert slots.taken == 1
    assert slots.taken == 2
    slots.free()
    third = asyncio.create_task(slots.take(5))
    await asyncio.sleep(0)
    assert not third.done()
    slots.free()
    await third


@given(st.integers(1, 4), st.integers(1, 30), st.randoms(use_true_random=False))
async def test_taken_and_freed_slots_balance_even_when_waiters_cancel(
    size: int, riders: int, dice: random.Random
) -> None:
    slots = RequestSlots("x", size, waiting=10)
    most = 0

    async def running_call() -> None:
        nonlocal most
        await slots.take(5)
        try:
            most = max(most, slots.taken)
            for _ in range(dice.randrange(4)):
                await asyncio.sleep(0)
        finally:
            slots.free()

    tasks = [asyncio.create_task(running_call()) for _ in range(riders)]
    for _ in range(dice.randrange(10)):
        await asyncio.sleep(0)
        dice.choice(tasks).cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert slots.taken == 0
    assert most <= size


async def test_callers_get_a_slot_in_turn() -> None:
    slots, order = RequestSlots("x", 1), list[str]()
    await slots.take(5)

    async def running_call(owner: str) -> None:
        await slots.take(5, owner)
        order.append(owner)
        slots.free(owner)

    calls = [asyncio.create_task(running_call(owner)) for owner in ["flood"] * 50 + ["ada", "bob"]]
    await asyncio.sleep(0)
    slots.free()
    await asyncio.gather(*calls)
    assert order[:5] == ["flood", "ada", "bob", "flood", "flood"]


async def test_a_flood_of_one_caller_leaves_a_place_in_the_queue_to_another() -> None:
    slots = RequestSlots("x", 1, waiting=2)
    await slots.take(5)
    flood = [asyncio.create_task(slots.take(5, "flood")) for _ in range(2)]
    await asyncio.sleep(0)
    ada = asyncio.create_task(slots.take(5, "ada"))
    with pytest.raises(Busy, match="'x' is busy"):
        await flood[1]
    slots.free()
    await flood[0]
    slots.free("flood")
    await ada
