"""Who follows a board's changes, over HTTP and stdio, in both eras."""

from __future__ import annotations

import asyncio
import http.client
import json
import signal
import socket
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from pegboard import Board, Limits
from pegboard.protocol.framing.sse import EventReader
from pegboard.server.exchange.conversation import Conversation
from pegboard.server.exchange.service import Service
from pegboard.server.exchange.subscribers import MIN_INTERVAL_SECONDS, Subscribers
from pegboard.server.http.guard import Guard
from pegboard.server.http.listener import listen as serve
from pegboard.server.streamable_http.mcp_endpoint import HttpEndpoint
from tests.server.fake_sink import Door, Legacy, Visit, envelope, mirror, notification, request
from tests.server_processes import MODERN, PEGBOARD, PLAIN_PEGBOARD, ROOT, HttpChild, StdioChild, modern
from tests.waiting import SOON, until

CHANGING = ROOT / "tests" / "changing_board.py"
ID = "io.modelcontextprotocol/subscriptionId"
LISTEN = "subscriptions/listen"
ACKNOWLEDGED = "notifications/subscriptions/acknowledged"
TOOLS = "notifications/tools/list_changed"
PROMPTS = "notifications/prompts/list_changed"
RESOURCES = "notifications/resources/list_changed"
UPDATED = "notifications/resources/updated"


def make_board(**limits: Any) -> Board:
    board = Board("b", limits=Limits(**limits))
    board.tool("one")(lambda: 1)
    board.prompt("p")(lambda: "x")
    board.resource("a://{name}")(lambda name: name)
    return board


# -- modern, over HTTP -------------------------------------------------------------------------------------------------


class Followed:
    """A door to a board, and listens at it."""

    def __init__(self, **limits: Any) -> None:
        self.board = make_board(**limits)
        self.door = Door(handler=self.board.handler, limits=self.board.limits)

    def listen(self, request_id: Any = 1, /, **wanted: Any) -> Visit:
        return self.door.modern(LISTEN, {"notifications": wanted}, request_id=request_id)


def messages(visit: Visit) -> list[Any]:
    return [json.loads(event.data) for event in EventReader().feed(bytes(visit.sink.written)) if event.data]


def methods(visit: Visit) -> list[str]:
    return [message.get("method", "result") for message in messages(visit)]


@pytest.mark.requirement(
    "modern/subscriptions/acknowledged-first", "modern/subscriptions/nothing-before", "modern/base/subscription-id"
)
async def test_a_listen_is_acknowledged_first_and_every_message_carries_its_id() -> None:
    followed = Followed()
    visit = followed.listen("abc", toolsListChanged=True, resourceSubscriptions=["a://1"])
    await visit.settled()
    assert visit.sink.status == 200
    assert dict(visit.sink.headers)[b"content-type"] == b"text/event-stream"
    followed.board.tool("two")(lambda: 2)
    followed.board.resource_changed("a://1")
    await until(lambda: len(messages(visit)) == 3)
    first, *others = messages(visit)
    assert first["method"] == ACKNOWLEDGED
    assert first["params"]["notifications"] == {"toolsListChanged": True, "resourceSubscriptions": ["a://1"]}
    assert [other["method"] for other in others] == [TOOLS, UPDATED]
    assert others[1]["params"]["uri"] == "a://1"
    assert all(message["params"]["_meta"] == {ID: "abc"} for message in (first, *others))


@pytest.mark.requirement("modern/subscriptions/only-requested")
async def test_a_change_reaches_those_alone_who_asked_for_its_kind() -> None:
    followed = Followed()
    board = followed.board
    visits = {
        TOOLS: followed.listen(1, toolsListChanged=True),
        PROMPTS: followed.listen(2, promptsListChanged=True),
        RESOURCES: followed.listen(3, resourcesListChanged=True),
        UPDATED: followed.listen(4, resourceSubscriptions=["a://1"]),
        "": followed.listen(5),
    }
    for visit in visits.values():
        await visit.settled()
    board.tool("two")(lambda: 2)
    board.prompt("q")(lambda: "x")
    board.resource("a:2")(lambda: "x")
    board.resource_changed("a://1")
    board.resource_changed("a://2")
    await until(lambda: all(len(methods(visit)) == 2 for method, visit in visits.items() if method))
    for method, visit in visits.items():
        assert methods(visit) == [ACKNOWLEDGED, *([method] if method else [])]


async def test_uris_beyond_the_limit_are_left_out_of_the_acknowledgement() -> None:
    followed = Followed(subscribed_uris=2)
    visit = followed.listen(resourceSubscriptions=["a://1", "a://2", "a://3"])
    await visit.settled()
    assert messages(visit)[0]["params"]["notifications"] == {"resourceSubscriptions": ["a://1", "a://2"]}


async def test_a_filter_that_cannot_be_read_is_refused() -> None:
    followed = Followed()
    response = await followed.listen(9, toolsListChanged="yes").response()
    assert (response.status, response.code) == (400, -32602)
    assert response.json["id"] == 9
    missing = await followed.door.modern(LISTEN, {}).response()
    assert (missing.status, missing.code) == (400, -32602)


async def test_a_client_that_takes_no_stream_cannot_listen() -> None:
    visit = Followed().door.modern(LISTEN, {"notifications": {}}, headers={"accept": "application/json"})
    response = await visit.response()
    assert response.status == 406
    assert "stream" in response.error


async def test_a_client_that_leaves_is_forgotten() -> None:
    followed = Followed()
    visit = followed.listen(toolsListChanged=True)
    await visit.settled()
    assert len(followed.door.endpoint.followers) == 1
    visit.sink.leave()
    assert len(followed.door.endpoint.followers) == 0
    assert not followed.door.endpoint._calls.followers
    assert followed.board.changes._watches == ()
    followed.board.tool("two")(lambda: 2)
    await asyncio.sleep(0)
    assert methods(visit) == [ACKNOWLEDGED]


async def test_followers_are_no_calls_and_are_bounded_by_themselves() -> None:
    followed = Followed(calls=1, subscribers=2)
    visits = []
    for number in range(2):
        visits.append(followed.listen(number, toolsListChanged=True))
        # Until its first step is done it is a call like any other.
        await visits[-1].settled()
    assert not followed.door.endpoint.calls
    refused = await followed.listen(3, toolsListChanged=True).response()
    assert refused.status == 503
    assert refused.headers["retry-after"] == "30"
    assert (await followed.door.modern().response()).status == 200
    visits[0].sink.leave()
    await followed.listen(4, toolsListChanged=True).settled()
    assert len(followed.door.endpoint.followers) == 2


async def test_a_listen_request_ends_with_its_result_and_does_not_delay_shutdown() -> None:
    followed = Followed()
    visit = followed.listen(7, toolsListChanged=True)
    await visit.settled()
    async with asyncio.timeout(SOON):
        await followed.door.endpoint.drain(60.0, asyncio.Event())
    assert methods(visit) == [ACKNOWLEDGED, "result"]
    last = messages(visit)[-1]
    assert last["id"] == 7
    assert last["result"]["resultType"] == "complete"
    assert last["result"]["_meta"][ID] == 7
    assert visit.sink.ended
    refused = await followed.listen(8, toolsListChanged=True).response()
    assert refused.status == 503


async def test_a_stream_that_says_nothing_is_kept_alive_by_the_sweep() -> None:
    followed = Followed()
    visit = followed.listen(toolsListChanged=True)
    await visit.settled()
    calls = followed.door.endpoint._calls
    loop = asyncio.get_running_loop()
    for subscriber in calls.followers:
        subscriber.since = loop.time() - 16.0
    calls._sweep(loop)
    calls._sweep(loop)
    assert bytes(visit.sink.written).count(b": keep-alive\n\n") == 1


# -- through real connections ------------------------------------------------------------------------------------------


@asynccontextmanager
async def served(board: Board) -> AsyncIterator[tuple[HttpEndpoint, int]]:
    endpoint = HttpEndpoint(board.handler, board.info, limits=board.limits, guard=Guard())
    server = await serve(endpoint, board.limits)
    try:
        yield endpoint, server.port
    finally:
        await server.close()


def listen_bytes(port: int, request_id: int = 1, **wanted: Any) -> bytes:
    body = request(LISTEN, {"notifications": wanted, "_meta": envelope()}, request_id)
    fields = {
        "Host": f"127.0.0.1:{port}",
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        **mirror(LISTEN),
        "Content-Length": str(len(body)),
    }
    head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    return f"POST /mcp HTTP/1.1\r\n{head}\r\n".encode() + body


async def test_hundreds_of_open_streams_hear_of_one_change() -> None:
    board = make_board()
    async with served(board) as (endpoint, port):
        streams = []
        for number in range(300):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(listen_bytes(port, number, toolsListChanged=True))
            streams.append((reader, writer, number))
        await until(lambda: len(endpoint.followers) == 300)
        board.tool("two")(lambda: 2)
        for reader, writer, number in streams:
            heard = await reader.readuntil(b"list_changed")
            heard += await reader.readuntil(b"\n\n")
            assert b'"%b":%d' % (ID.encode(), number) in heard
            writer.close()
        await until(lambda: len(endpoint.followers) == 0)


async def test_a_slow_reader_takes_no_memory_and_hears_of_the_newest_once_it_reads() -> None:
    board = make_board(write_buffer=4096)
    uris = [f"a://{'x' * 2000}{number}" for number in range(100)]
    async with served(board) as (endpoint, port):
        loop = asyncio.get_running_loop()
        with socket.socket() as peer:
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            peer.setblocking(False)
            await loop.sock_connect(peer, ("127.0.0.1", port))
            await loop.sock_sendall(peer, listen_bytes(port, 1, toolsListChanged=True, resourceSubscriptions=uris))
            await until(lambda: len(endpoint.followers) == 1)
            followers = endpoint.followers
            told = 0
            # Until the kernel takes no more, however much that is on this machine.
            while not followers._lagging:
                told += len(uris)
                assert told < 100_000
                for uri in uris:
                    board.resource_changed(uri)
                await asyncio.sleep(MIN_INTERVAL_SECONDS)
            for number in range(20_000):
                board.resource_changed(uris[number % len(uris)])
            board.tool("last")(lambda: 1)
            await asyncio.sleep(0)
            assert followers._lagging
            assert len(board.changes._newest) <= len(uris) + 3
            body = b""
            while TOOLS.encode() not in body:
                body += await loop.sock_recv(peer, 65536)
            # What it had not been told before the reader stopped it, and each thing once since.
            assert body.count(UPDATED.encode()) <= told + len(uris)
        await until(lambda: len(endpoint.followers) == 0)


class AsgiServer:
    """What an ASGI server does for one request: hands in the body, takes what is sent, tells of the client's leave."""

    def __init__(self) -> None:
        self.sent = bytearray()
        self.ended = False
        self.gone = asyncio.Event()
        self._asked = False

    async def receive(self) -> dict[str, Any]:
        if self._asked:
            await self.gone.wait()
            return {"type": "http.disconnect"}
        self._asked = True
        params = {"notifications": {"toolsListChanged": True}, "_meta": envelope()}
        return {"type": "http.request", "body": request(LISTEN, params, 7)}

    async def send(self, event: Any) -> None:
        self.sent += event.get("body", b"")
        self.ended = event["type"] == "http.response.body" and not event.get("more_body", False)

    def scope(self) -> dict[str, Any]:
        fields = {"host": "127.0.0.1", "content-type": "application/json", "accept": "*/*", **mirror(LISTEN)}
        headers = [(name.encode(), str(value).encode()) for name, value in fields.items()]
        return {"type": "http", "method": "POST", "path": "/mcp", "query_string": b"", "headers": headers}


@pytest.mark.parametrize("end", ["the client leaves", "the server stops"])
async def test_a_listen_behind_an_asgi_server_hears_until_either_side_ends_it(end: str) -> None:
    board = make_board()
    app, server = board.asgi(), AsgiServer()
    task = asyncio.ensure_future(app(server.scope(), server.receive, server.send))
    await until(lambda: ACKNOWLEDGED.encode() in server.sent)
    board.tool("two")(lambda: 2)
    await until(lambda: TOOLS.encode() in server.sent)
    if end == "the client leaves":
        server.gone.set()
    else:
        events: asyncio.Queue[Any] = asyncio.Queue()
        events.put_nowait({"type": "lifespan.shutdown"})
        await app({"type": "lifespan"}, events.get, AsgiServer().send)
        await until(lambda: server.ended)
        assert b'"id":7,"result"' in server.sent
    await task
    assert board.changes._watches == ()


@pytest.mark.process
@pytest.mark.parametrize("command", [PEGBOARD, PLAIN_PEGBOARD], ids=["uvloop", "asyncio"])
def test_a_server_that_stops_ends_its_listens_with_a_result(command: tuple[str, ...]) -> None:
    with HttpChild(target=CHANGING, command=command) as child:
        connection = open_listen(child, 5, toolsListChanged=True)
        response = connection.getresponse()
        assert next_message(response)["method"] == ACKNOWLEDGED
        assert "pegboard" in child.text("hang_in_thread", what="late")
        assert next_message(response)["method"] == TOOLS
        child.signal(signal.SIGTERM)
        last = next_message(response)
        assert (last["id"], last["result"]["_meta"][ID]) == (5, 5)
        assert response.read().strip() == b""
        assert child.wait() == 0
        connection.close()


def open_listen(child: HttpChild, request_id: int, **wanted: Any) -> http.client.HTTPConnection:
    connection = child.connect()
    body = {"jsonrpc": "2.0", "id": request_id, "method": LISTEN, "params": modern({"notifications": wanted})}
    headers = {
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": MODERN,
        "Mcp-Method": LISTEN,
    }
    connection.request("POST", child.path, json.dumps(body), headers)
    return connection


def next_message(response: http.client.HTTPResponse) -> Any:
    while not (line := response.readline()).startswith(b"data: "):
        assert line, "the stream ended"
    return json.loads(line[6:])


# -- stdio -------------------------------------------------------------------------------------------------------------


@pytest.fixture(
    params=[
        pytest.param(PEGBOARD, marks=pytest.mark.process, id="uvloop"),
        pytest.param(PLAIN_PEGBOARD, marks=pytest.mark.process, id="asyncio"),
    ]
)
def child(request: pytest.FixtureRequest) -> Iterator[StdioChild]:
    with StdioChild(*request.param, "run", CHANGING, "--stdio") as started:
        yield started


def listen(child: StdioChild, request_id: Any, **wanted: Any) -> Any:
    child.send(LISTEN, modern({"notifications": wanted}), as_id=request_id)
    acknowledged = child.next()
    assert acknowledged["method"] == ACKNOWLEDGED
    assert acknowledged["params"]["_meta"] == {ID: request_id}
    return acknowledged["params"]["notifications"]


def heard(child: StdioChild, since: int) -> list[tuple[Any, str]]:
    """The notices that have come, each with its subscription."""
    return [
        (message["params"].get("_meta", {}).get(ID), message["method"])
        for message in child.messages[since:]
        if "method" in message
    ]


def test_several_listens_share_a_line_and_each_hears_what_it_asked_for(child: StdioChild) -> None:
    assert listen(child, "t", toolsListChanged=True) == {"toolsListChanged": True}
    assert listen(child, 102, promptsListChanged=True, resourceSubscriptions=["notes://a"]) == {
        "promptsListChanged": True,
        "resourceSubscriptions": ["notes://a"],
    }
    since = len(child.messages)
    child.call("hang", kind="tools", what="x")
    child.call("hang", kind="prompts", what="x")
    child.call("hang", kind="resources", what="x")
    child.call("touch", uri="notes://b")
    child.call("touch", uri="notes://a", times=50)
    child.call("hang_in_thread", what="y")
    while len(heard(child, since)) < 4:
        child.next()
    assert sorted(heard(child, since), key=str) == sorted(
        [("t", TOOLS), (102, PROMPTS), (102, UPDATED), ("t", TOOLS)], key=str
    )


def test_a_cancelled_listen_hears_no_more_and_gets_no_answer(child: StdioChild) -> None:
    listen(child, 101, toolsListChanged=True)
    listen(child, 102, toolsListChanged=True)
    child.notify("notifications/cancelled", {"requestId": 101})
    since = len(child.messages)
    child.call("hang", kind="tools", what="x")
    while not heard(child, since):
        child.next()
    child.hang_up()
    rest = [*child.messages[since:], *child.rest()]
    assert [message["params"]["_meta"][ID] for message in rest if "method" in message] == [102]
    assert [message["id"] for message in rest if "result" in message and "content" not in message["result"]] == [102]


def test_the_id_of_a_listen_is_in_flight_until_it_is_cancelled(child: StdioChild) -> None:
    listen(child, 101, toolsListChanged=True)
    child.send("tools/list", modern(), as_id=101)
    assert "in flight" in child.next()["error"]["message"]
    child.notify("notifications/cancelled", {"requestId": 101})
    child.send("tools/list", modern(), as_id=101)
    assert "tools" in child.next()["result"]


@pytest.mark.parametrize("how", ["hang up", "signal"])
def test_shutdown_ends_each_listen_request_with_its_result(child: StdioChild, how: str) -> None:
    for request_id in (101, 102):
        listen(child, request_id, toolsListChanged=True)
    if how == "signal":
        child.signal(signal.SIGTERM)
    else:
        child.hang_up()
    last = child.rest()
    assert [message["id"] for message in last] == [101, 102]
    assert all(message["result"]["resultType"] == "complete" for message in last)
    assert all(message["result"]["_meta"][ID] == message["id"] for message in last)
    assert child.wait() == 0


def test_a_legacy_client_on_a_line_hears_of_every_list_once_it_is_initialized(child: StdioChild) -> None:
    child.initialize()
    child.request("ping")
    since = len(child.messages)
    child.request("tools/call", {"name": "hang", "arguments": {"kind": "tools", "what": "x"}})
    child.request("tools/call", {"name": "hang", "arguments": {"kind": "prompts", "what": "x"}})
    child.request("tools/call", {"name": "hang", "arguments": {"kind": "resources", "what": "x"}})
    child.request("tools/call", {"name": "touch", "arguments": {"uri": "notes://a"}})
    while len(heard(child, since)) < 3:
        child.next()
    child.hang_up()
    notices = [message for message in (*child.messages[since:], *child.rest()) if "method" in message]
    assert [notice["method"] for notice in notices] == [TOOLS, PROMPTS, RESOURCES]
    assert all("_meta" not in notice["params"] for notice in notices)


def test_a_legacy_client_hears_nothing_before_it_is_initialized(child: StdioChild) -> None:
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "old", "version": "1"}}
    assert child.request("initialize", hello)["result"]["capabilities"]["tools"] == {"listChanged": True}
    child.call("hang", kind="tools", what="x")
    child.request("ping")
    assert not heard(child, 0)


# -- legacy, over HTTP -------------------------------------------------------------------------------------------------

VERSIONS = pytest.mark.parametrize("version", ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"])


class Heard:
    """A session at a door to a board, and its GETs."""

    def __init__(self, followed: Followed, session: Legacy) -> None:
        self.followed = followed
        self.board = followed.board
        self.session = session

    async def get(self, last: str | None = None) -> Visit:
        headers = {"accept": "text/event-stream", "content-type": None}
        if last is not None:
            headers["last-event-id"] = last
        visit = self.session.send(b"", headers, method="GET")
        await visit.settled()
        return visit


async def open_session(version: str = "2025-11-25", **limits: Any) -> Heard:
    followed = Followed(**limits)
    session = await followed.door.open_session(version)
    await session.notify("notifications/initialized")
    return Heard(followed, session)


def ids(visit: Visit) -> list[str | None]:
    return [event.id for event in EventReader().feed(bytes(visit.sink.written)) if event.data]


@VERSIONS
async def test_a_get_hears_of_every_list_and_of_the_resources_subscribed_to(version: str) -> None:
    heard = await open_session(version)
    visit = await heard.get()
    assert visit.sink.status == 200
    board, session = heard.board, heard.session
    board.resource_changed("a://1")
    assert (await session.ask("resources/subscribe", {"uri": "a://1"}, 2).response()).json["result"] == {}
    board.resource_changed("a://1")
    board.resource_changed("a://2")
    board.tool("two")(lambda: 2)
    board.prompt("q")(lambda: "x")
    board.resource("a:2")(lambda: "x")
    await until(lambda: len(messages(visit)) == 4)
    assert methods(visit) == [UPDATED, TOOLS, PROMPTS, RESOURCES]
    assert messages(visit)[0]["params"] == {"uri": "a://1"}
    await session.ask("resources/unsubscribe", {"uri": "a://1"}, 3).response()
    board.resource_changed("a://1")
    board.remove("two")
    await until(lambda: len(messages(visit)) == 5)
    assert methods(visit)[-1] == TOOLS


async def test_a_client_that_can_resume_receives_an_event_id_immediately() -> None:
    heard = await open_session()
    visit = await heard.get()
    # A comment comes first, in every revision: whoever waits for a byte has one.
    assert bytes(visit.sink.written).startswith(b": keep-alive\n\n")
    (first,) = EventReader().feed(bytes(visit.sink.written))
    assert (first.id, first.data) == (f"g-{heard.board.changes.last}", "")
    assert first.retry is not None
    older = await (await open_session("2025-06-18")).get()
    assert bytes(older.sink.written) == b": keep-alive\n\n"
    assert older.sink.status == 200


async def test_a_client_that_comes_back_hears_of_what_it_has_missed_once() -> None:
    heard = await open_session()
    visit = await heard.get()
    board = heard.board
    board.tool("two")(lambda: 2)
    await until(lambda: bool(messages(visit)))
    seen = ids(visit)[-1]
    assert seen == f"g-{board.changes.last}"
    visit.sink.leave()
    for number in range(5):
        board.tool(f"more_{number}")(lambda: 2)
    board.prompt("q")(lambda: "x")
    again = await heard.get(seen)
    assert methods(again) == [TOOLS, PROMPTS]
    assert ids(again) == [f"g-{board.changes.last - 1}", f"g-{board.changes.last}"]
    once_more = await heard.get(ids(again)[0])
    assert methods(once_more) == [PROMPTS]


async def test_a_client_that_comes_back_without_its_place_goes_on_where_its_session_was() -> None:
    heard = await open_session()
    visit = await heard.get()
    visit.sink.leave()
    heard.board.tool("two")(lambda: 2)
    assert methods(await heard.get()) == [TOOLS]


@pytest.mark.parametrize("last", ["g-", "g-x", "g-999999", "g--1", "g-1e3"])
async def test_resuming_from_an_unknown_event_id_reports_that_anything_may_have_changed(last: str) -> None:
    heard = await open_session()
    assert set(methods(await heard.get(last))) == {TOOLS, PROMPTS, RESOURCES}


async def test_of_several_gets_the_newest_hears_and_the_others_stay_open() -> None:
    heard = await open_session()
    first = await heard.get()
    second = await heard.get()
    heard.board.tool("two")(lambda: 2)
    await until(lambda: bool(messages(second)))
    assert messages(first) == []
    assert not first.sink.ended
    second.sink.leave()
    heard.board.prompt("q")(lambda: "x")
    await until(lambda: bool(messages(first)))
    assert methods(first) == [PROMPTS]


async def test_of_very_many_gets_the_oldest_is_ended() -> None:
    heard = await open_session()
    visits = [await heard.get() for _ in range(12)]
    assert [visit.sink.ended for visit in visits] == [True] * 4 + [False] * 8
    heard.board.tool("two")(lambda: 2)
    await until(lambda: bool(messages(visits[-1])))
    assert methods(visits[-1]) == [TOOLS]


async def test_two_sessions_hear_each_for_itself() -> None:
    heard = await open_session()
    other = Heard(heard.followed, await heard.followed.door.open_session())
    visits = [await heard.get(), await other.get()]
    await other.session.ask("resources/subscribe", {"uri": "a://1"}, 2).response()
    heard.board.resource_changed("a://1")
    heard.board.tool("two")(lambda: 2)
    await until(lambda: all(messages(visit) for visit in visits))
    assert [methods(visit) for visit in visits] == [[TOOLS], [UPDATED, TOOLS]]


async def test_the_end_of_a_session_ends_its_streams() -> None:
    heard = await open_session()
    visits = [await heard.get() for _ in range(3)]
    assert (await heard.session.delete()).status == 204
    assert all(visit.sink.ended for visit in visits)
    assert len(heard.followed.door.endpoint.followers) == 0


async def test_a_session_that_listens_does_not_expire() -> None:
    heard = await open_session(session_seconds=30.0)
    visit = await heard.get()
    sessions = heard.followed.door.endpoint.sessions
    for session in sessions._open.values():
        session.touched -= 60.0
    sessions.reap()
    assert len(sessions) == 1
    visit.sink.leave()
    sessions.reap()
    assert len(sessions) == 0


async def test_a_get_ends_cleanly_when_the_server_does() -> None:
    heard = await open_session()
    visit = await heard.get()
    async with asyncio.timeout(SOON):
        await heard.followed.door.endpoint.drain(60.0, asyncio.Event())
    assert messages(visit) == []
    assert visit.sink.ended
    refused = heard.session.send(b"", {"accept": "text/event-stream"}, method="GET")
    assert (await refused.response()).status == 503


async def test_a_get_needs_a_session_a_stream_and_an_older_revision() -> None:
    heard = await open_session()
    door = heard.followed.door
    stream = {"accept": "text/event-stream"}
    assert (await door.send(b"", stream, method="GET").response()).status == 400
    assert (await door.send(b"", {**stream, "mcp-session-id": "f" * 32}, method="GET").response()).status == 404
    assert (await door.send(b"", {**stream, "mcp-protocol-version": MODERN}, method="GET").response()).status == 405
    plain = heard.session.send(b"", {"accept": "application/json"}, method="GET")
    assert (await plain.response()).status == 406
    full = await open_session(subscribers=0)
    assert (await full.session.send(b"", stream, method="GET").response()).status == 503


@pytest.mark.process
@pytest.mark.parametrize("command", [PEGBOARD, PLAIN_PEGBOARD], ids=["uvloop", "asyncio"])
def test_a_legacy_client_on_a_real_connection_hears_and_comes_back(command: tuple[str, ...]) -> None:
    with HttpChild(target=CHANGING, command=command) as child:
        connection = child.connect()
        hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "old", "version": "1"}}
        kinds = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
        body = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}
        connection.request("POST", child.path, json.dumps(body), kinds)
        answer = connection.getresponse()
        assert json.loads(answer.read())["result"]["capabilities"]["resources"] == {
            "listChanged": True,
            "subscribe": True,
        }
        session = {"MCP-Session-Id": answer.headers["mcp-session-id"], "MCP-Protocol-Version": "2025-11-25"}
        connection.request("GET", child.path, headers={**session, "Accept": "text/event-stream"})
        stream = connection.getresponse()
        assert [stream.readline() for _ in range(2)] == [b": keep-alive\n", b"\n"]
        assert stream.readline().startswith(b"id: g-")
        child.text("hang", kind="tools", what="x")
        while not (line := stream.readline()).startswith(b"id: "):
            pass
        assert next_message(stream)["method"] == TOOLS
        stream.close()
        connection.close()
        child.text("hang", kind="prompts", what="x")
        last = line.removeprefix(b"id: ").strip().decode()
        connection.request("GET", child.path, headers={**session, "Accept": "text/event-stream", "Last-Event-ID": last})
        stream = connection.getresponse()
        stream.readline()
        while (message := stream.readline()) != b"" and b"method" not in message:
            pass
        assert PROMPTS.encode() in message
        child.signal(signal.SIGTERM)
        assert stream.read().strip() == b""
        assert child.wait() == 0
        connection.close()


async def test_a_change_right_behind_the_handshake_is_heard_of() -> None:
    """Messages come several at a time: whatever the next one does, its client already follows."""
    board = Board("quick")
    board.add(lambda: 1, name="one")
    told: list[Any] = []

    class Peer:
        full = False

        def write(self, message: bytes) -> None:
            told.append(json.loads(message))

        async def drain(self) -> None: ...

    service = Service(board.handler, board.info, board.limits, Subscribers(10), "stdio")
    peer = Conversation(service, Peer(), asyncio.get_running_loop())
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    peer.take(request("initialize", hello))
    peer.take(notification("notifications/initialized"))
    if sys.version_info < (3, 12):
        # A task takes its first step in the next turn.
        await asyncio.sleep(0)
    board.add(lambda: 2, name="two")
    await until(lambda: [one.get("method") for one in told][-1:] == ["notifications/tools/list_changed"])
    peer.following.leave()
