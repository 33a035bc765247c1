"""The streams of a session: what is said on which, and what comes again to a client that comes back (2025-11-25)."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from pegboard import Board, Context
from tests.requirements.clients import Client, connect
from tests.transports.doors import Event, EventReader, Legacy, Visit
from tests.transports.wire import until


class House:
    """A board whose tool speaks, waits and speaks on."""

    def __init__(self) -> None:
        self.board = Board("streams", version="1")
        self.go_on = asyncio.Event()

        @self.board.tool
        async def count(ctx: Context, to: int = 4) -> str:
            """Counts; after the second number it waits to be told to go on."""
            for number in range(1, to + 1):
                await ctx.progress(number)
                if number == 2:
                    await self.go_on.wait()
            return f"counted to {to}"


def session_of(client: Client) -> Legacy:
    assert client.session is not None
    return client.session


def events(visit: Visit) -> list[Event]:
    return list(EventReader().feed(bytes(visit.sink.written)))


def messages(visit: Visit) -> list[Any]:
    return [json.loads(event.data) for event in events(visit) if event.data]


async def wait_for_messages(visit: Visit, number: int) -> None:
    async with asyncio.timeout(5):
        await until(lambda: len(messages(visit)) >= number)


def call(session: Legacy, request_id: int) -> Visit:
    return session.call("count", request_id, token=f"t{request_id}")


def come_back(session: Legacy, last: str) -> Visit:
    return session.send(b"", {"accept": "text/event-stream", "last-event-id": last}, method="GET")


def subjects(found: list[Any]) -> set[Any]:
    return {message["id"] if "id" in message else message["params"]["progressToken"] for message in found}


@pytest.mark.requirement("legacy/http/event-ids-unique", "legacy/http/one-stream-each")
async def test_each_message_is_on_one_stream_under_an_id_of_its_own() -> None:
    house = House()
    session = session_of(await connect(house.board, "legacy"))
    visits = [call(session, number) for number in (1, 2, 3)]
    house.go_on.set()
    for number, visit in enumerate(visits, 1):
        await visit.settled()
        assert subjects(messages(visit)) == {number, f"t{number}"}
        assert len(messages(visit)) == 5
    ids = [event.id for visit in visits for event in events(visit)]
    assert all(ids)
    assert len(set(ids)) == len(ids)


@pytest.mark.requirement(
    "legacy/http/replay-own-stream", "legacy/http/get-no-responses", "legacy/http/event-ids-unique"
)
@pytest.mark.parametrize("seen", [1, 2])
async def test_who_comes_back_gets_the_rest_of_that_stream_and_nothing_else(seen: int) -> None:
    house = House()
    session = session_of(await connect(house.board, "legacy"))
    lost, other = call(session, 1), call(session, 2)
    await wait_for_messages(lost, 2)
    await wait_for_messages(other, 2)
    last = [event.id for event in events(lost) if event.data][seen - 1]
    lost.sink.leave()
    house.go_on.set()
    await other.settled()
    back = come_back(session, str(last))
    await back.settled()
    found = messages(back)
    assert subjects(found) == {1, "t1"}
    assert [message["params"]["progress"] for message in found[:-1]] == list(range(seen + 1, 5))
    assert found[-1]["result"]["content"][0]["text"] == "counted to 4"
    again = [event.id for event in events(back) if event.data]
    assert len(set(again)) == len(again)
    assert not set(again) & {event.id for event in events(other)}


@pytest.mark.requirement("legacy/http/replay-own-stream")
async def test_a_stream_is_not_given_to_another_session() -> None:
    house = House()
    client = await connect(house.board, "legacy")
    lost = call(session_of(client), 1)
    await wait_for_messages(lost, 2)
    last = str(events(lost)[-1].id)
    stranger = come_back(await client.door.open_session(), last)
    house.go_on.set()
    await lost.settled()
    await stranger.settled()
    assert messages(stranger) == []
