"""HTTP with SSE, the transport of 2024-11-05: one stream, POSTs beside it, a session that ends with the stream."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any

import pytest

from pegboard import Board, Context, Limits
from pegboard.call import Call, Notification, Reply
from pegboard.protocol.framing.sse import EventReader
from pegboard.protocol.revisions import LEGACY, MODERN
from tests.server.fake_sink import Door, RecordedSink, Response, Visit, envelope, notification, request, said
from tests.server.streamable_http.test_mcp_endpoint import Ticking
from tests.stalls import no_stalls  # noqa: F401 — it is on for every test here
from tests.waiting import until

ALL_LEGACY = pytest.mark.parametrize("version", sorted(LEGACY))


class Old:
    """A client of this transport."""

    def __init__(self, door: Door, **headers: str | None) -> None:
        self.door = door
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}
        self.visit = door.send(b"", {"accept": "text/event-stream", **self.headers}, method="GET", path="/sse")
        self.sink: RecordedSink = self.visit.sink
        first = self.events()[0]
        assert first.name == "endpoint"
        self.path, _, self.query = first.data.partition("?")

    def events(self) -> list[Any]:
        return list(EventReader().feed(bytes(self.sink.written)))

    def messages(self) -> list[Any]:
        return [json.loads(event.data) for event in self.events() if event.name == "message"]

    def send(self, body: bytes, **headers: str | None) -> Visit:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.door.send(body, {**self.headers, "accept": None, **named}, path=self.path, query=self.query)

    async def post(self, body: bytes, status: int = 202) -> Response:
        response = await self.send(body).response()
        assert response.status == status, response.body
        return response

    async def ask(self, method: str, params: Any = None, request_id: Any = 1) -> Any:
        """The answer to a request, as it comes on the stream."""
        before = len(self.messages())
        assert (await self.post(request(method, params, request_id))).body == b""
        await until(lambda: any(one.get("id") == request_id for one in self.messages()[before:]))
        return next(one for one in self.messages()[before:] if one.get("id") == request_id)

    async def call(self, name: str, request_id: Any = 1, **arguments: Any) -> Any:
        return await self.ask("tools/call", {"name": name, "arguments": arguments}, request_id)

    async def start(self, name: str, request_id: Any = 1, token: Any = None) -> None:
        params: dict[str, Any] = {"name": name, "arguments": {}}
        if token is not None:
            params["_meta"] = {"progressToken": token}
        await self.post(request("tools/call", params, request_id))

    async def greet(self, version: str = "2024-11-05", **capabilities: Any) -> Any:
        hello = {"protocolVersion": version, "capabilities": capabilities, "clientInfo": {"name": "o", "version": "1"}}
        answer = await self.ask("initialize", hello, "hello")
        await self.post(notification("notifications/initialized"))
        return answer


def make_door(limits: Limits | None = None, **options: Any) -> Door:
    return Door(limits, legacy_endpoints=["sse"], **options)


def changing(**limits: Any) -> tuple[Board, Door]:
    board = Board("b", limits=Limits(**limits))
    board.tool("one")(lambda: 1)
    board.resource("a://{name}")(lambda name: name)
    return board, make_door(board.limits, handler=board.handler)


# -- the stream and the handshake --------------------------------------------------------------------------------------


async def test_the_first_event_names_an_unguessable_url_to_post_to() -> None:
    door = make_door()
    clients = [Old(door) for _ in range(2)]
    assert clients[0].sink.status == 200
    assert dict(clients[0].sink.headers)[b"content-type"] == b"text/event-stream"
    for client in clients:
        assert client.path == "/messages"
        assert re.fullmatch("sessionId=[0-9a-f]{32}", client.query)
    assert clients[0].query != clients[1].query


@ALL_LEGACY
async def test_the_handshake_agrees_on_the_revision(version: str) -> None:
    door = make_door()
    client = Old(door)
    answer = await client.greet(version)
    assert answer["result"]["protocolVersion"] == version
    assert answer["result"]["serverInfo"]["name"] == "probe"
    await client.ask("tools/list")
    assert door.probe.calls[-1].caller.version == version
    assert door.probe.calls[-1].caller.client["name"] == "o"
    assert len(door.endpoint.sessions) == 0, "these sessions are of no use at /mcp"


@pytest.mark.parametrize("version", ["2019-01-01", MODERN])
async def test_a_revision_we_do_not_speak_here_is_answered_with_our_newest_legacy_one(version: str) -> None:
    assert (await Old(make_door()).greet(version))["result"]["protocolVersion"] == "2025-11-25"


async def test_a_second_handshake_changes_nothing() -> None:
    door = make_door()
    client = Old(door)
    await client.greet("2025-06-18")
    hello = {"protocolVersion": "2024-11-05", "capabilities": {"roots": {}}, "clientInfo": {"name": "x"}}
    assert (await client.ask("initialize", hello, 2))["error"]["code"] == -32600
    await client.ask("tools/list", None, 3)
    assert (door.probe.calls[-1].caller.version, door.probe.calls[-1].caller.client["name"]) == ("2025-06-18", "o")


async def test_a_handshake_with_wrong_params_may_be_sent_again() -> None:
    client = Old(make_door())
    assert (await client.ask("initialize", {"protocolVersion": 1}, 1))["error"]["code"] == -32602
    assert "result" in await client.greet()


@pytest.mark.parametrize(("stated", "spoken"), [(None, "2024-11-05"), ("2025-06-18", "2025-06-18")])
async def test_a_client_that_came_back_goes_on_without_a_handshake(stated: str | None, spoken: str) -> None:
    door = make_door()
    client = Old(door, mcp_protocol_version=stated)
    assert (await client.call("echo"))["result"]
    assert door.probe.calls[-1].caller.version == spoken


async def test_what_a_post_states_does_not_change_what_was_agreed() -> None:
    door = make_door()
    client = Old(door)
    await client.greet("2024-11-05")
    await client.send(request("tools/list"), mcp_protocol_version="2025-11-25").response()
    assert door.probe.calls[-1].caller.version == "2024-11-05"


async def test_a_modern_request_is_rejected_with_the_supported_revisions() -> None:
    client = Old(make_door())
    answer = await client.ask("tools/list", {"_meta": envelope()})
    assert answer["error"]["code"] == -32022
    assert MODERN not in answer["error"]["data"]["supported"]


async def test_results_have_the_fields_of_the_session_s_revision() -> None:
    client = Old(make_door())
    await client.greet("2024-11-05")
    assert "title" not in (await client.ask("tools/list"))["result"]["tools"][0]
    newer = Old(client.door)
    await newer.greet("2025-06-18")
    assert "title" in (await newer.ask("tools/list"))["result"]["tools"][0]


# -- messages ----------------------------------------------------------------------------------------------------------


async def test_a_post_is_taken_at_once_and_answered_on_the_stream() -> None:
    door = make_door()
    client = Old(door)
    await client.greet()
    await client.start("slow", 7)
    assert not [one for one in client.messages() if one.get("id") == 7]
    door.probe.release.set()
    await until(lambda: client.messages()[-1].get("id") == 7)
    assert client.messages()[-1]["result"]["content"][0]["text"] == "done"


async def test_answers_come_as_they_are_there() -> None:
    door = make_door()
    client = Old(door)
    await client.greet()
    await client.start("slow", "first")
    await client.call("echo", "second")
    door.probe.release.set()
    await until(lambda: len(client.messages()) == 3)
    assert [one["id"] for one in client.messages()] == ["hello", "second", "first"]


async def test_progress_comes_on_the_stream_before_the_answer() -> None:
    client = Old(make_door())
    await client.greet()
    await client.start("steps", 1, "t")
    assert [one.get("method", one.get("id")) for one in client.messages()[1:]] == ["notifications/progress"] * 2 + [1]


async def test_nothing_of_one_client_reaches_another() -> None:
    door = make_door()
    first, second = Old(door), Old(door)
    await first.greet()
    await second.greet()
    await asyncio.gather(first.call("echo", 1, who="first"), second.call("echo", 1, who="second"))
    assert "second" not in bytes(first.sink.written).decode()
    assert "first" not in bytes(second.sink.written).decode()


@pytest.mark.parametrize(
    ("method", "params", "code"),
    [("no/such", None, -32601), ("tools/call", {"name": "nope"}, -32602), ("tools/call", {}, -32602)],
)
async def test_an_error_comes_on_the_stream(method: str, params: Any, code: int) -> None:
    client = Old(make_door())
    await client.greet()
    assert (await client.ask(method, params))["error"]["code"] == code
    assert (await client.ask("ping", None, 2))["result"] == {}


async def test_a_request_that_is_wrong_but_has_an_id_is_answered_on_the_stream() -> None:
    client = Old(make_door())
    await client.post(b'{"jsonrpc":"2.0","id":5,"method":7}')
    await client.post(b'{"jsonrpc":"2.0","id":6,"method":"ping","params":[]}')
    assert [(one["id"], one["error"]["code"]) for one in client.messages()] == [(5, -32600), (6, -32600)]


@pytest.mark.parametrize(("body", "code"), [(b"", -32700), (b"{", -32700), (b"1", -32600), (b'{"id":null}', -32600)])
async def test_what_has_no_id_is_refused_where_it_came_in(body: bytes, code: int) -> None:
    client = Old(make_door())
    assert (await client.post(body, 400)).code == code
    assert not client.messages()


async def test_an_id_in_flight_is_refused_where_it_came_in_and_the_first_call_is_answered() -> None:
    door = make_door()
    client = Old(door)
    await client.start("slow", 1)
    assert (await client.post(request("ping", None, 1), 409)).code == -32600
    door.probe.release.set()
    await until(lambda: bool(client.messages()))
    assert [one["id"] for one in client.messages()] == [1]
    assert "result" in client.messages()[0]
    assert (await client.call("echo", 1))["result"], "the id is free again"


async def test_an_array_is_served_in_the_revision_that_has_them() -> None:
    client = Old(make_door())
    await client.greet("2025-03-26")
    body = b"[%b,%b,1,%b]" % (request("ping", None, 1), notification("notifications/x"), request("no/such", None, 2))
    await client.post(body)
    told = [(one.get("id"), one.get("error", {}).get("code")) for one in client.messages()[1:]]
    assert told == [(1, None), (None, -32600), (2, -32601)]


@pytest.mark.parametrize("version", sorted(LEGACY - {"2025-03-26"}))
async def test_an_array_is_an_invalid_request_in_every_other_revision(version: str) -> None:
    client = Old(make_door())
    await client.greet(version)
    assert (await client.post(b"[%b]" % request("ping"), 400)).code == -32600


async def test_a_notice_cancels_a_call_and_it_is_not_answered() -> None:
    door = make_door()
    client = Old(door)
    await client.start("slow", 1)
    await client.post(notification("notifications/cancelled", {"requestId": 1}))
    await door.probe.cancelled.wait()
    await client.ask("ping", None, 2)
    assert [one["id"] for one in client.messages()] == [2]


async def test_one_client_does_not_cancel_the_calls_of_another() -> None:
    door = make_door()
    first, second = Old(door), Old(door)
    await first.start("slow", 1)
    await second.post(notification("notifications/cancelled", {"requestId": 1}))
    door.probe.release.set()
    await until(lambda: bool(first.messages()))
    assert first.messages()[0]["result"]


# -- asks, levels, changes ---------------------------------------------------------------------------------------------


def asking() -> Board:
    board = Board("asking")

    @board.tool
    async def where(ctx: Context) -> str:
        found = await ctx.roots()
        return ", ".join(str(root) for root in found)

    return board


async def test_a_client_is_asked_on_its_stream_and_answers_by_post() -> None:
    client = Old(make_door(handler=asking().handler))
    await client.greet(roots={})
    await client.start("where", 1)
    await until(lambda: client.messages()[-1].get("method") == "roots/list")
    ask = client.messages()[-1]["id"]
    other = Old(client.door)
    result = {"roots": [{"uri": "file:///here"}]}
    forged = {"jsonrpc": "2.0", "id": ask, "result": {"roots": [{"uri": "file:///forged"}]}}
    await other.post(json.dumps(forged).encode())
    await client.post(json.dumps({"jsonrpc": "2.0", "id": ask, "result": result}).encode())
    await until(lambda: client.messages()[-1].get("id") == 1)
    assert "file:///here" in json.dumps(client.messages()[-1]["result"])


async def test_a_client_that_leaves_while_it_is_asked_ends_the_call() -> None:
    door = make_door(handler=asking().handler)
    client = Old(door)
    await client.greet(roots={})
    await client.start("where", 1)
    await until(lambda: client.messages()[-1].get("method") == "roots/list")
    client.sink.leave()
    await until(lambda: not door.endpoint.calls)


async def test_a_client_hears_log_messages_at_the_level_it_set() -> None:
    board = Board("b")

    @board.tool
    async def talk(ctx: Context) -> str:
        await ctx.log("info", "quiet")
        await ctx.log("error", "loud")
        return "done"

    client = Old(make_door(handler=board.handler))
    await client.greet()
    await client.call("talk", 1)
    assert (await client.ask("logging/setLevel", {"level": "error"}, 2))["result"] == {}
    await client.call("talk", 3)
    levels = [one["params"]["level"] for one in client.messages() if one.get("method") == "notifications/message"]
    assert levels == ["info", "error", "error"]


async def test_list_changes_come_on_the_stream_once_the_client_is_ready() -> None:
    board, door = changing()
    ready, waiting = Old(door), Old(door)
    await ready.greet()
    board.tool("two")(lambda: 2)
    await until(lambda: len(ready.messages()) == 2)
    assert ready.messages()[-1]["method"] == "notifications/tools/list_changed"
    assert not waiting.messages()


async def test_a_client_that_sends_initialized_twice_is_notified_once() -> None:
    board, door = changing()
    client = Old(door)
    await client.greet()
    await client.post(notification("notifications/initialized"))
    board.tool("two")(lambda: 2)
    await until(lambda: len(client.messages()) == 2)
    assert (len(client.messages()), len(door.endpoint.followers)) == (2, 1)


async def test_only_subscribed_resources_are_reported() -> None:
    board, door = changing()
    client = Old(door)
    await client.greet()
    assert (await client.ask("resources/subscribe", {"uri": "a://1"}, 1))["result"] == {}
    board.resource_changed("a://2")
    board.resource_changed("a://1")
    await until(lambda: client.messages()[-1].get("method") == "notifications/resources/updated")
    assert client.messages()[-1]["params"]["uri"] == "a://1"


async def test_a_client_is_not_notified_of_a_resource_it_unsubscribed_from() -> None:
    board, door = changing()
    client = Old(door)
    await client.greet()
    for number, uri in enumerate(("a://1", "a://2")):
        await client.ask("resources/subscribe", {"uri": uri}, number)
    assert (await client.ask("resources/unsubscribe", {"uri": "a://1"}, 2))["result"] == {}
    board.resource_changed("a://1")
    board.resource_changed("a://2")
    await until(lambda: client.messages()[-1].get("method") == "notifications/resources/updated")
    told = [one for one in client.messages() if one.get("method") == "notifications/resources/updated"]
    assert [one["params"]["uri"] for one in told] == ["a://2"]


async def test_a_client_that_came_back_hears_of_changes_too() -> None:
    board, door = changing()
    client = Old(door)
    await client.ask("tools/list")
    board.tool("two")(lambda: 2)
    await until(lambda: client.messages()[-1].get("method") == "notifications/tools/list_changed")


async def test_a_slow_subscriber_is_notified_once_it_reads() -> None:
    board, door = changing()
    client = Old(door)
    await client.greet()
    client.sink.clog()
    board.tool("two")(lambda: 2)
    await until(lambda: len(client.messages()) == 2)
    board.tool("three")(lambda: 3)
    client.sink.unclog()
    await until(lambda: len(client.messages()) == 3)
    client.sink.leave()
    assert len(door.endpoint.followers) == 0


async def test_a_full_house_of_followers_serves_on(caplog: pytest.LogCaptureFixture) -> None:
    _, door = changing(subscribers=1)
    first, second = Old(door), Old(door)
    await first.greet()
    await second.greet()
    assert (await second.ask("ping"))["result"] == {}
    assert "will not receive changes" in caplog.text


# -- the end of a session ----------------------------------------------------------------------------------------------


async def test_a_session_ends_with_its_stream_and_so_do_its_calls() -> None:
    door = make_door()
    client = Old(door)
    await client.start("slow", 1)
    client.sink.leave()
    await door.probe.cancelled.wait()
    await until(lambda: not door.endpoint.calls)
    assert (await client.post(request("ping"), 404)).code == -32001
    assert not door.endpoint._calls.followers


@pytest.mark.parametrize("query", ["", "sessionId=", "session=x", "sessionId=" + "0" * 32, "sessionId=%zz"])
async def test_a_post_without_a_session_of_ours_is_refused(query: str) -> None:
    door = make_door()
    client = Old(door)
    client.query = query
    response = await client.send(request("tools/list")).response()
    assert response.status == (404 if query.startswith("sessionId=") else 400)
    assert not door.probe.calls


async def test_a_post_that_names_two_sessions_is_refused() -> None:
    door = make_door()
    client, other = Old(door), Old(door)
    client.query = f"{client.query}&{other.query}"
    assert (await client.post(request("tools/list"), 400)).code == -32602


async def test_a_session_of_one_door_is_none_at_another() -> None:
    door = make_door()
    client = Old(door)
    await client.greet()
    session = {"mcp-session-id": client.query.partition("=")[2]}
    assert (await door.send(request("tools/list"), session).response()).status == 404
    opened = await door.open_session()
    client.query = f"sessionId={opened.id}"
    await client.post(request("tools/list"), 404)


async def test_there_is_room_for_so_many_clients() -> None:
    door = make_door(Limits(sessions=1))
    first = Old(door)
    response = await door.send(method="GET", path="/sse").response()
    assert (response.status, response.headers["retry-after"]) == (503, "30")
    first.sink.leave()
    Old(door)


async def test_one_client_has_so_many_calls() -> None:
    door = make_door(Limits(calls_per_caller=1))
    client, other = Old(door), Old(door)
    await client.start("slow", 1)
    assert (await client.call("echo", 2))["error"]["code"] == -32603
    assert (await other.call("echo", 1))["result"]
    door.probe.release.set()


async def test_a_full_house_is_said_on_the_stream() -> None:
    door = make_door(Limits(calls=1))
    client = Old(door)
    await client.start("slow", 1)
    assert "try again" in (await client.call("echo", 2))["error"]["message"]
    door.probe.release.set()


async def test_an_idle_stream_is_kept_alive_by_the_one_sweep() -> None:
    clock = Ticking()
    _, door = changing()
    door = make_door(loop=clock, handler=door.endpoint._handler)
    client = Old(door)
    await client.greet()
    said_before = bytes(client.sink.written)
    clock.pass_time(16)
    assert bytes(client.sink.written) == said_before + b": keep-alive\n\n"
    client.sink.leave()
    clock.pass_time(2)
    assert not clock.timers, "no timer runs when nobody is there"


# -- those who do not read ---------------------------------------------------------------------------------------------


async def test_who_does_not_read_is_served_no_further_until_it_does() -> None:
    door = make_door(Limits(calls_per_caller=1))
    client = Old(door)
    await client.greet()
    client.sink.clog()
    await client.ask("ping", None, 1)
    waiting = client.send(request("tools/call", {"name": "echo"}, 2))
    await asyncio.sleep(0)
    assert not [call for call in door.probe.calls if call.name == "echo"]
    # Beyond a bound nothing waits, and nothing more is put on the stream.
    held = bytes(client.sink.written)
    assert (await client.post(request("ping", None, 3), 503)).headers["retry-after"] == "1"
    # What is no request is heard all the same.
    await client.post(notification("notifications/cancelled", {"requestId": 9}))
    assert bytes(client.sink.written) == held
    client.sink.unclog()
    assert (await waiting.response()).status == 202
    await until(lambda: client.messages()[-1].get("id") == 2)


async def test_who_leaves_instead_of_reading_is_served_no_more() -> None:
    door = make_door()
    client = Old(door)
    await client.greet()
    client.sink.clog()
    await client.ask("ping", None, 1)
    waiting = client.send(request("tools/call", {"name": "echo"}, 2))
    await asyncio.sleep(0)
    client.sink.leave()
    assert (await waiting.response()).status == 404
    assert not [call for call in door.probe.calls if call.name == "echo"]


async def test_a_call_that_speaks_waits_for_its_reader_and_others_do_not() -> None:
    heard = asyncio.Event()

    async def handler(call: Call) -> Reply:
        if call.name == "talk":
            await call.channel.emit(Notification("notifications/progress", {"progressToken": 1, "progress": 1}))
            heard.set()
        return said("done")

    door = make_door(handler=handler)
    slow, other = Old(door), Old(door)
    slow.sink.clog()
    await slow.start("talk", 1)
    await other.start("talk", 1)
    await until(lambda: len(other.messages()) == 2)
    heard.clear()
    assert len(slow.messages()) == 1
    slow.sink.unclog()
    await heard.wait()
    await until(lambda: len(slow.messages()) == 2)


# -- our own end -------------------------------------------------------------------------------------------------------


async def test_the_streams_of_idle_clients_end_at_once_when_we_do() -> None:
    _, door = changing()
    idle, greeted = Old(door), Old(door)
    await greeted.greet()
    await door.endpoint.drain(5, asyncio.Event())
    assert idle.sink.ended
    assert greeted.sink.ended
    await greeted.post(request("ping"), 404)
    assert not door.endpoint._calls.followers


async def test_a_call_under_way_is_answered_before_the_stream_ends() -> None:
    door = make_door()
    client = Old(door)
    await client.greet()
    await client.start("slow", 1)
    draining = asyncio.ensure_future(door.endpoint.drain(30, asyncio.Event()))
    await asyncio.sleep(0)
    assert not client.sink.ended
    assert "shutting down" in (await client.call("echo", 2))["error"]["message"]
    door.probe.release.set()
    await draining
    await until(lambda: client.sink.ended)
    assert client.messages()[-1]["result"]["content"][0]["text"] == "done"


async def test_an_unfinished_call_gets_an_error_when_the_server_shuts_down() -> None:
    door = make_door()
    client = Old(door)
    await client.start("slow", 1)
    await door.endpoint.drain(0.01, asyncio.Event())
    await until(lambda: client.sink.ended)
    assert client.messages()[-1]["error"]["code"] == -32603
