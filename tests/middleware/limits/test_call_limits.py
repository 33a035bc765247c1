"""Limits on calls in progress: seats, queues, deadlines."""

from __future__ import annotations

import asyncio

import pytest

from pegboard import Board, Client
from pegboard.client.client import CallResult
from pegboard.errors import REFUSED, DeclarationError, LimitReached
from pegboard.middleware import Call, ConcurrencyLimit, Timeout
from pegboard.testing import Recorder, make_call, run_alone
from tests.waiting import until


class Work:
    """A tool's work that begins when called and ends when released."""

    def __init__(self) -> None:
        self.running = self.most = 0
        self.go = asyncio.Event()

    async def __call__(self, _call: object) -> str:
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            await self.go.wait()
        finally:
            self.running -= 1
        return "done"


async def test_a_call_beyond_the_limit_is_rejected_when_waiting_is_not_allowed() -> None:
    limit, work = ConcurrencyLimit(2), Work()
    held = [asyncio.ensure_future(run_alone(limit, answer=work)) for _ in range(2)]
    await until(lambda: work.running == 2)
    refused = await run_alone(limit, call=make_call("stub"), answer=work)
    assert isinstance(refused.exception, LimitReached)
    assert refused.exception.message == ("stub was not run: the limit of 2 calls at once is reached. Try again in 1 s.")
    assert refused.exception.meta == {REFUSED: {"reason": "concurrency_limit", "limit": 2, "retryAfter": 1.0}}
    assert refused.ran == 0
    other = asyncio.ensure_future(run_alone(limit, call=make_call("other"), answer=work))
    await until(lambda: work.running == 3)
    work.go.set()
    assert [run.text for run in await asyncio.gather(*held, other)] == ["done"] * 3
    assert limit.refused == 1
    assert limit._rooms == {}


async def test_those_who_wait_are_served_in_the_order_they_came() -> None:
    limit, order = ConcurrencyLimit(1, wait=30), []
    gates = [asyncio.Event() for _ in range(5)]

    async def answer(number: int) -> str:
        order.append(number)
        await gates[number].wait()
        return "done"

    runs = []
    for number in range(5):
        runs.append(asyncio.ensure_future(run_alone(limit, answer=lambda _, number=number: answer(number))))
        await asyncio.sleep(0)
    for number in range(5):
        await until(lambda number=number: len(order) == number + 1)  # type: ignore[misc]
        gates[number].set()
    assert all(run.exception is None for run in await asyncio.gather(*runs))
    assert order == [0, 1, 2, 3, 4]
    assert limit._rooms == {}


async def test_a_wait_has_a_bound_and_so_has_the_queue() -> None:
    limit, work = ConcurrencyLimit(1, wait=0.02, queue=1), Work()
    held = asyncio.ensure_future(run_alone(limit, answer=work))
    await until(lambda: work.running == 1)
    waits = asyncio.ensure_future(run_alone(limit, answer=work))
    await asyncio.sleep(0)
    at_once = await run_alone(limit, answer=work)
    assert isinstance(at_once.exception, LimitReached)
    assert not waits.done(), "the second was refused for a full queue, not for time"
    late = await waits
    assert isinstance(late.exception, LimitReached)
    assert "none has ended in 0.02 s" in late.exception.message
    work.go.set()
    assert (await held).text == "done"
    assert (await run_alone(limit, answer=work)).text == "done"
    assert limit._rooms == {}


async def test_no_seat_is_lost_when_callers_leave_at_any_moment() -> None:
    limit, work = ConcurrencyLimit(2, wait=30), Work()
    calls = [asyncio.ensure_future(limit.around(make_call(), lambda call: _reply(work, call))) for _ in range(20)]
    await until(lambda: work.running == 2)
    for number, call in enumerate(calls):
        if number % 3 == 0:
            call.cancel()
        await asyncio.sleep(0)
    work.go.set()
    # A seat handed over in the very turn in which its taker leaves goes to the next.
    for call in calls[1::3]:
        call.cancel()
    await asyncio.gather(*calls, return_exceptions=True)
    assert work.most <= 2
    assert limit._rooms == {}
    assert (await run_alone(limit)).text == "done"


async def _reply(work: Work, call: object) -> object:
    return await work(call)


async def test_a_seat_is_free_again_after_a_failure() -> None:
    limit = ConcurrencyLimit(1)
    for _ in range(3):
        assert isinstance((await run_alone(limit, answer=ValueError("no"))).exception, ValueError)
    assert (await run_alone(limit)).text == "done"


async def call(board: Board, name: str) -> CallResult:
    async with Client(board) as client:
        return await client.call(name)


def slow_board(ended: list[str]) -> Board:
    board = Board()

    @board.tool(category="query")
    async def slow() -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise
        return "never"

    return board


async def test_a_call_that_exceeds_its_timeout_is_cancelled_and_reports_the_timeout(road: str) -> None:
    ended: list[str] = []
    # Over a wire it has to get there first.
    bound = 0.5 if road == "gateway over http" else 0.01
    board, timeout = slow_board(ended), Timeout(bound)
    board.use(timeout)
    result = await call(board, "slow")
    assert result.is_error
    assert result.text == f"slow took longer than {bound:g} s and was stopped. Ask for less at a time."
    assert result.meta[REFUSED] == {"reason": "timeout", "seconds": bound}
    assert ended == ["cancelled"]
    assert timeout.expired == 1


@pytest.mark.parametrize(
    "timeout",
    [
        Timeout(None, categories={"query": 0.01}),
        Timeout(3600, categories={"query": 3600}, tools={"slow": 0.01}),
        Timeout(0.01, categories={"other": 3600}, tools={"other": None}),
    ],
)
async def test_the_time_of_a_tool_goes_before_its_category_before_all(timeout: Timeout) -> None:
    ended: list[str] = []
    board = slow_board(ended)
    board.use(timeout)
    assert "0.01 s" in (await call(board, "slow")).text


async def test_a_timeout_of_none_disables_the_limit() -> None:
    run = await run_alone(Timeout(0.000_001, tools={"stub": None}), answer=lambda _: asyncio.sleep(0.01, "done"))
    assert run.text == "done"


async def test_a_timeout_of_the_tools_own_is_its_failure() -> None:
    run = await run_alone(Timeout(3600), answer=TimeoutError("the database"))
    assert isinstance(run.exception, TimeoutError)
    assert str(run.exception) == "the database"


async def test_other_middleware_hears_that_the_time_was_over() -> None:
    recorder = Recorder()
    await run_alone(recorder, Timeout(0.001), answer=lambda _: asyncio.Event().wait())
    [step] = [step for step in recorder.steps if step.hook == "error"]
    assert isinstance(step.exception, LimitReached)
    assert step.exception.reason == "timeout"


@pytest.mark.parametrize("wrong", [0, -1, float("nan")])
def test_a_time_that_makes_no_sense_is_refused_when_it_is_made(wrong: float) -> None:
    for make in (
        lambda: Timeout(wrong),
        lambda: Timeout(1, tools={"a": wrong}),
        lambda: Timeout(1, categories={"a": wrong}),
    ):
        with pytest.raises(DeclarationError):
            make()


@pytest.mark.parametrize(
    "wrong", [{"limit": 0}, {"limit": 1, "wait": -1}, {"limit": 1, "queue": -1}, {"limit": 1, "by": "x"}]
)
def test_a_concurrency_limit_that_makes_no_sense_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(DeclarationError):
        ConcurrencyLimit(**wrong)  # type: ignore[arg-type]


async def test_principals_that_wait_for_the_same_tool_get_it_in_turn() -> None:
    limit, order, go = ConcurrencyLimit(1, wait=30, queue=100), list[str](), asyncio.Event()

    async def answer(call: Call) -> str:
        order.append(call.caller.principal.id)
        await go.wait()
        return "done"

    runs = []
    for name in ["flood"] * 20 + ["ada"]:
        runs.append(asyncio.ensure_future(run_alone(limit, call=make_call("stub", principal=name), answer=answer)))
        await asyncio.sleep(0)
    await until(lambda: bool(order))
    go.set()
    await asyncio.gather(*runs)
    assert order[:4] == ["flood", "flood", "ada", "flood"]
