"""Rate limits: exactly the allowed number, the time to come back, accounts, and stores that cannot be asked."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pegboard import Board, Client
from pegboard.errors import REFUSED, DeclarationError, LimitReached
from pegboard.middleware import MemoryRates, RateLimit, RateStore
from pegboard.testing import FakeClock, FakeRates, make_call, run_alone

Made = tuple[RateStore, FakeClock]


def memory() -> Made:
    clock = FakeClock()
    return MemoryRates(clock=clock.microseconds), clock


def fake() -> Made:
    clock = FakeClock()
    return FakeRates(clock), clock


STORES = pytest.mark.parametrize("make", [memory, fake])


# -- the contract of every store; the shared one passes its part in test_shared_rates.py -------------------------------


@STORES
async def test_a_store_lets_exactly_a_burst_through_and_then_one_for_each_price(make: Callable[[], Made]) -> None:
    store, clock = make()
    assert [await store.take("k", 1_000_000, 3) for _ in range(4)] == [0, 0, 0, 1_000_000]
    clock.advance(0.999_999)
    assert await store.take("k", 1_000_000, 3) == 1
    clock.advance(0.000_001)
    assert await store.take("k", 1_000_000, 3) == 0
    assert await store.take("k", 1_000_000, 3) == 1_000_000


@STORES
async def test_a_refused_call_is_not_charged(make: Callable[[], Made]) -> None:
    store, clock = make()
    await store.take("k", 1_000_000, 1)
    for _ in range(100):
        assert await store.take("k", 1_000_000, 1) == 1_000_000
    clock.advance(1)
    assert await store.take("k", 1_000_000, 1) == 0


@STORES
async def test_accounts_do_not_touch_each_other(make: Callable[[], Made]) -> None:
    store, _ = make()
    assert [await store.take(key, 1_000_000, 1) for key in ("a", "b", "a")] == [0, 0, 1_000_000]


@STORES
@given(
    price=st.integers(1, 10_000_000),
    burst=st.integers(1, 50),
    pauses=st.lists(st.integers(0, 20_000_000), max_size=60),
)
async def test_no_stretch_of_time_lets_more_through_than_a_burst_and_what_time_paid_for(
    make: Callable[[], Made], price: int, burst: int, pauses: list[int]
) -> None:
    store, clock = make()
    allowed: list[int] = []
    for pause in pauses:
        clock.advance(pause / 1_000_000)
        now = clock.microseconds()
        wait = await store.take("k", price, burst)
        if wait == 0:
            allowed.append(now)
        else:
            assert 0 < wait <= price
    for first, begin in enumerate(allowed):
        for last in range(first, len(allowed)):
            assert last - first + 1 <= burst + (allowed[last] - begin) / price


async def test_both_stores_say_the_same_of_any_sequence() -> None:
    (one, clock), (other, other_clock) = memory(), fake()
    for step in range(500):
        pause = (step * 7919 % 1300) / 1000
        clock.advance(pause)
        other_clock.advance(pause)
        key, price, burst = str(step % 3), 700_000, 2
        assert await one.take(key, price, burst) == await other.take(key, price, burst)


async def test_a_process_keeps_a_bounded_number_of_accounts_and_forgets_those_that_owe_nothing() -> None:
    clock = FakeClock()
    store = MemoryRates(10, clock=clock.microseconds)
    assert [await store.take(str(key), 1_000_000, 1) for key in range(10)] == [0] * 10
    # No room: newcomers share one account, so that inventing names buys nothing.
    assert await store.take("eleventh", 1_000_000, 1) == 0
    assert await store.take("twelfth", 1_000_000, 1) == 1_000_000
    assert len(store._paid_at) == 11
    clock.advance(1)
    assert await store.take("thirteenth", 1_000_000, 1) == 0
    assert list(store._paid_at) == ["thirteenth"]


# -- the middleware ----------------------------------------------------------------------------------------------------


@pytest.mark.requirement("modern/tools/rate-limited", "legacy/tools/rate-limited")
async def test_a_call_over_the_limit_is_rejected_with_a_retry_after_time() -> None:
    board, ran = Board(), []

    @board.tool
    async def search(query: str) -> str:
        ran.append(query)
        return query

    clock = FakeClock()
    board.use(RateLimit(2, "minute", store=MemoryRates(clock=clock.microseconds)))
    async with Client(board) as client:
        results = [await client.call("search", {"query": str(number)}) for number in range(3)]
        assert [result.is_error for result in results] == [False, False, True]
        assert results[2].text == ("search was not run: the limit of 2 calls per minute is reached. Try again in 30 s.")
        assert results[2].meta[REFUSED] == {"reason": "rate_limit", "retryAfter": 30.0, "limit": 2, "seconds": 60.0}
        assert ran == ["0", "1"]
        clock.advance(29.9)
        assert (await client.call("search", {"query": "early"})).is_error
        clock.advance(0.1)
        assert not (await client.call("search", {"query": "in time"})).is_error


async def test_a_caller_that_retries_after_the_stated_time_is_not_rejected_again() -> None:
    clock = FakeClock()
    limit = RateLimit(7, 1.0, store=MemoryRates(clock=clock.microseconds))
    for _ in range(50):
        run = await run_alone(limit)
        if isinstance(run.exception, LimitReached):
            assert run.exception.retry_after is not None
            clock.advance(run.exception.retry_after)
            assert (await run_alone(limit)).exception is None


@pytest.mark.parametrize(
    ("by", "apart"),
    [
        ("tool", {"name": "other"}),
        ("principal", {"principal": "ann"}),
        ("client", {"client": "other"}),
        ("session", {"session": "b" * 32}),
        ("category", {"category": "data"}),
        (("tool", "principal"), {"principal": "ann"}),
        (lambda call: call.arguments.get("tenant", ""), {"arguments": {"tenant": "x"}}),
    ],
)
async def test_by_says_whose_calls_are_counted_together(by: object, apart: dict[str, object]) -> None:
    limit = RateLimit(1, "hour", by=by)  # type: ignore[arg-type]
    assert (await run_alone(limit, call=make_call())).ran == 1
    assert (await run_alone(limit, call=make_call())).ran == 0
    assert (await run_alone(limit, call=make_call(**apart))).ran == 1  # type: ignore[arg-type]
    assert (await run_alone(limit, call=make_call(**apart))).ran == 0  # type: ignore[arg-type]
    assert limit.refused == 2


async def test_unknown_tool_names_share_one_rate_limit() -> None:
    board = Board()
    limit = RateLimit(1, "hour", by="tool")
    board.use(limit)
    async with Client(board) as client:
        with pytest.raises(Exception, match="nknown"):
            await client.call("invented_1")
        assert (await client.call("invented_2")).is_error
    assert limit.refused == 1


async def test_a_burst_bounds_what_comes_at_once() -> None:
    clock = FakeClock()
    limit = RateLimit(60, "minute", burst=5, store=MemoryRates(clock=clock.microseconds))
    assert sum([(await run_alone(limit)).ran for _ in range(20)]) == 5
    clock.advance(3)
    assert sum([(await run_alone(limit)).ran for _ in range(20)]) == 3


async def test_concurrent_calls_are_counted_exactly() -> None:
    limit = RateLimit(40, "hour")
    runs = await asyncio.gather(*(run_alone(limit) for _ in range(200)))
    assert sum(run.ran for run in runs) == 40


@pytest.mark.parametrize(("fail", "ran"), [("open", 1), ("closed", 0)])
async def test_a_store_that_is_down_lets_through_or_refuses_as_set_and_is_logged_once(
    fail: str, ran: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "pegboard.limits")
    store = FakeRates()
    limit = RateLimit(10, store=store, fail=fail)  # type: ignore[arg-type]
    store.down = True
    runs = [await run_alone(limit) for _ in range(5)]
    assert [run.ran for run in runs] == [ran] * 5
    assert limit.unavailable == 5
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    assert ("let through" if fail == "open" else "refused") in caplog.text
    if fail == "closed":
        assert isinstance(runs[0].exception, LimitReached)
        assert runs[0].exception.reason == "rate_limit_unavailable"
        assert runs[0].exception.retry_after == 1.0
    store.down = False
    assert (await run_alone(limit)).ran == 1
    store.down = True
    await run_alone(limit)
    assert [record.levelname for record in caplog.records] == ["ERROR", "INFO", "ERROR"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"limit": 0},
        {"limit": 1, "per": 0},
        {"limit": 1, "per": "fortnight"},
        {"limit": 1, "per": float("nan")},
        {"limit": 2_000_000, "per": 1},
        {"limit": 1, "burst": 0},
        {"limit": 1, "by": "weather"},
        {"limit": 1, "fail": "sideways"},
    ],
)
def test_a_limit_that_makes_no_sense_is_refused_when_it_is_made(wrong: dict[str, object]) -> None:
    with pytest.raises(DeclarationError):
        RateLimit(**wrong)  # type: ignore[arg-type]
