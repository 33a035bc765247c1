"""Trying again: what, how often, and after which wait."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pegboard import ToolError, ToolResult
from pegboard.call import Call
from pegboard.errors import DeclarationError, InvalidParams, LimitReached
from pegboard.middleware import Retry, Timeout
from pegboard.testing import FakeClock, Recorder, make_call, run_alone


def repeatable() -> Call:
    return make_call("fetch", annotations={"idempotentHint": True})


def failing(times: int, problem: BaseException | None = None) -> Callable[[Call], Any]:
    """A stub that fails so many times and then answers."""
    left = [times]

    def answer(_: Call) -> Any:
        left[0] -= 1
        return (problem or ValueError("flaky")) if left[0] >= 0 else "at last"

    return answer


async def test_what_failed_is_tried_again_until_it_works() -> None:
    clock, call = FakeClock(), repeatable()
    retry = Retry(3, sleep=clock.sleep)
    run = await run_alone(retry, call=call, answer=failing(2))
    assert (run.text, run.ran, retry.retried, call.state["attempts"]) == ("at last", 3, 2, 3)


async def test_attempts_are_bounded_and_the_last_failure_is_reported() -> None:
    clock = FakeClock()
    run = await run_alone(Retry(3, sleep=clock.sleep), call=repeatable(), answer=failing(9))
    assert (run.ran, repr(run.exception)) == (3, "ValueError('flaky')")
    assert len(clock.slept) == 2


@given(st.integers(1, 12), st.floats(0, 1), st.floats(0.001, 1), st.floats(1, 10))
async def test_each_wait_is_a_random_part_of_one_that_doubles_up_to_a_bound(
    attempts: int, drawn: float, wait: float, longest: float
) -> None:
    clock = FakeClock()
    retry = Retry(attempts, wait=wait, longest=longest, sleep=clock.sleep, draw=lambda: drawn)
    await run_alone(retry, call=repeatable(), answer=failing(99))
    assert clock.slept == [drawn * min(longest, wait * 2**turn) for turn in range(attempts - 1)]


@pytest.mark.parametrize(
    ("annotations", "tools", "ran"),
    [
        ({"idempotentHint": True}, None, 3),
        ({"readOnlyHint": True}, None, 3),
        ({"idempotentHint": False, "readOnlyHint": None}, None, 1),
        ({}, None, 1),
        ({}, ["fetch"], 3),
        ({"idempotentHint": True}, ["other"], 1),
    ],
)
async def test_only_tools_that_are_named_or_whose_author_says_so_run_twice(
    annotations: dict[str, Any], tools: list[str] | None, ran: int
) -> None:
    retry = Retry(3, tools=tools, sleep=FakeClock().sleep)
    assert (await run_alone(retry, call=make_call("fetch", annotations=annotations), answer=failing(9))).ran == ran


@pytest.mark.parametrize(
    "answer",
    [ToolError("no such city"), InvalidParams("no"), LimitReached("busy", "rate_limit"), SystemExit(1)],
    ids=lambda answer: type(answer).__name__,
)
async def test_an_answer_in_its_authors_words_is_not_tried_again(answer: BaseException) -> None:
    run = await run_alone(Retry(3, sleep=FakeClock().sleep), call=repeatable(), answer=answer)
    assert (run.ran, run.exception) == (1, answer)


async def test_an_error_result_is_an_answer_too() -> None:
    run = await run_alone(Retry(3), call=repeatable(), answer=ToolResult("no", is_error=True))
    assert run.ran == 1


async def test_on_says_what_is_tried_again() -> None:
    clock = FakeClock()
    for on, problem, ran in (
        (ConnectionError, ConnectionResetError(), 3),
        (ConnectionError, ValueError(), 1),
        ((ConnectionError, ToolError), ToolError("busy"), 3),
        (LimitReached, LimitReached("late", "timeout"), 3),
        (LimitReached, ToolError("no"), 1),
    ):
        retry = Retry(3, on=on, sleep=clock.sleep)
        assert (await run_alone(retry, call=repeatable(), answer=failing(9, problem))).ran == ran


async def test_a_timeout_bounds_each_run_and_hooks_inside_see_each() -> None:
    inner = Recorder(order=130)

    async def hang(_: Call) -> None:
        await asyncio.Event().wait()

    retry = Retry(2, on=LimitReached, sleep=FakeClock().sleep)
    run = await run_alone(retry, Timeout(0.01), inner, call=repeatable(), answer=hang)
    assert isinstance(run.exception, LimitReached)
    assert [step.hook for step in inner.steps] == ["before", "error"] * 2


async def test_a_cancelled_call_is_not_tried_again() -> None:
    begun = asyncio.Event()

    async def hang(_: Call) -> None:
        begun.set()
        await asyncio.Event().wait()

    task = asyncio.ensure_future(run_alone(Retry(3), call=repeatable(), answer=hang))
    await begun.wait()
    task.cancel()
    run = await task
    assert (run.ran, type(run.exception)) == (1, asyncio.CancelledError)


@pytest.mark.parametrize(
    "wrong", [{"attempts": 0}, {"attempts": 101}, {"wait": -1}, {"wait": 9, "longest": 1}, {"tools": "x"}]
)
def test_a_retry_that_makes_no_sense_is_refused_when_it_is_made(wrong: dict[str, Any]) -> None:
    with pytest.raises(DeclarationError):
        Retry(**wrong)
