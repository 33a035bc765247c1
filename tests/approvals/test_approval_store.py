"""Approval requests in a store: decided once, by those who may, used once, and for a limited time by every clock."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from pegboard import Limits, Principal
from pegboard.approvals.approval_request import ApprovalRequest
from pegboard.approvals.approval_store import Approvals
from pegboard.auth.local_user import local_user
from pegboard.auth.principal import ANONYMOUS
from pegboard.errors import AccessDenied, InvalidParams, LimitReached
from pegboard.logs.audit_sink import AuditSink, Decision
from pegboard.rules.rule import Approval
from tests.stores.backends import Backend, Clock, shared
from tests.waiting import SOON

ANN, BOB = Principal("ann"), Principal("bob")
LEAD = Principal("lea", roles=frozenset({"lead"}))
ANN_AS_LEAD = Principal("ann", roles=frozenset({"lead"}), kind="key")
OPERATOR = local_user()
OTHERS, SELF = Approval(by="others"), Approval(by="self")
BY_LEAD = Approval(by="role", roles=("lead",))


class Desk:
    """Approvals whose clocks a test moves."""

    def __init__(self, **limits: Any) -> None:
        self.wall, self.ticks, self.limits = Clock(), Clock(), Limits(**limits)
        self.approvals = Approvals("desk", self.limits, self.wall, self.ticks)

    def request(self, number: int = 1, requester: str = "ann", approval: Approval = OTHERS) -> ApprovalRequest:
        now = self.wall()
        return ApprovalRequest(
            id=f"r{number}",
            digest=f"d{number} {requester}",
            requester=requester,
            client="",
            tool="delete",
            arguments="{}",
            approval=approval,
            since=now,
            expires=now + self.limits.approval_seconds,
            seconds=self.limits.approval_seconds,
        )


@asynccontextmanager
async def two_desks(backend: Backend, **limits: Any) -> AsyncIterator[tuple[Approvals, Approvals, Desk]]:
    """The approvals of two processes."""
    desk = Desk(**limits)
    other = Approvals("desk", desk.limits, desk.wall, desk.ticks)
    async with shared(backend) as (one, two):
        desk.approvals.use_store(one)
        other.use_store(two)
        yield desk.approvals, other, desk


@pytest.mark.parametrize(
    ("approval", "requester", "who", "objection"),
    [
        (SELF, "ann", ANN, ""),
        (SELF, "ann", BOB, "only the caller itself"),
        (SELF, "ann", OPERATOR, "only the caller itself"),
        (SELF, "", OPERATOR, ""),
        (SELF, "", BOB, "only the caller itself"),
        (OTHERS, "ann", ANN, "you made this call"),
        (OTHERS, "ann", ANN_AS_LEAD, "you made this call"),
        (OTHERS, "ann", BOB, ""),
        (OTHERS, "ann", OPERATOR, ""),
        (OTHERS, "ann", ANONYMOUS, "sign in first"),
        (OTHERS, "", BOB, ""),
        (OTHERS, OPERATOR.id, OPERATOR, "you made this call"),
        # A client in the same process is the user who runs it.
        (OTHERS, OPERATOR.id, Principal("", kind="local"), "you made this call"),
        (BY_LEAD, "ann", BOB, "only a person with the role lead"),
        (BY_LEAD, "ann", LEAD, ""),
        (BY_LEAD, "ann", ANN_AS_LEAD, "you made this call"),
        (BY_LEAD, "ann", OPERATOR, ""),
        (BY_LEAD, OPERATOR.id, OPERATOR, "you made this call"),
    ],
)
def test_who_may_decide(approval: Approval, requester: str, who: Principal, objection: str) -> None:
    request = Desk().request(requester=requester, approval=approval)
    given = request.objection(who)
    assert objection in given
    assert bool(objection) == bool(given)


async def test_a_decision_in_one_process_reaches_a_call_that_waits_in_another(backend: Backend) -> None:
    async with two_desks(backend) as (one, two, desk):
        request = await one.ask(desk.request())
        waiting = asyncio.create_task(one.wait(request.id, 1000))
        [seen] = await two.open_for(BOB)
        await two.decide(seen.id, BOB, approve=False, reason="  no ")
        async with asyncio.timeout(SOON):
            decided = await waiting
        assert decided is not None
        assert (decided.state, decided.decided_by, decided.reason) == ("refused", "bob", "no")


async def test_a_request_is_decided_once_and_used_once(backend: Backend) -> None:
    async with two_desks(backend) as (one, two, desk):
        request = await one.ask(desk.request())
        decisions = await asyncio.gather(
            *(desk.decide(request.id, who, approve=True) for desk in (one, two) for who in (BOB, LEAD)),
            return_exceptions=True,
        )
        won = [decision for decision in decisions if not isinstance(decision, BaseException)]
        lost = [str(decision) for decision in decisions if isinstance(decision, InvalidParams)]
        assert (len(won), len(lost)) == (1, 3)
        assert all(f"already approved by {won[0].decided_by}" in problem for problem in lost)
        used = await asyncio.gather(*(desk.use(won[0]) for desk in (one, two, one, two)))
        assert sorted(used) == [False, False, False, True]
        with pytest.raises(InvalidParams, match="was used already; the next call needs another one"):
            await two.decide(request.id, BOB, approve=True)
        # The next identical call makes a new request.
        again = await two.ask(desk.request(2))
        assert again.id == "r2"


async def test_a_decision_that_came_too_late_is_recorded_as_failed() -> None:
    recorded: list[tuple[str, str, str]] = []

    class Slow(AuditSink):
        async def record(self, decision: Decision) -> None:
            recorded.append((decision.action, decision.principal, decision.outcome))
            await asyncio.sleep(0)

    desk = Desk()
    approvals = Approvals("desk", desk.limits, desk.wall, desk.ticks, find_audit=Slow)
    request = await approvals.ask(desk.request())
    decided = await asyncio.gather(
        approvals.decide(request.id, BOB, approve=True),
        approvals.decide(request.id, LEAD, approve=False),
        return_exceptions=True,
    )
    assert [isinstance(one, InvalidParams) for one in decided] == [False, True]
    assert recorded == [
        ("approvals.grant", "bob", "ok"),
        ("approvals.refuse", "lea", "ok"),
        ("approvals.refuse", "lea", "failed"),
    ]


async def test_no_id_names_a_request_of_another_server_in_the_same_store(backend: Backend) -> None:
    async with shared(backend) as (one, two):
        desk, other = Desk(), Desk()
        desk.approvals = Approvals("desk payments", desk.limits, desk.wall, desk.ticks)
        desk.approvals.use_store(one)
        other.approvals.use_store(two)
        request = await desk.approvals.ask(desk.request(requester="ann"))
        assert await other.approvals.get(f"payments {request.id}") is None
        with pytest.raises(InvalidParams, match="no approval request"):
            await other.approvals.decide(f"payments {request.id}", BOB, approve=True)


async def test_identical_calls_in_several_processes_make_one_request(backend: Backend) -> None:
    async with two_desks(backend) as (one, two, desk):
        wanted = []
        for number in range(8):
            wanted.append(desk.request(number))
            wanted[-1].digest = "the same"
        made = await asyncio.gather(*((one, two)[index % 2].ask(request) for index, request in enumerate(wanted)))
        assert len({request.id for request in made}) == 1
        assert len(await one.open_for(BOB)) == 1


async def test_open_requests_are_limited_for_each_requester_and_in_all() -> None:
    desk = Desk(approvals=5, approvals_per_caller=3)
    for number in range(3):
        await desk.approvals.ask(desk.request(number))
    with pytest.raises(LimitReached, match="3 calls already wait for an approval"):
        await desk.approvals.ask(desk.request(3))
    for number in (4, 5):
        await desk.approvals.ask(desk.request(number, "bob"))
    with pytest.raises(LimitReached):
        await desk.approvals.ask(desk.request(6, "eve"))
    # A used approval makes room.
    await desk.approvals.decide("r0", LEAD, approve=True)
    found = await desk.approvals.get("r0")
    assert found is not None
    assert await desk.approvals.use(found)
    await desk.approvals.ask(desk.request(7))


async def test_a_caller_that_leaves_its_own_questions_unanswered_can_still_call() -> None:
    desk = Desk(approvals_per_caller=3)
    for number in range(5):
        await desk.approvals.ask(desk.request(number, approval=SELF))
    assert [request.id for request in await desk.approvals.open_for(ANN)] == ["r2", "r3", "r4"]


@pytest.mark.parametrize("decided", [False, True])
@pytest.mark.parametrize(
    ("wall", "ticks"),
    [
        (3600.0, 3600.0),
        # The wall clock jumps forward, back beyond the request, or stands still.
        (3600.0, 0.0),
        (-100.0, 0.0),
        (0.0, 3600.0),
        (-1.0, 3600.0),
    ],
)
async def test_no_clock_prolongs_a_request(wall: float, ticks: float, *, decided: bool) -> None:
    desk = Desk(approval_seconds=3600)
    request = await desk.approvals.ask(desk.request())
    assert await desk.approvals.get(request.id) is not None
    if decided:
        request = await desk.approvals.decide(request.id, BOB, approve=True)
        assert await desk.approvals.get(request.id) is not None
    desk.wall.now += wall
    desk.ticks.now += ticks
    assert await desk.approvals.get(request.id) is None
    assert not await desk.approvals.use(request)
    with pytest.raises(InvalidParams, match="or it has expired; let the caller make the call again"):
        await desk.approvals.decide(request.id, BOB, approve=True)


async def test_a_decision_by_another_program_lasts_as_long_as_the_server_says() -> None:
    desk = Desk(approval_seconds=60)
    command_line = Approvals("desk", Limits(), desk.wall, desk.ticks)
    command_line.use_store(desk.approvals._store)
    await desk.approvals.ask(desk.request())
    decided = await command_line.decide("r1", BOB, approve=True)
    assert decided.expires == desk.wall() + 60


async def test_a_call_that_waits_ends_when_its_request_expires() -> None:
    desk = Desk(approval_seconds=3600)
    request = await desk.approvals.ask(desk.request())
    desk.wall.now += 3600
    assert await desk.approvals.wait(request.id, 1000) is None


async def test_a_person_sees_its_own_requests_and_those_it_may_decide() -> None:
    desk = Desk()
    approvals = desk.approvals
    await approvals.ask(desk.request(1))
    await approvals.ask(desk.request(2, "bob", BY_LEAD))
    await approvals.ask(desk.request(3, "bob", SELF))

    async def ids(principal: Principal) -> tuple[list[str], list[str], list[str]]:
        mine, history = await approvals.made_by(principal), await approvals.history(principal)
        return (
            [request.id for request in await approvals.open_for(principal)],
            [request.id for request in mine],
            [event.request.id for event in history],
        )

    assert await ids(ANN) == ([], ["r1"], ["r1"])
    assert await ids(BOB) == (["r1", "r3"], ["r2", "r3"], ["r3", "r2", "r1"])
    assert await ids(LEAD) == (["r1", "r2"], [], ["r2", "r1"])
    assert await ids(ANONYMOUS) == ([], [], [])
    with pytest.raises(AccessDenied, match="you made this call"):
        await approvals.decide("r1", ANN, approve=True)
    # What it may not see looks unknown.
    with pytest.raises(InvalidParams, match="There is no approval request 'r2'"):
        await approvals.decide("r2", ANN, approve=True)
    await approvals.decide("r1", LEAD, approve=False, reason="x" * 1000)
    newest = (await approvals.history(ANN))[0]
    assert (newest.step, newest.by, len(newest.reason), newest.request.arguments) == ("refused", "lea", 500, "")


async def test_a_decision_that_cannot_be_recorded_does_not_happen() -> None:
    class Full(AuditSink):
        async def record(self, decision: Decision) -> None:
            assert (decision.action, decision.principal, decision.name) == ("approvals.grant", "bob", "delete")
            raise LimitReached("the disk is full", "audit_unavailable")

    desk = Desk()
    approvals = Approvals("desk", desk.limits, desk.wall, desk.ticks, find_audit=Full)
    await approvals.ask(desk.request())
    with pytest.raises(LimitReached):
        await approvals.decide("r1", BOB, approve=True)
    found = await approvals.get("r1")
    assert found is not None
    assert found.state == "open"
