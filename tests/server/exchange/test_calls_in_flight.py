"""Calls under way: let in while there is room, kept alive by one sweep, seen out when we end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest

from pegboard.errors import Busy, Refusal
from pegboard.limits import Limits
from pegboard.server.exchange.calls_in_flight import CallsInFlight


class Exchange:
    """Something that lasts, and counts how often it was kept alive."""

    def __init__(self, *, streaming: bool = False) -> None:
        self.since = 0.0
        self.account = ""
        self.streaming = streaming
        self.closing = False
        self.kept = 0
        self.ended = False

    def keep_alive(self) -> None:
        self.kept += 1

    def end(self) -> None:
        self.ended = True

    def refuse(self, refusal: Refusal) -> str:
        return refusal.message

    def end_cancelled(self) -> None: ...

    def add_headers(self, headers: object) -> None: ...


class Clock:
    """A loop as far as a sweep needs one: a time, and timers that are called when it has come."""

    def __init__(self) -> None:
        self.now = 0.0
        self.timers: list[tuple[float, Callable[[], object]]] = []

    def time(self) -> float:
        return self.now

    def call_later(self, seconds: float, work: Callable[..., object], *given: Any) -> None:
        self.timers.append((self.now + seconds, lambda: work(*given)))

    def advance(self, seconds: float) -> None:
        end = self.now + seconds
        while self.timers and self.timers[0][0] <= end:
            self.now, work = self.timers.pop(0)
            work()
        self.now = end


def make_calls(clock: Clock, reaped: list[float], **options: Any) -> CallsInFlight:
    limits = Limits(calls=2, quiet_seconds=5)
    return CallsInFlight(limits, lambda: reaped.append(clock.now), cast("asyncio.AbstractEventLoop", clock), **options)


async def wait_for(event: asyncio.Event) -> str:
    await event.wait()
    return "done"


async def begin(calls: CallsInFlight, exchange: Exchange, event: asyncio.Event) -> asyncio.Task[str]:
    task = calls.run(exchange, wait_for(event), 0)
    assert isinstance(task, asyncio.Task)
    return task


async def test_one_call_more_than_there_is_room_for_is_refused_and_its_walk_not_begun() -> None:
    calls, go = CallsInFlight(Limits(calls=1), list), asyncio.Event()
    walked: list[str] = []

    async def walk() -> None:
        walked.append("x")

    first = await begin(calls, Exchange(), go)
    with pytest.raises(Busy, match="1 calls are already running"):
        calls.run(Exchange(), walk(), 0)
    with pytest.raises(Busy):
        calls.admit(Exchange())
    go.set()
    assert await first == "done"
    await asyncio.sleep(0)
    assert (walked, calls.running) == ([], {})
    calls.check_room()


async def test_who_is_let_in_takes_room_though_it_has_not_begun() -> None:
    calls = CallsInFlight(Limits(calls=1), list)
    calls.admit(Exchange())
    with pytest.raises(Busy):
        calls.check_room()


async def test_a_call_that_fails_or_is_cancelled_gives_its_room_back() -> None:
    calls = CallsInFlight(Limits(calls=1), list)

    async def fail() -> None:
        await asyncio.sleep(0)
        raise OSError("broken")

    failing = calls.run(Exchange(), fail(), 0)
    assert isinstance(failing, asyncio.Task)
    with pytest.raises(OSError, match="broken"):
        await failing
    left = await begin(calls, Exchange(), asyncio.Event())
    left.cancel()
    with pytest.raises(asyncio.CancelledError):
        await left
    await asyncio.sleep(0)
    assert calls.running == {}


async def test_silent_calls_and_streams_are_kept_alive_after_their_respective_intervals() -> None:
    clock, reaped = Clock(), list[float]()
    calls = make_calls(clock, reaped)
    plain, stream, subscriber, go = Exchange(), Exchange(streaming=True), Exchange(), asyncio.Event()
    tasks = [await begin(calls, plain, go), await begin(calls, stream, go)]
    calls.follow(subscriber)
    clock.advance(4)
    assert (plain.kept, stream.kept, subscriber.kept) == (0, 0, 0)
    clock.advance(1)
    assert (plain.kept, stream.kept, subscriber.kept) == (1, 0, 0)
    clock.advance(10)
    assert (plain.kept, stream.kept, subscriber.kept) == (3, 1, 1)
    assert reaped == [float(second) for second in range(1, 16)]
    go.set()
    await asyncio.gather(*tasks)


async def test_the_sweep_ends_with_what_it_is_for_and_begins_again_with_the_next() -> None:
    clock, reaped, more = Clock(), list[float](), [True]
    calls = make_calls(clock, reaped, later=lambda: more)
    subscriber = Exchange()
    calls.follow(subscriber)
    calls.forget(subscriber)
    clock.advance(3)
    # There is something to reap yet.
    assert len(reaped) == 3
    more.clear()
    clock.advance(5)
    assert len(reaped) == 4
    assert clock.timers == []
    calls.schedule_sweep()
    calls.schedule_sweep()
    assert len(clock.timers) == 1


async def test_the_end_waits_for_calls_that_come_to_their_answers_and_takes_no_others() -> None:
    calls, go, subscriber = CallsInFlight(Limits(), list), asyncio.Event(), Exchange()
    exchange = Exchange()
    task = await begin(calls, exchange, go)
    calls.follow(subscriber)
    ending = asyncio.create_task(calls.drain(20, asyncio.Event()))
    await asyncio.sleep(0)
    assert subscriber.ended
    for refused in (calls.check_room, lambda: calls.admit(Exchange()), lambda: calls.follow(Exchange())):
        with pytest.raises(Busy, match="shutting down"):
            refused()
    with pytest.raises(Busy, match="shutting down"):
        calls.run(Exchange(), wait_for(go), 0)
    go.set()
    await ending
    assert await task == "done"
    assert not exchange.closing


@pytest.mark.parametrize("hurried", [False, True])
async def test_what_has_not_ended_when_time_is_up_or_somebody_is_in_a_hurry_is_cancelled(hurried: bool) -> None:
    calls, exchange, hurry = CallsInFlight(Limits(), list), Exchange(), asyncio.Event()
    task = await begin(calls, exchange, asyncio.Event())
    if hurried:
        hurry.set()
    await calls.drain(20 if hurried else 0.01, hurry)
    assert task.cancelled()
    assert exchange.closing
    assert calls.running == {}
