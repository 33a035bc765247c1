"""The streams of a session: what is said on which, and what comes again to a client that comes back (2025-11-25)."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from pegboard import Board, Context, Limits
from tests.requirements.clients import Client, connect
from tests.server.fake_sink import Event, EventReader, Legacy, Visit
from tests.server.fake_transport import until
from tests.waiting import SOON


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
    async with asyncio.timeout(SOON):
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


def listen(session: Legacy, last: str | None = None) -> Visit:
    headers = {"accept": "text/event-stream", "content-type": None}
    return session.send(b"", {**headers, **({} if last is None else {"last-event-id": last})}, method="GET")


def change(board: Board, *numbers: int) -> None:
    for number in numbers:
        board.add(lambda: "x", name=f"tool_{number}")
        board.resource(f"x://{number}")(lambda: "x")


@pytest.mark.requirement("legacy/http/get-form", "legacy/http/one-endpoint")
async def test_one_path_takes_posts_and_answers_a_get_with_a_stream() -> None:
    client = await connect(House().board, "legacy")
    assert (await client.response("tools/list")).status == 200
    visit = listen(session_of(client))
    await visit.sink.started.wait()
    assert (visit.sink.status, dict(visit.sink.headers)[b"content-type"]) == (200, b"text/event-stream")


@pytest.mark.requirement("legacy/http/get-no-responses", "legacy/http/one-stream-each")
async def test_what_is_heard_by_get_are_changes_each_on_one_stream_alone() -> None:
    house = House()
    house.board.resource("x://0")(lambda: "x")
    client = await connect(house.board, "legacy")
    session = session_of(client)
    visits = [listen(session) for _ in range(2)]
    for visit in visits:
        await visit.sink.started.wait()
    running = call(session, 1)
    await wait_for_messages(running, 2)
    change(house.board, 1)
    async with asyncio.timeout(SOON):
        await until(lambda: sum(len(messages(visit)) for visit in visits) >= 2)
    house.go_on.set()
    await running.settled()
    heard = [message for visit in visits for message in messages(visit)]
    assert sorted(message["method"] for message in heard) == [
        "notifications/resources/list_changed",
        "notifications/tools/list_changed",
    ]
    assert not [message for message in heard if "id" in message]
    assert subjects(messages(running)) == {1, "t1"}


@pytest.mark.requirement("legacy/http/event-ids-unique", "legacy/http/replay-own-stream")
async def test_no_two_messages_heard_by_get_have_the_same_id() -> None:
    board = Board("streams", version="1", limits=Limits(changes=1))
    board.resource("x://0")(lambda: "x")
    board.resource("x://1")(lambda: "x")
    board.prompt("p")(lambda: "p")
    client = await connect(board, "legacy")
    session = session_of(client)
    for uri in ("x://0", "x://1"):
        await client.result("resources/subscribe", {"uri": uri})
    # So long away that the log does not say any more what was missed: anything may have changed.
    change(board, 2, 3)
    back = listen(session, "g-0")
    await wait_for_messages(back, 3)
    change(board, 4)
    async with asyncio.timeout(SOON):
        await until(lambda: len([one for one in messages(back) if "tools" in one["method"]]) >= 2)
    ids = [event.id for event in events(back) if event.data and event.id]
    assert len(set(ids)) == len(ids)
