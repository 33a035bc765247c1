"""One link for all who need it: opened once, asked by many, and asking nobody in another's name."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from pegboard.call import NULL_CHANNEL, Channel, Json, Question
from pegboard.client.links.link import OutgoingRequest
from pegboard.deadline import Deadline
from pegboard.errors import InvalidRequest, MethodNotFound, Refusal, ResponseTimeout, SetupError, Unreachable
from pegboard.gateway.servers.request_slots import RequestSlots
from pegboard.gateway.servers.server_connection import ServerConnection
from tests.gateway.fake_link import FakeLink
from tests.gateway.one_server import Person

pytestmark = pytest.mark.process

FORM = Question("elicitation/create", {"message": "Sure?"})
SAMPLE = Question("sampling/createMessage", {})
ROOTS = Question("roots/list", {})


def request(channel: Channel, owner: Any, deadline: Deadline, held: tuple[RequestSlots, ...] = ()) -> OutgoingRequest:
    return OutgoingRequest(
        method="tools/call", params={"name": "x"}, channel=channel, owner=owner, deadline=deadline, held=held
    )


async def running_call(
    connection: ServerConnection, channel: Channel = NULL_CHANNEL, owner: Any = "ann"
) -> Mapping[str, Json]:
    return await connection.send(request(channel, owner, Deadline(5, 5)))


async def test_a_connection_is_opened_once_for_all_waiters_and_a_cancelled_waiter_does_not_affect_the_others() -> None:
    link = FakeLink()
    gate = asyncio.Event()
    link.opening = gate.wait  # type: ignore[assignment]  # it waits, and that is all
    connection = link.connection()
    waiting = [asyncio.create_task(connection.open()) for _ in range(5)]
    await asyncio.sleep(0)
    waiting[0].cancel()
    await asyncio.sleep(0)
    gate.set()
    await asyncio.gather(*waiting[1:])
    assert (link.opened, link.is_open) == (1, True)
    await connection.close()


@pytest.mark.parametrize("problem", [Refusal("go away"), SetupError("no such bundle"), Unreachable("nobody there")])
async def test_whatever_fails_is_unreachable_and_a_moment_later_fails_at_once(problem: Exception) -> None:
    link = FakeLink()

    async def fail() -> None:
        raise problem

    link.opening = fail
    connection = link.connection()
    for _ in range(3):
        with pytest.raises(Unreachable, match=str(problem)):
            await connection.open()
    assert link.opened == 1
    link.opening = None
    await connection.open(now=True)
    assert link.is_open


async def test_a_link_that_does_not_open_in_time_raises_a_timeout() -> None:
    link = FakeLink()
    link.opening = asyncio.Event().wait  # type: ignore[assignment]  # for ever
    with pytest.raises(ResponseTimeout, match=r"within 0\.04 s"):
        await link.connection(connect_timeout=0.02).open()


async def test_closing_a_connection_raises_unreachable_for_its_waiters() -> None:
    link = FakeLink()
    link.opening = asyncio.Event().wait  # type: ignore[assignment]  # for ever
    connection = link.connection()
    waiting = asyncio.create_task(connection.open())
    await asyncio.sleep(0)
    await connection.close()
    with pytest.raises(Unreachable):
        await waiting
    with pytest.raises(Unreachable):
        await connection.open()


async def begin(
    connection: ServerConnection, channel: Channel = NULL_CHANNEL, owner: str = "ann"
) -> asyncio.Task[Mapping[str, Json]]:
    calling = asyncio.create_task(running_call(connection, channel, owner))
    await asyncio.sleep(0)
    return calling


async def end(*tasks: asyncio.Task[Any]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


@pytest.mark.parametrize("transport", ["http", "stdio"])
async def test_a_question_that_names_no_call_is_asked_where_only_one_can_be_meant(transport: str) -> None:
    link = FakeLink(transport)
    connection = link.connection()
    assert link.unattributed is not None
    ann = Person({"action": "accept"}, {"action": "decline"})
    hers = [await begin(connection, ann), await begin(connection, ann)]
    assert await link.unattributed.ask({"1": FORM}) == {"1": {"action": "accept"}}
    bobs = await begin(connection, owner="bob")
    assert await link.unattributed.ask({"1": FORM}) == {"1": {"action": "cancel"}}
    # Bob's call is given up, and may still ask: it is not Ann's question.
    await end(bobs)
    assert await link.unattributed.ask({"1": FORM}) == {"1": {"action": "cancel"}}
    await end(*hers)
    assert len(ann.asked) == 1


async def test_of_several_calls_of_one_caller_the_newest_that_is_not_asked_carries_the_question() -> None:
    class Slow(Person):
        async def ask(self, asks: Mapping[str, Question]) -> Mapping[str, Json]:
            self.asked += asks.values()
            await asyncio.get_running_loop().create_future()
            return {}

    link = FakeLink("stdio")
    connection = link.connection()
    assert link.unattributed is not None
    first, second, third = Slow(), Slow(), Slow()
    calls = [await begin(connection, channel) for channel in (first, second, third)]
    asking = []
    for _ in range(4):
        asking.append(asyncio.create_task(link.unattributed.ask({"1": FORM})))
        await asyncio.sleep(0)
    assert [len(one.asked) for one in (first, second, third)] == [1, 1, 2]
    await end(*asking, *calls)


async def test_unattributed_questions_are_answered_from_known_values() -> None:
    link = FakeLink("stdio")
    connection = link.connection(roots=("file:///a",))
    assert link.unattributed is not None
    assert await link.unattributed.ask({"1": FORM, "2": ROOTS}) == {
        "1": {"action": "cancel"},
        "2": {"roots": [{"uri": "file:///a"}]},
    }
    with pytest.raises(InvalidRequest):
        await link.unattributed.ask({"1": SAMPLE})
    with pytest.raises(MethodNotFound):
        await link.unattributed.ask({"1": Question("x/y", {})})
    assert not connection.unattributed.ambiguous


async def test_a_call_whose_time_is_over_may_still_ask_at_the_server() -> None:
    link = FakeLink("stdio")
    connection = link.connection()
    assert link.unattributed is not None
    with pytest.raises(ResponseTimeout):
        await connection.send(request(NULL_CHANNEL, "bob", Deadline(0.01, 5)))
    hers = await begin(connection, Person({"action": "accept"}))
    assert await link.unattributed.ask({"1": FORM}) == {"1": {"action": "cancel"}}
    await end(hers)


async def test_calls_go_one_at_a_time_only_after_those_of_several_callers_were_muddled() -> None:
    link = FakeLink("stdio")
    link.version = "2025-11-25"
    connection = link.connection()
    assert link.unattributed is not None
    calls = [await begin(connection, Person({"action": "accept"})) for _ in range(2)]
    await link.unattributed.ask({"1": FORM})
    assert connection.serializes("tools/call") is None
    calls.append(await begin(connection, owner="bob"))
    await link.unattributed.ask({"1": FORM})
    assert connection.serializes("tools/call") is not None
    assert connection.serializes("tools/list") is None
    await end(*calls)


async def test_a_call_that_is_asked_twice_at_once_lends_its_slot_once() -> None:
    class Slow(Person):
        async def ask(self, asks: Mapping[str, Question]) -> Mapping[str, Json]:
            await gate.wait()
            return await super().ask(asks)

    gate = asyncio.Event()
    slots = RequestSlots("x", 2)
    await slots.take(1)
    with Deadline(5, 5) as deadline:
        one = request(Slow({"action": "accept"}, {"action": "accept"}), "ann", deadline, (slots,))
        asking = [asyncio.create_task(one.ask({"1": FORM})) for _ in range(2)]
        await asyncio.sleep(0)
        assert (slots.taken, one.asked) == (0, 2)
        gate.set()
        await asyncio.gather(*asking)
    assert (slots.taken, one.asked) == (1, 0)


async def test_a_caller_that_times_out_learns_that_the_server_is_still_starting_and_the_start_continues() -> None:
    link = FakeLink()
    gate = asyncio.Event()
    link.opening = gate.wait  # type: ignore[assignment]  # it waits, and that is all
    connection = link.connection()
    with pytest.raises(Unreachable, match="is still starting") as told:
        await connection.open(seconds=0.01)
    assert told.value.retry_after
    gate.set()
    await connection.open(seconds=5)
    assert (link.opened, link.is_open) == (1, True)
    await connection.close()
