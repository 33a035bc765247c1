"""Legacy streams from outside, over real connections: cut, come back to, polled, asked on and ended."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Protocol

import pytest
import uvicorn

from pegboard import Board
from pegboard.call import Call, Done, Notification, Question, Reply
from pegboard.errors import MethodNotFound, QuestionFailed
from pegboard.limits import Limits
from pegboard.protocol.revisions import LEGACY, MODERN
from pegboard.server.asgi.asgi_app import AsgiApp
from pegboard.server.http.guard import Guard
from pegboard.server.http.listener import listen
from pegboard.server.streamable_http.mcp_endpoint import HttpEndpoint
from tests.server.fake_transport import Fixed
from tests.server.http_clients import Peer

FORM = Question("elicitation/create", {"message": "Your name?", "requestedSchema": {"type": "object"}})
ROOTS = Question("roots/list", {})


class Office:
    """A Handler whose tools do what a test needs."""

    def __init__(self) -> None:
        self.release = asyncio.Event()
        self.begun = asyncio.Event()
        self.cancelled = asyncio.Event()
        self.failed: list[str] = []

    async def __call__(self, call: Call) -> Reply:
        if call.method == "server/discover":
            return Done({"capabilities": {}, "supportedVersions": []})
        if call.method == "subscriptions/listen":
            raise MethodNotFound("nothing changes here")
        try:
            return said(await getattr(self, call.name)(call))
        except asyncio.CancelledError:
            self.cancelled.set()
            raise

    async def tell(self, call: Call, number: int, text: str = "") -> None:
        params = {"progressToken": call.token, "progress": number, "message": text}
        await call.channel.emit(Notification("notifications/progress", params))

    async def quiet(self, call: Call) -> str:
        return "quiet"

    async def steps(self, call: Call) -> str:
        """Says 1, waits, says 2 and 3."""
        await self.tell(call, 1)
        self.begun.set()
        await self.release.wait()
        await self.tell(call, 2)
        await self.tell(call, 3)
        return "done"

    async def once(self, call: Call) -> str:
        await self.tell(call, 1)
        return "once"

    async def linger(self, call: Call) -> str:
        await self.tell(call, 1)
        await self.release.wait()
        await self.tell(call, 2)
        await asyncio.Event().wait()
        return "never"

    async def wait(self, call: Call) -> str:
        self.begun.set()
        await self.release.wait()
        return "waited"

    async def poll(self, call: Call) -> str:
        await call.channel.close_stream(50)
        await self.release.wait()
        return "polled"

    async def poll_twice(self, call: Call) -> str:
        await self.tell(call, 1)
        await call.channel.close_stream(50)
        await self.release.wait()
        await self.tell(call, 2)
        await call.channel.close_stream(70)
        await self.tell(call, 3)
        return "polled"

    async def ask(self, call: Call) -> str:
        try:
            answers = await call.channel.ask({"form": FORM, "roots": ROOTS})
        except QuestionFailed as failed:
            self.failed.append(failed.message)
            return failed.message
        return f"{answers['form']['action']} {len(answers['roots']['roots'])}"


def said(text: str) -> Done:
    return Done({"content": [{"type": "text", "text": text}]})


def text(message: Any) -> str:
    return str(message["result"]["content"][0]["text"])


def steps(messages: list[Any]) -> list[int]:
    return [message["params"]["progress"] for message in messages if message.get("method") == "notifications/progress"]


class House:
    def __init__(self, office: Office, endpoint: HttpEndpoint, port: int) -> None:
        self.office = office
        self.endpoint = endpoint
        self.port = port
        self.peers: list[Peer] = []

    async def peer(self, version: str = "2025-11-25") -> Peer:
        peer = Peer(self.port, version)
        self.peers.append(peer)
        await peer.initialize()
        return peer


@asynccontextmanager
async def serve(endpoint: HttpEndpoint, limits: Limits) -> AsyncIterator[int]:
    """By our own HTTP."""
    server = await listen(endpoint, limits)
    yield server.port
    await server.close()


@asynccontextmanager
async def serve_asgi(endpoint: HttpEndpoint, limits: Limits) -> AsyncIterator[int]:
    """By another server, which we are an application of."""
    app = AsgiApp(Fixed(endpoint), limits)
    server = uvicorn.Server(uvicorn.Config(app, log_level="critical", lifespan="off", ws="none"))
    with socket.create_server(("127.0.0.1", 0)) as listening:
        serving = asyncio.ensure_future(server.serve([listening]))
        yield listening.getsockname()[1]
        server.should_exit = True
        await serving


class Open(Protocol):
    def __call__(self, **limits: Any) -> AbstractAsyncContextManager[House]: ...


@pytest.fixture(params=[serve, serve_asgi], ids=["own", "asgi"])
def house(request: pytest.FixtureRequest) -> Open:
    @asynccontextmanager
    async def open_house(**limits: Any) -> AsyncIterator[House]:
        office, bounds = Office(), Limits(**limits)
        endpoint = HttpEndpoint(office, {"name": "office", "version": "1"}, limits=bounds, guard=Guard())
        async with request.param(endpoint, bounds) as port:
            one = House(office, endpoint, port)
            try:
                yield one
            finally:
                office.release.set()
                for peer in one.peers:
                    peer.close()

    return open_house


# -- streams -----------------------------------------------------------------------------------------------------------


async def test_a_call_that_says_nothing_is_answered_by_json_and_nothing_is_stored(house: Open) -> None:
    async with house() as one:
        peer = await one.peer()
        answer = await peer.ask("tools/call", {"name": "quiet"})
        assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
        session = one.endpoint.sessions.find(peer.session, "")
        assert not session.streamed


async def test_a_stream_begins_with_an_event_without_data_and_numbers_the_others(house: Open) -> None:
    async with house() as one:
        peer = await one.peer()
        one.office.release.set()
        response = await peer.start("steps")
        messages = await response.rest()
        assert response.headers["content-type"] == "text/event-stream"
        assert response.headers["x-accel-buffering"] == "no"
        assert steps(messages) == [1, 2, 3]
        assert text(messages[-1]) == "done"
        first, *others = response.events
        assert (first.data, first.retry) == ("", 1000)
        stream = first.id.partition("-")[0] if first.id else ""
        assert re.fullmatch("[0-9a-f]{8}", stream)
        assert [event.id for event in response.events] == [f"{stream}-{number}" for number in range(5)]
        assert all(event.retry is None for event in others)


@pytest.mark.parametrize("version", sorted(LEGACY - {"2025-11-25"}))
async def test_older_clients_receive_no_event_without_data_but_can_resume(house: Open, version: str) -> None:
    async with house() as one:
        peer = await one.peer(version)
        response = await peer.start("steps")
        await response.read(1)
        assert response.events[0].id is not None
        assert response.events[0].id.endswith("-1")
        response.line.hang_up()
        one.office.release.set()
        back = await peer.come_back(response.last_id)
        messages = await back.rest()
        assert steps(messages) == [2, 3]
        assert text(messages[-1]) == "done"


async def test_a_call_continues_after_a_lost_connection_and_its_result_can_be_resumed(house: Open) -> None:
    async with house() as one:
        peer = await one.peer()
        response = await peer.start("steps", 7)
        await response.read(1)
        response.line.hang_up()
        one.office.release.set()
        back = await peer.come_back(response.last_id)
        assert (back.status, back.headers["content-type"]) == (200, "text/event-stream")
        assert back.headers["mcp-session-id"] == peer.session
        messages = await back.rest()
        assert steps(messages) == [2, 3]
        assert (messages[-1]["id"], text(messages[-1])) == (7, "done")
        again = await peer.come_back(response.last_id)
        assert await again.rest() == messages


async def test_who_comes_back_while_the_call_runs_hears_the_rest_live_and_the_older_connection_ends(
    house: Open,
) -> None:
    async with house() as one:
        peer = await one.peer()
        response = await peer.start("steps")
        await response.read(1)
        back = await peer.come_back(response.last_id)
        assert steps(await response.rest()) == [1]
        newest = await peer.come_back(response.last_id)
        assert await back.rest() == []
        one.office.release.set()
        messages = await newest.rest()
        assert steps(messages) == [2, 3]
        assert text(messages[-1]) == "done"


async def test_each_of_several_streams_of_a_session_is_resumed_separately(house: Open) -> None:
    async with house() as one:
        peer = await one.peer()
        responses = [await peer.start("steps", number) for number in (1, 2, 3)]
        for response in responses:
            await response.read(1)
            response.line.hang_up()
        one.office.release.set()
        seen: set[str] = set()
        for number, response in reversed(list(enumerate(responses, 1))):
            back = await peer.come_back(response.last_id)
            messages = await back.rest()
            assert {message["params"]["progressToken"] for message in messages[:-1]} == {f"t{number}"}
            assert messages[-1]["id"] == number
            ids = {event.id for event in [*response.events, *back.events] if event.id}
            assert not ids & seen
            seen |= ids


async def test_a_silent_call_opens_its_stream_after_a_delay_and_can_be_resumed(house: Open) -> None:
    async with house(quiet_seconds=0.01) as one:
        peer = await one.peer()
        response = await peer.start("wait", 5)
        event = await response.read_event()
        assert event.data == ""
        response.line.hang_up()
        one.office.release.set()
        back = await peer.come_back(response.last_id)
        [answer] = await back.rest()
        assert (answer["id"], text(answer)) == (5, "waited")


async def test_what_was_trimmed_is_said(house: Open) -> None:
    async with house(stream_events=2) as one:
        peer = await one.peer()
        response = await peer.start("steps")
        await response.read(1)
        response.line.hang_up()
        one.office.release.set()
        await asyncio.sleep(0)
        stream = response.last_id.partition("-")[0]
        await (await peer.come_back(response.last_id)).rest()
        back = await peer.come_back(f"{stream}-0")
        warning, *rest = await back.rest()
        assert (warning["method"], warning["params"]["level"]) == ("notifications/message", "warning")
        assert [event.id for event in back.events] == [f"{stream}-{number}" for number in (2, 3, 4)]
        assert (steps(rest), text(rest[-1])) == ([3], "done")


# -- polling -----------------------------------------------------------------------------------------------------------


async def test_a_tool_can_let_its_client_disconnect_and_resume(house: Open) -> None:
    async with house() as one:
        peer = await one.peer()
        response = await peer.start("poll", 9)
        assert await response.rest() == []
        assert response.headers["content-type"] == "text/event-stream"
        first = response.events[0]
        assert (first.data, first.retry) == ("", 50)
        back = await peer.come_back(first.id)
        one.office.release.set()
        [answer] = await back.rest()
        assert (answer["id"], text(answer)) == (9, "polled")


async def test_a_tool_may_do_so_again_with_the_connection_that_came_back(house: Open) -> None:
    async with house() as one:
        peer = await one.peer()
        response = await peer.start("poll_twice")
        assert steps(await response.rest()) == [1]
        assert response.events[-1].retry == 50
        back = await peer.come_back(response.last_id)
        one.office.release.set()
        heard = steps(await back.rest())
        assert back.events[-1].retry == 70
        last = await peer.come_back(back.last_id if heard else response.last_id)
        messages = await last.rest()
        assert heard + steps(messages) == [2, 3]
        assert text(messages[-1]) == "polled"


async def test_a_client_that_cannot_resume_keeps_its_connection(house: Open) -> None:
    async with house() as one:
        peer = await one.peer("2025-06-18")
        one.office.release.set()
        messages = await (await peer.start("poll_twice")).rest()
        assert steps(messages) == [1, 2, 3]
        assert text(messages[-1]) == "polled"


# -- asks --------------------------------------------------------------------------------------------------------------


async def test_a_call_asks_on_its_own_stream_and_is_answered_by_post(house: Open) -> None:
    async with house() as one:
        peer = await one.peer()
        response = await peer.start("ask")
        form, roots = await response.read(2)
        assert (form["method"], roots["method"]) == ("elicitation/create", "roots/list")
        assert re.fullmatch("[0-9a-f]{16}", form["id"])
        for answer, outcome in ((roots, {"roots": [1, 2]}), (form, {"action": "accept"}), (form, {"action": "late"})):
            accepted = await peer.answer(answer["id"], result=outcome)
            assert (accepted.status, accepted.body) == (202, b"")
        assert text((await response.rest())[-1]) == "accept 2"


async def test_the_answer_of_another_session_is_taken_and_changes_nothing(house: Open) -> None:
    async with house() as one:
        peer, other = await one.peer(), await one.peer()
        response = await peer.start("ask")
        form, roots = await response.read(2)
        assert (await other.answer(form["id"], result={"action": "foreign"})).status == 202
        assert (await peer.answer("unknown", result={})).status == 202
        await peer.answer(form["id"], result={"action": "own"})
        await peer.answer(roots["id"], result={"roots": []})
        assert text((await response.rest())[-1]) == "own 0"


async def test_a_question_can_be_resumed_and_answered_after_a_lost_connection(house: Open) -> None:
    async with house(stream_events=2) as one:
        peer = await one.peer()
        response = await peer.start("ask")
        await response.read(1)
        response.line.hang_up()
        stream = response.last_id.partition("-")[0]
        back = await peer.come_back(f"{stream}-0")
        form, roots = await back.read(2)
        await peer.answer(form["id"], result={"action": "accept"})
        await peer.answer(roots["id"], result={"roots": []})
        assert text((await back.rest())[-1]) == "accept 0"


async def test_a_client_that_cannot_answer_fails_the_ask_and_the_other_question_is_withdrawn(house: Open) -> None:
    async with house() as one:
        peer = await one.peer()
        response = await peer.start("ask")
        form, roots = await response.read(2)
        await peer.answer(form["id"], error={"code": -32601, "message": "no such thing"})
        messages = await response.rest()
        withdrawn = messages[2]
        assert (withdrawn["method"], withdrawn["params"]["requestId"]) == ("notifications/cancelled", roots["id"])
        assert text(messages[-1]) == "The client could not answer elicitation/create: no such thing"


async def test_an_ask_that_is_not_answered_in_time_fails(house: Open) -> None:
    async with house(ask_seconds=0.05) as one:
        peer = await one.peer()
        messages = await (await peer.start("ask")).rest()
        ids = {message["id"] for message in messages[:2]}
        assert {message["params"]["requestId"] for message in messages[2:4]} == ids
        assert "0.05 seconds" in text(messages[-1])


async def test_a_cancelled_call_withdraws_its_questions_and_is_not_answered(house: Open) -> None:
    async with house() as one:
        peer = await one.peer()
        response = await peer.start("ask", 4)
        questions = await response.read(2)
        assert await peer.notify("notifications/cancelled", {"requestId": 4}) == 202
        messages = await response.rest()
        assert [message["params"]["requestId"] for message in messages[2:]] == [one["id"] for one in questions]
        assert one.office.cancelled.is_set()
        back = await peer.come_back(response.last_id)
        assert await back.rest() == []


async def test_a_question_for_a_client_that_does_not_accept_event_streams_is_rejected(house: Open) -> None:
    async with house() as one:
        peer = await one.peer()
        answer = await peer.ask("tools/call", {"name": "ask"}, accept="application/json")
        assert answer.json["error"]["code"] == -32600
        assert "text/event-stream" in answer.json["error"]["message"]


async def test_where_a_session_has_too_many_streams_a_call_is_silent_and_cannot_ask(house: Open) -> None:
    async with house(session_streams=1) as one:
        peer = await one.peer()
        first = await peer.start("steps", 1)
        await first.read(1)
        asked = await peer.start("ask", 2)
        await asked.rest()
        assert "too many streams" in text(asked.json)
        answer = await peer.start("once", 3)
        await answer.rest()
        assert (answer.headers["content-type"], text(answer.json)) == ("application/json", "once")
        one.office.release.set()
        assert steps(await first.rest()) == [1, 2, 3]


# -- GET and DELETE ----------------------------------------------------------------------------------------------------


async def test_get_is_for_clients_of_the_older_revisions_with_a_session_that_take_a_stream(house: Open) -> None:
    async with house() as one:
        peer = await one.peer()
        modern = await peer.come_back("x-1", mcp_protocol_version=MODERN)
        assert (modern.status, modern.headers["allow"]) == (405, "POST, OPTIONS")
        unknown = await peer.come_back("x-1", mcp_protocol_version="1999-01-01")
        assert unknown.status == 400
        for accept in ("application/json", "text/event-stream;q=0"):
            assert (await peer.come_back("x-1", accept=accept)).status == 406
        assert (await peer.come_back("x-1", mcp_session_id=None)).status == 400
        assert (await peer.come_back("x-1", mcp_session_id="0" * 32)).status == 404
        response = await peer.start("steps")
        await response.read(1)
        assert (await peer.come_back(response.last_id, accept="text/*")).status == 200


@pytest.mark.parametrize("last", ["nonsense", "00000000-3", "x" * 1000])
async def test_an_event_id_that_is_not_known_brings_a_stream_that_stays_open(last: str) -> None:
    board = Board("office")
    endpoint = HttpEndpoint(board.handler, board.info, limits=board.limits, guard=Guard())
    async with serve(endpoint, board.limits) as port:
        one = House(Office(), endpoint, port)
        peer = await one.peer()
        back = await peer.come_back(last)
        assert back.status == 200
        # It is the stream of the board's changes: a client that finds it ended would resume it for ever.
        reading = asyncio.ensure_future(back.read(1))
        board.add(lambda: "x", name="new")
        (change,) = await reading
        assert change["method"] == "notifications/tools/list_changed"
        peer.close()


async def test_an_event_id_that_is_not_known_where_nothing_changes_is_refused(house: Open) -> None:
    async with house() as one:
        peer = await one.peer()
        assert (await peer.come_back("00000000-3")).status == 405


async def test_another_session_s_stream_is_not_to_be_had(house: Open) -> None:
    async with house() as one:
        peer, other = await one.peer(), await one.peer()
        response = await peer.start("steps")
        await response.read(1)
        assert await (await other.come_back(response.last_id)).rest() == []
        one.office.release.set()
        assert steps(await response.rest()) == [1, 2, 3]


async def test_the_end_of_a_session_ends_its_streams_and_calls(house: Open) -> None:
    async with house() as one:
        peer = await one.peer()
        first, second = await peer.start("steps", 1), await peer.start("steps", 2)
        await first.read(1)
        await second.read(1)
        back = await peer.come_back(second.last_id)
        await second.rest()
        assert (await peer.send("DELETE")).status == 204
        assert steps(await first.rest()) == [1]
        assert await back.rest() == []
        await one.office.cancelled.wait()
        assert (await peer.come_back(first.last_id)).status == 404


# -- the end -----------------------------------------------------------------------------------------------------------


async def test_while_we_end_answers_and_cancels_are_still_taken_and_new_streams_refused(house: Open) -> None:
    async with house() as one:
        peer = await one.peer()
        response, other = await peer.start("ask", 1), await peer.start("ask", 2)
        form, roots = await response.read(2)
        await other.read(2)
        ending = asyncio.ensure_future(one.endpoint.drain(10, asyncio.Event()))
        await asyncio.sleep(0)
        assert (await peer.come_back(response.last_id)).status == 503
        assert (await peer.ask("tools/call", {"name": "quiet"}, 3)).status == 503
        await peer.answer(form["id"], result={"action": "accept"})
        await peer.answer(roots["id"], result={"roots": []})
        assert text((await response.rest())[-1]) == "accept 0"
        await peer.notify("notifications/cancelled", {"requestId": 2})
        await other.rest()
        await ending


async def test_when_time_is_up_who_came_back_still_gets_the_answer_that_ends_its_call(house: Open) -> None:
    async with house() as one:
        peer = await one.peer()
        response = await peer.start("linger", 6)
        await response.read(1)
        back = await peer.come_back(response.last_id)
        await response.rest()
        one.office.release.set()
        await back.read(1)
        await one.endpoint.drain(0, asyncio.Event())
        told, answer = await back.rest()
        assert steps([told]) == [2]
        assert (answer["id"], answer["error"]["code"]) == (6, -32603)
        assert "shutting down" in answer["error"]["message"]
        assert back.events[-1].retry == 1000
