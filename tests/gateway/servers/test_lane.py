"""One link for all who need it: opened once, asked by many, and asking nobody in another's name."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from pegboard.call import NOBODY, Channel, Json, Question
from pegboard.client.link import Outbound
from pegboard.errors import InvalidRequest, MethodNotFound, NoAnswer, Refusal, SetupError, Unreachable
from pegboard.gateway.servers.lane import Lane, Ride
from pegboard.gateway.servers.slots import Slots
from pegboard.patience import Patience
from tests.gateway.behind import Person
from tests.gateway.fake_link import FakeLink

pytestmark = pytest.mark.process

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


async def begin(lane: Lane, channel: Channel = NOBODY, owner: str = "ann") -> asyncio.Task[Mapping[str, Json]]:
    calling = asyncio.create_task(ride(lane, channel, owner))
    await asyncio.sleep(0)
    return calling


async def end(*tasks: asyncio.Task[Any]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


@pytest.mark.parametrize("transport", ["http", "stdio"])
async def test_a_question_that_names_no_call_is_asked_where_only_one_can_be_meant(transport: str) -> None:
    link = FakeLink(transport)
    lane = link.lane()
    assert link.lobby is not None
    ann = Person({"action": "accept"}, {"action": "decline"})
    hers = [await begin(lane, ann), await begin(lane, ann)]
    assert await link.lobby.ask({"1": FORM}) == {"1": {"action": "accept"}}
    bobs = await begin(lane, owner="bob")
    assert await link.lobby.ask({"1": FORM}) == {"1": {"action": "cancel"}}
    # Bob's call is given up, and may still ask: it is not Ann's question.
    await end(bobs)
    assert await link.lobby.ask({"1": FORM}) == {"1": {"action": "cancel"}}
    await end(*hers)
    assert len(ann.asked) == 1


async def test_of_several_calls_of_one_caller_the_newest_that_is_not_asked_carries_the_question() -> None:
    class Slow(Person):
        async def ask(self, asks: Mapping[str, Question]) -> Mapping[str, Json]:
            self.asked += asks.values()
            await asyncio.get_running_loop().create_future()
            return {}

    link = FakeLink("stdio")
    lane = link.lane()
    assert link.lobby is not None
    first, second, third = Slow(), Slow(), Slow()
    calls = [await begin(lane, channel) for channel in (first, second, third)]
    asking = []
    for _ in range(4):
        asking.append(asyncio.create_task(link.lobby.ask({"1": FORM})))
        await asyncio.sleep(0)
    assert [len(one.asked) for one in (first, second, third)] == [1, 1, 2]
    await end(*asking, *calls)


async def test_what_is_asked_for_nobody_is_answered_from_what_is_known() -> None:
    link = FakeLink("stdio")
    lane = link.lane(roots=("file:///a",))
    assert link.lobby is not None
    assert await link.lobby.ask({"1": FORM, "2": ROOTS}) == {
        "1": {"action": "cancel"},
        "2": {"roots": [{"uri": "file:///a"}]},
    }
    with pytest.raises(InvalidRequest):
        await link.lobby.ask({"1": SAMPLE})
    with pytest.raises(MethodNotFound):
        await link.lobby.ask({"1": Question("x/y", {})})
    assert not lane.lobby.muddled


async def test_a_call_whose_time_is_over_may_still_ask_at_the_server() -> None:
    link = FakeLink("stdio")
    lane = link.lane()
    assert link.lobby is not None
    out = Outbound(method="tools/call", params={"name": "x"}, channel=NOBODY)
    with pytest.raises(NoAnswer):
        await lane.send(out, Ride(NOBODY, (), "bob", Patience(0.01, 5)), seconds=0.01)
    hers = await begin(lane, Person({"action": "accept"}))
    assert await link.lobby.ask({"1": FORM}) == {"1": {"action": "cancel"}}
    await end(hers)


async def test_calls_go_one_at_a_time_only_after_those_of_several_callers_were_muddled() -> None:
    link = FakeLink("stdio")
    link.version = "2025-11-25"
    lane = link.lane()
    assert link.lobby is not None
    calls = [await begin(lane, Person({"action": "accept"})) for _ in range(2)]
    await link.lobby.ask({"1": FORM})
    assert lane.turns("tools/call") is None
    calls.append(await begin(lane, owner="bob"))
    await link.lobby.ask({"1": FORM})
    assert lane.turns("tools/call") is not None
    assert lane.turns("tools/list") is None
    await end(*calls)


async def test_a_call_that_is_asked_twice_at_once_lends_its_slot_once() -> None:
    class Slow(Person):
        async def ask(self, asks: Mapping[str, Question]) -> Mapping[str, Json]:
            await gate.wait()
            return await super().ask(asks)

    gate = asyncio.Event()
    slots = Slots("x", 2)
    await slots.take(1)
    with Patience(5, 5) as patience:
        one = Ride(Slow({"action": "accept"}, {"action": "accept"}), (slots,), "ann", patience)
        asking = [asyncio.create_task(one.ask({"1": FORM})) for _ in range(2)]
        await asyncio.sleep(0)
        assert (slots.taken, one.asked) == (0, 2)
        gate.set()
        await asyncio.gather(*asking)
    assert (slots.taken, one.asked) == (1, 0)


async def test_who_has_no_more_time_is_told_that_it_still_starts_and_the_start_goes_on() -> None:
    link = FakeLink()
    gate = asyncio.Event()
    link.opening = gate.wait  # type: ignore[assignment]  # it waits, and that is all
    lane = link.lane()
    with pytest.raises(Unreachable, match="is still starting") as told:
        await lane.open(seconds=0.01)
    assert told.value.retry_after
    gate.set()
    await lane.open(seconds=5)
    assert (link.opened, link.is_open) == (1, True)
    await lane.close()
