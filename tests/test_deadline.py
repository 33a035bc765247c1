"""Deadlines that move on with news, and stand still while somebody is asked."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from pegboard.deadline import Deadline, paused
from tests.loops import skip


async def test_extending_restarts_the_wait_but_not_beyond_the_final_deadline() -> None:
    loop = asyncio.get_running_loop()
    deadline = Deadline(10, 15)
    with deadline:
        began = loop.time()
        assert deadline.left() == pytest.approx(10, abs=1)
        deadline.extend()
        assert deadline.left() == pytest.approx(10, abs=1)
        deadline._quiet = 100
        deadline.extend()
        assert deadline.left() == pytest.approx(15 - (loop.time() - began), abs=1)


async def test_what_is_held_stands_still_and_goes_on_with_what_was_left() -> None:
    deadline = Deadline(10, 15)
    with deadline:
        with paused([deadline]), paused([deadline]):
            assert deadline.left() == float("inf")
            deadline.extend()
            assert deadline.left() == float("inf")
        assert deadline.left() == pytest.approx(10, abs=1)


async def test_a_deadline_that_passes_ends_the_wait_and_leaves_no_cancellation_behind() -> None:
    with pytest.raises(TimeoutError), Deadline(0.01, 10):
        await asyncio.Event().wait()
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


async def test_a_deadline_that_moves_on_is_the_one_that_counts() -> None:
    heard: list[int] = []

    async def hear() -> None:
        with Deadline(30, 70) as deadline:
            for number in range(5):
                await skip(20)
                heard.append(number)
                deadline.extend()

    with pytest.raises(TimeoutError):
        await hear()
    assert heard == [0, 1, 2]


async def test_a_deadline_that_passed_while_held_counts_from_the_release() -> None:
    async def answer() -> None:
        with Deadline(30, 30) as deadline:
            with paused([deadline]):
                await skip(50)
            assert deadline.left() > 0
            await skip(20)
            assert deadline.left() > 0
            await skip(20)

    with pytest.raises(TimeoutError):
        await answer()


async def test_the_cancellation_of_others_is_not_taken_for_a_deadline() -> None:
    async def wait() -> None:
        with Deadline(10, 10):
            asyncio.get_running_loop().call_soon(task.cancel)
            await asyncio.Event().wait()

    task = asyncio.create_task(wait())
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_both_a_deadline_and_a_cancellation_are_a_cancellation() -> None:
    async def wait() -> None:
        with deadline:
            try:
                await asyncio.Event().wait()
            finally:
                assert task.cancel()

    deadline = Deadline(0.01, 0.01)
    task = asyncio.create_task(wait())
    with pytest.raises(asyncio.CancelledError):
        await task


@contextmanager
def timers() -> Iterator[list[float]]:
    """When each timer that the loop is given inside is set for."""
    loop = asyncio.get_running_loop()
    given: list[float] = []
    call_at = loop.call_at

    def note(when: float, *rest: Any, **more: Any) -> asyncio.TimerHandle:
        given.append(when)
        return call_at(when, *rest, **more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "call_at", note)
        yield given


async def test_deadlines_that_are_met_take_one_timer_for_all() -> None:
    with timers() as given:
        for _ in range(100):
            with Deadline(5, 10):
                await asyncio.sleep(0)
    assert len(given) == 1


async def test_each_deadline_comes_in_its_own_time_in_whatever_order_they_began() -> None:
    async def late(seconds: float) -> float:
        due = asyncio.get_running_loop().time() + seconds
        with pytest.raises(TimeoutError), Deadline(seconds, 10):
            await asyncio.Event().wait()
        return asyncio.get_running_loop().time() - due

    seconds = [number / 500 for number in range(40, 0, -1)]
    with timers() as given:
        found = await asyncio.gather(*map(late, seconds))
    # A loop's clock may be a millisecond coarse.
    assert all(one > -0.002 for one in found)
    # Each began sooner than the last: a timer for each, one more as each comes, and none that sets itself again in vain.
    assert len(given) < 4 * len(seconds)
