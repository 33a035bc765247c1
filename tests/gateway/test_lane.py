"""One link for all who need it: opened once, asked by many, and asking nobody in another's name."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from pegboard.call import NOBODY, Channel, Json, Question
from pegboard.client.link import Outbound
from pegboard.client.patience import Patience
from pegboard.errors import InvalidRequest, MethodNotFound, NoAnswer, Refusal, SetupError, Unreachable
from pegboard.gateway.lane import Lane, Ride
from pegboard.gateway.slots import Slots
from tests.gateway.behind import Person
from tests.gateway.fake_link import FakeLink

FORM = Question("elicitation/create", {"message": "Sure?"})
SAMPLE = Question("sampling/createMessage", {})
ROOTS = Question("roots/list", {})


async def ride(lane: Lane, channel: Channel = NOBODY, owner: Any = "ann") -> Mapping[str, Json]:
    out = Outbound(method="tools/call", params={"name": "x"}, channel=channel)
    return await lane.send(out, Ride(channel, (Slots("x", 9),), owner, Patience(5, 5)), seconds=5)


async def test_it_is_opened_once_for_all_and_who_gives_up_takes_it_from_nobody() -> None:
    link = FakeLink()
    gate = asyncio.Event()
    link.opening = gate.wait  # type: ignore[assignment]  # it waits, and that is all
    lane = link.lane()
    waiting = [asyncio.create_task(lane.open()) for _ in range(5)]
    await asyncio.sleep(0)
    waiting[0].cancel()
    await asyncio.sleep(0)
    gate.set()
    await asyncio.gather(*waiting[1:])
    assert (link.opened, link.is_open) == (1, True)
    await lane.close()


@pytest.mark.parametrize("problem", [Refusal("go away"), SetupError("no such bundle"), Unreachable("nobody there")])
async def test_whatever_fails_is_unreachable_and_a_moment_later_fails_at_once(problem: Exception) -> None:
    link = FakeLink()

    async def fail() -> None:
        raise problem

    link.opening = fail
    lane = link.lane()
    for _ in range(3):
        with pytest.raises(Unreachable, match=str(problem)):
            await lane.open()
    assert link.opened == 1
    link.opening = None
    await lane.open(now=True)
    assert link.is_open


async def test_a_link_that_does_not_open_in_time_is_no_answer() -> None:
    link = FakeLink()
    link.opening = asyncio.Event().wait  # type: ignore[assignment]  # for ever
    with pytest.raises(NoAnswer, match=r"within 0\.04 s"):
        await link.lane(connect_timeout=0.02).open()


async def test_who_waits_for_a_lane_that_is_closed_is_told_so() -> None:
    link = FakeLink()
    link.opening = asyncio.Event().wait  # type: ignore[assignment]  # for ever
    lane = link.lane()
    waiting = asyncio.create_task(lane.open())
    await asyncio.sleep(0)
    await lane.close()
    with pytest.raises(Unreachable):
        await waiting
    with pytest.raises(Unreachable):
        await lane.open()


async def test_a_question_beside_the_only_call_is_that_calls_where_calls_have_streams_of_their_own() -> None:
    # Over HTTP some servers ask on the stream that belongs to no call.
    link = FakeLink("http")
    lane = link.lane()
    ann = Person({"action": "accept"})
    calling = asyncio.create_task(ride(lane, ann))
    await asyncio.sleep(0)
    assert link.lobby is not None
    assert await link.lobby.ask({"1": FORM}) == {"1": {"action": "accept"}}
    other = asyncio.create_task(ride(lane, owner="bob"))
    await asyncio.sleep(0)
    assert await link.lobby.ask({"1": FORM}) == {"1": {"action": "cancel"}}
    # Bob's call is given up, and may still ask: it is not Ann's question.
    other.cancel()
    await asyncio.wait([other])
    assert await link.lobby.ask({"1": FORM}) == {"1": {"action": "cancel"}}
    calling.cancel()
    await asyncio.wait([calling])
    assert len(ann.asked) == 1


async def test_over_one_pipe_the_link_has_found_that_it_is_nobodys() -> None:
    link = FakeLink("stdio")
    lane = link.lane(roots=("file:///a",))
    calling = asyncio.create_task(ride(lane, Person({"action": "accept"})))
    await asyncio.sleep(0)
    assert link.lobby is not None
    assert await link.lobby.ask({"1": FORM, "2": ROOTS}) == {
        "1": {"action": "cancel"},
        "2": {"roots": [{"uri": "file:///a"}]},
    }
    with pytest.raises(InvalidRequest):
        await link.lobby.ask({"1": SAMPLE})
    with pytest.raises(MethodNotFound):
        await link.lobby.ask({"1": Question("x/y", {})})
    calling.cancel()
    await asyncio.wait([calling])


async def test_calls_go_one_at_a_time_only_after_several_were_muddled() -> None:
    link = FakeLink("stdio")
    link.version = "2025-11-25"
    lane = link.lane()
    assert link.lobby is not None
    one = asyncio.create_task(ride(lane))
    await asyncio.sleep(0)
    await link.lobby.ask({"1": FORM})
    assert lane.turns("tools/call") is None
    two = asyncio.create_task(ride(lane))
    await asyncio.sleep(0)
    await link.lobby.ask({"1": FORM})
    assert lane.turns("tools/call") is not None
    assert lane.turns("tools/list") is None
    for task in (one, two):
        task.cancel()
    await asyncio.wait([one, two])
