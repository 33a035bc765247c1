"""Sessions open, last while they are used, and end; each by a clock that moves when told."""

from __future__ import annotations

import asyncio
import re

import pytest

from pegboard.auth.principal import Principal
from pegboard.call import Caller
from pegboard.errors import Busy, SessionNotFound
from pegboard.limits import Limits
from pegboard.sessions.session import Session
from pegboard.sessions.sessions import Sessions


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def start(sessions: Sessions, principal: str = "") -> Session:
    return sessions.open(
        lambda session: Caller(version="2025-11-25", transport="http", session=session, principal=Principal(principal))
    )


def work() -> asyncio.Task[None]:
    async def wait() -> None:
        await asyncio.Event().wait()

    return asyncio.ensure_future(wait())


@pytest.mark.requirement("legacy/http/session-id-visible")
def test_an_id_is_32_hexadecimal_digits_and_no_two_are_alike() -> None:
    sessions = Sessions(Limits())
    found = {start(sessions).caller.session for _ in range(100)}
    assert len(found) == 100
    assert all(re.fullmatch("[0-9a-f]{32}", one) for one in found)


def test_a_session_is_found_by_its_id_and_names_it_in_its_header() -> None:
    sessions = Sessions(Limits())
    session = start(sessions)
    assert sessions.find(session.caller.session, "") is session
    assert session.header == (b"mcp-session-id", session.caller.session.encode())


@pytest.mark.parametrize("sent", ["", "nonsense", "0" * 32])
def test_an_id_that_was_never_given_is_not_found(sent: str) -> None:
    with pytest.raises(SessionNotFound) as caught:
        Sessions(Limits()).find(sent, "")
    assert (caught.value.code, caught.value.status) == (-32001, 404)
    assert "initialize" in caught.value.message


def test_a_session_belongs_to_the_one_who_opened_it() -> None:
    sessions = Sessions(Limits())
    session = start(sessions, "ann")
    with pytest.raises(SessionNotFound):
        sessions.find(session.caller.session, "bob")
    assert sessions.find(session.caller.session, "ann") is session


def test_a_session_lasts_half_an_hour_after_its_last_use() -> None:
    clock = Clock()
    sessions = Sessions(Limits(), clock)
    session = start(sessions)
    for _ in range(3):
        clock.now += 1800
        assert sessions.find(session.caller.session, "") is session
    clock.now += 1800.1
    with pytest.raises(SessionNotFound):
        sessions.find(session.caller.session, "")
    assert len(sessions) == 0


def test_a_stranger_does_not_prolong_a_session() -> None:
    clock = Clock()
    sessions = Sessions(Limits(), clock)
    session = start(sessions, "ann")
    clock.now += 1000
    with pytest.raises(SessionNotFound):
        sessions.find(session.caller.session, "bob")
    clock.now += 1000
    with pytest.raises(SessionNotFound):
        sessions.find(session.caller.session, "ann")


async def test_a_session_with_a_call_under_way_does_not_expire() -> None:
    clock = Clock()
    sessions = Sessions(Limits(), clock)
    session = start(sessions)
    session.calls[1] = task = work()
    clock.now += 10_000
    assert sessions.reap() == 0
    assert sessions.find(session.caller.session, "") is session
    task.cancel()


def test_what_has_expired_is_dropped_by_the_reaper() -> None:
    clock = Clock()
    sessions = Sessions(Limits(), clock)
    start(sessions)
    clock.now += 1000
    young = start(sessions)
    clock.now += 1000
    assert sessions.reap() == 1
    assert sessions.find(young.caller.session, "") is young


async def test_closing_ends_a_session_and_cancels_its_calls() -> None:
    sessions = Sessions(Limits())
    session = start(sessions)
    other = start(sessions)
    session.calls[1] = one = work()
    session.calls["1"] = two = work()
    session.calls[2] = None
    other.calls[1] = untouched = work()
    sessions.close(session)
    await asyncio.wait([one, two], timeout=5)
    assert one.cancelled()
    assert two.cancelled()
    assert not untouched.done()
    with pytest.raises(SessionNotFound):
        sessions.find(session.caller.session, "")
    untouched.cancel()


def test_the_longest_idle_session_makes_room_for_a_new_one() -> None:
    clock = Clock()
    sessions = Sessions(Limits(sessions=2), clock)
    first = start(sessions)
    clock.now += 1
    second = start(sessions)
    clock.now += 1
    sessions.find(first.caller.session, "")
    third = start(sessions)
    assert len(sessions) == 2
    assert sessions.find(first.caller.session, "") is first
    assert sessions.find(third.caller.session, "") is third
    with pytest.raises(SessionNotFound):
        sessions.find(second.caller.session, "")


def test_expired_sessions_make_room_before_living_ones() -> None:
    clock = Clock()
    sessions = Sessions(Limits(sessions=2), clock)
    start(sessions)
    clock.now += 1700
    living = start(sessions)
    clock.now += 200
    start(sessions)
    assert sessions.find(living.caller.session, "") is living


async def test_when_all_sessions_are_at_work_a_new_one_has_to_wait() -> None:
    sessions = Sessions(Limits(sessions=2))
    tasks = []
    for _ in range(2):
        session = start(sessions)
        session.calls[1] = task = work()
        tasks.append(task)
    with pytest.raises(Busy) as caught:
        start(sessions)
    assert (caught.value.status, caught.value.retry_after) == (503, 30)
    assert len(sessions) == 2
    for task in tasks:
        task.cancel()
