"""A server that fails again and again is left alone, tried now and then, and served again once it answers."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pegboard import Client
from pegboard.client import request_sender
from pegboard.client.request_sender import FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS, CircuitBreaker
from pegboard.errors import ConnectionLost, PegboardError, Refusal, ResponseTimeout, ServerFault, Unreachable
from tests.client.fakes import Asked, discovered, error, faking, modern, reply, text
from tests.client.process_leftovers import nothing_left


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def broken(clock: Clock, limit: int = 3, fault: ServerFault | None = None) -> CircuitBreaker:
    made = CircuitBreaker("the server", limit, clock)
    for _ in range(limit):
        made.enter()
        made.fail(fault or ConnectionLost("it went away"))
    return made


def refused_for(made: CircuitBreaker) -> float:
    with pytest.raises(Unreachable) as refused:
        made.enter()
    assert refused.value.retry_after is not None
    return refused.value.retry_after


def test_it_opens_at_the_limit_and_says_who_when_and_why() -> None:
    clock = Clock()
    made = CircuitBreaker("the server", 3, clock)
    for _ in range(3):
        assert not made.is_open
        made.enter()
        made.fail(ConnectionLost("it went away"))
    assert made.is_open
    with pytest.raises(
        Unreachable,
        match=r"^the server: failed 3 times in a row, and is tried again in 1\.0 s\. Last error: it went away$",
    ):
        made.enter()


def test_a_success_between_failures_resets_the_count() -> None:
    made = CircuitBreaker("the server", 3, Clock())
    for _ in range(10):
        made.fail(ConnectionLost("x"))
        made.fail(ConnectionLost("x"))
        made.succeed()
    made.enter()


def test_one_goes_ahead_after_the_pause_and_the_rest_wait_for_it() -> None:
    clock = Clock()
    made = broken(clock)
    clock.now += FIRST_PAUSE_SECONDS
    made.enter()
    assert refused_for(made) == FIRST_PAUSE_SECONDS
    made.succeed()
    made.enter()
    made.enter()


def test_the_pause_doubles_with_each_failed_attempt_up_to_a_limit_and_is_reset_by_success() -> None:
    clock = Clock()
    made = broken(clock)
    pauses = []
    for _ in range(9):
        wait = refused_for(made)
        pauses.append(wait)
        clock.now += wait
        made.enter()
        made.fail(ConnectionLost("x"))
    assert pauses == [1, 2, 4, 8, 16, 32, LONGEST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS]
    made.succeed()
    for _ in range(3):
        made.enter()
        made.fail(ConnectionLost("x"))
    assert refused_for(made) == FIRST_PAUSE_SECONDS


def test_many_that_fail_together_are_one_failure() -> None:
    clock = Clock()
    made = broken(clock)
    for _ in range(100):
        made.fail(ConnectionLost("x"))
    assert refused_for(made) == FIRST_PAUSE_SECONDS


def test_an_unfinished_attempt_blocks_other_attempts_no_longer_than_the_pause() -> None:
    clock = Clock()
    made = broken(clock)
    clock.now += FIRST_PAUSE_SECONDS
    made.enter()
    clock.now += FIRST_PAUSE_SECONDS
    made.enter()


def test_a_server_that_says_when_to_come_is_left_alone_until_then_within_reason() -> None:
    clock = Clock()
    assert refused_for(broken(clock, fault=Unreachable("busy", retry_after=30.0))) == 30
    assert refused_for(broken(clock, fault=Unreachable("busy", retry_after=1e9))) == LONGEST_PAUSE_SECONDS


def test_without_a_limit_it_never_opens() -> None:
    made = CircuitBreaker("the server", 0, Clock())
    for _ in range(1000):
        made.fail(ConnectionLost("x"))
    made.enter()


async def test_a_failing_server_is_not_asked_while_it_is_left_alone_and_comes_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(request_sender, "FIRST_PAUSE_SECONDS", 0.3)
    down = True

    def answer(asked: Asked, writer: asyncio.StreamWriter) -> None:
        if down:
            writer.close()
        else:
            reply(writer, text(asked, "back"))

    async with nothing_left(), faking(modern(answer)) as fake, Client(fake.url, break_after=3) as client:
        for _ in range(3):
            with pytest.raises(ConnectionLost):
                await client.call("any")
        asked = len(fake.asked)
        with pytest.raises(Unreachable, match=r"failed 3 times in a row, and is tried again in 0") as refused:
            await client.call("any")
        assert fake.url in str(refused.value)
        assert len(fake.asked) == asked
        down = False
        assert refused.value.retry_after is not None
        await asyncio.sleep(refused.value.retry_after)
        told = await asyncio.gather(*(client.call("any") for _ in range(5)), return_exceptions=True)
        assert [getattr(one, "text", None) for one in told] == ["back", None, None, None, None]
        assert (await client.call("any")).text == "back"


async def test_a_request_is_not_sent_again_once_the_breaker_is_open() -> None:
    answer = modern(lambda asked, writer: writer.close())
    async with nothing_left(), faking(answer) as fake, Client(fake.url, break_after=2, retries=5) as client:
        with pytest.raises(ConnectionLost):
            await client.read("any://thing")
        assert fake.methods.count("resources/read") == 2


@pytest.mark.parametrize(
    ("answer", "kind", "counts"),
    [
        (lambda asked, writer: reply(writer, error(asked, -32602, "no")), Refusal, False),
        (lambda asked, writer: reply(writer, b"", "401 Unauthorized"), ServerFault, False),
        (lambda asked, writer: reply(writer, b"what", "200 OK"), ServerFault, False),
        (lambda asked, writer: reply(writer, b"", "503 Service Unavailable"), Unreachable, True),
        (lambda asked, writer: writer.close(), ConnectionLost, True),
        (lambda asked, writer: None, ResponseTimeout, True),
    ],
    ids=["refuses", "does not admit", "garbles", "is busy", "breaks off", "is silent"],
)
async def test_only_a_server_that_is_not_there_counts(answer: Any, kind: type[PegboardError], counts: bool) -> None:
    async with nothing_left(), faking(modern(answer)) as fake, Client(fake.url, break_after=2, retries=0) as client:
        seconds = 0.2 if kind is ResponseTimeout else None
        for _ in range(2):
            with pytest.raises(kind):
                await client.call("any", timeout=seconds)
        with pytest.raises(PegboardError) as third:
            await client.call("any", timeout=seconds)
        assert ("failed 2 times in a row" in str(third.value)) is counts


def unlisted(*, breaks: bool) -> Any:
    """A modern server whose `tools/list` fails: with 503, or with a lost connection."""

    def answer(asked: Asked, writer: asyncio.StreamWriter) -> None:
        if asked.message.get("method") == "server/discover":
            reply(writer, discovered(asked))
        elif breaks:
            writer.close()
        else:
            reply(writer, b"", "503 Service Unavailable")

    return answer


@pytest.mark.parametrize("breaks", [False, True], ids=["is busy", "breaks off"])
@pytest.mark.parametrize("retries", [0, 1, 2])
async def test_retries_do_not_multiply_while_the_tools_are_not_known(retries: int, breaks: bool) -> None:
    async with faking(unlisted(breaks=breaks)) as fake, Client(fake.url, retries=retries, break_after=0) as client:
        with pytest.raises(Unreachable):
            await client.call("any")
        assert fake.methods.count("tools/list") == retries + 1
        assert fake.methods.count("tools/call") == 0


async def test_a_failed_attempt_counts_once_even_where_the_tools_are_listed_first() -> None:
    async with faking(unlisted(breaks=False)) as fake, Client(fake.url, retries=0, break_after=3) as client:
        for _ in range(3):
            with pytest.raises(Unreachable, match="503"):
                await client.call("any")
        with pytest.raises(Unreachable, match="failed 3 times in a row"):
            await client.call("any")
