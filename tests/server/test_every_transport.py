"""What each door promises, asked of real servers: our own, and another one that the board is mounted in."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection

from tests.server_processes import ROOT, HttpChild, UvicornChild, open_socket
from tests.waiting import wait_until

pytestmark = pytest.mark.process

BOARD = ROOT / "tests" / "transport_board.py"
GUID = "550e8400-e29b-41d4-a716-446655440000"
DOCUMENTED = "00840e559be2d441a71644665544000003000000000000006869"
NOW = "2026-11-16T10:00:00Z"
HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
names = (f"tool_{number}" for number in count())
request_ids = count(100)


@pytest.fixture(scope="module", params=["our own", "mounted"])
def port(request: pytest.FixtureRequest) -> Iterator[int]:
    mounted = "board.asgi(ws='/ws', legacy_endpoints=['all'])"
    server: Any = (
        HttpChild(target=BOARD) if request.param == "our own" else UvicornChild("tests.transport_board", mounted)
    )
    with server:
        yield server.port


@pytest.fixture
def http(port: int) -> Iterator[httpx.Client]:
    headers = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", headers=headers, timeout=10) as client:
        yield client


@pytest.fixture
def session(http: httpx.Client) -> Iterator[httpx.Client]:
    """The same client within a session."""
    begun = http.post("/mcp", json=request("initialize", HELLO))
    http.headers["mcp-session-id"] = begun.headers["mcp-session-id"]
    http.headers["mcp-protocol-version"] = "2025-11-25"
    yield http
    http.delete("/mcp")


def request(method: str, params: Any = None, request_id: Any = 1) -> dict[str, Any]:
    message: dict[str, Any] = {"jsonrpc": "2.0", "method": method}
    if request_id is not None:
        message["id"] = request_id
    return message if params is None else {**message, "params": params}


def calling(tool: str, request_id: Any = None, token: Any = None, **arguments: Any) -> dict[str, Any]:
    """A call with an id of its own: a client must not use one twice in a session."""
    meta = {} if token is None else {"_meta": {"progressToken": token}}
    return request("tools/call", {"name": tool, "arguments": arguments, **meta}, request_id or next(request_ids))


def events(text: str) -> list[dict[str, str]]:
    """The fields of each event of a stream that has any."""
    blocks = [block.splitlines() for block in text.split("\n\n")]
    split = [[line.partition(": ") for line in block if not line.startswith(":")] for block in blocks]
    return [{name: value for name, _, value in fields} for fields in split if fields]


def messages(text: str) -> list[Any]:
    return [json.loads(event["data"]) for event in events(text) if event.get("data")]


def text_of(result: Any) -> str:
    text: str = result["content"][0]["text"]
    return text


# -- /mcp ----------------------------------------------------------------------------------------------------------------


def test_initialize_alone_opens_a_session_which_every_answer_in_it_names(http: httpx.Client) -> None:
    refused = http.post("/mcp", json=request("tools/list"))
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, -32602)
    assert "mcp-session-id" not in refused.headers
    begun = http.post("/mcp", json=request("initialize", HELLO))
    name = begun.headers["mcp-session-id"]
    assert re.fullmatch("[0-9a-f]{32}", name)
    http.headers["mcp-session-id"] = name
    notice = http.post("/mcp", json=request("notifications/initialized", request_id=None))
    assert (notice.status_code, notice.content) == (202, b"")
    answers = [
        notice,
        *(http.post("/mcp", json=sent) for sent in (request("ping"), request("no/such"), calling("steps", token=1))),
    ]
    answers += [http.post("/mcp", content=sent) for sent in (b"{", b"[]", b'{"jsonrpc":"1.0","id":1,"method":"ping"}')]
    assert [answer.headers["mcp-session-id"] for answer in answers] == [name] * 7
    http.headers["mcp-session-id"] = "0" * 32
    unknown = http.post("/mcp", json=request("ping"))
    assert (unknown.status_code, unknown.json()["error"]["code"]) == (404, -32001)


def test_what_a_generator_yields_is_progress_and_its_list_the_one_answer(session: httpx.Client) -> None:
    answer = session.post("/mcp", json=calling("count", 1, token="t", upto=3))
    assert answer.headers["content-type"] == "text/event-stream"
    *steps, last = messages(answer.text)
    assert [step["params"]["message"] for step in steps] == ["0", "1", "2"]
    assert (last["id"], text_of(last["result"])) == (1, "[0,1,2]")
    plain = session.post("/mcp", json=calling("count", 2, upto=3))
    assert plain.headers["content-type"] == "application/json"
    assert text_of(plain.json()["result"]) == "[0,1,2]"


def test_a_get_opens_a_stream_that_delete_ends_with_the_calls_of_the_session(session: httpx.Client) -> None:
    session.post("/mcp", json=calling("noted"))
    headers = {"accept": "text/event-stream"}
    with (
        session.stream("GET", "/mcp", headers=headers) as stream,
        session.stream("POST", "/mcp", json=calling("hold", token=1)) as call,
    ):
        told = stream.headers
        assert (told["cache-control"], told["x-accel-buffering"]) == ("no-cache", "no")
        lines = stream.iter_lines()
        assert next(lines) == ": keep-alive"
        speaking = call.iter_lines()
        while "progressToken" not in next(speaking):
            pass
        ended = session.delete("/mcp")
        assert (ended.status_code, ended.content) == (204, b"")
        assert not [line for line in lines if "jsonrpc" in line]
    assert session.post("/mcp", json=request("ping")).status_code == 404
    answer = session.post("/rpc", json=calling("noted"))
    assert "cancelled hold" in text_of(answer.json()["result"])


def test_a_stream_without_a_session_is_refused(http: httpx.Client) -> None:
    refused = http.get("/mcp", headers={"accept": "text/event-stream"})
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, -32602)


def test_events_have_ids_of_their_stream_and_are_replayed_behind_the_one_that_is_given(session: httpx.Client) -> None:
    first, second = (events(session.post("/mcp", json=calling("count", token=1, upto=3)).text) for _ in range(2))
    ids = [event["id"] for event in first]
    assert ids == [f"{ids[0].partition('-')[0]}-{number}" for number in range(5)]
    assert {event["id"].partition("-")[0] for event in second}.isdisjoint({ids[0].partition("-")[0]})
    again = session.get("/mcp", headers={"accept": "text/event-stream", "last-event-id": ids[2]})
    assert events(again.text) == first[3:]
    with session.stream(
        "GET", "/mcp", headers={"accept": "text/event-stream", "last-event-id": "deadbeef-2"}
    ) as nothing:
        # The stream stays open for what is to come, and no call of the session is replayed on it.
        assert nothing.status_code == 200
        session.post("/mcp", json=calling("grow", name=next(names)))
        heard = []
        for line in nothing.iter_lines():
            heard += [line] if "jsonrpc" in line else []
            if "notifications/tools/list_changed" in line:
                break
        assert not [line for line in heard if '"result"' in line or "notifications/progress" in line]


def test_each_message_goes_to_one_stream_of_a_session(session: httpx.Client) -> None:
    headers = {"accept": "text/event-stream"}
    with session.stream("GET", "/mcp", headers=headers) as old, session.stream("GET", "/mcp", headers=headers) as new:
        session.post("/mcp", json=calling("grow", name=next(names)))
        heard = next(line for line in new.iter_lines() if "jsonrpc" in line)
        assert json.loads(heard.removeprefix("data: "))["method"] == "notifications/tools/list_changed"
        session.delete("/mcp")
        assert not [line for line in old.iter_lines() if "jsonrpc" in line]


def test_a_revision_that_we_do_not_speak_is_refused_and_none_is_that_of_the_session(session: httpx.Client) -> None:
    refused = session.post("/mcp", json=request("ping"), headers={"mcp-protocol-version": "1999-01-01"})
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, -32022)
    assert "2025-03-26" in refused.json()["error"]["data"]["supported"]
    del session.headers["mcp-protocol-version"]
    assert session.post("/mcp", json=request("ping")).json()["result"] == {}


@pytest.mark.parametrize(
    ("tool", "told"), [("upload", "reads a stream"), ("raw", "text only"), ("only_streams", "over /ws")]
)
def test_a_tool_that_needs_a_stream_names_the_door_that_has_them(session: httpx.Client, tool: str, told: str) -> None:
    result = session.post("/mcp", json=calling(tool)).json()["result"]
    assert result["isError"]
    assert told in text_of(result)
    assert "/ws" in text_of(result)


def test_text_of_a_stream_is_carried_as_progress(session: httpx.Client) -> None:
    *steps, last = messages(session.post("/mcp", json=calling("say", token=1)).text)
    assert [step["params"]["message"] for step in steps] == ["one", '{"two":2}']
    assert text_of(last["result"]) == "said"


def test_tools_are_listed_by_transport(http: httpx.Client, port: int) -> None:
    over_http = {tool["name"] for tool in http.post("/rpc", json=request("tools/list")).json()["result"]["tools"]}
    with socket_to(port) as socket:
        shake_hands(socket)
        listed = {tool["name"] for tool in ask(socket, request("tools/list"))["result"]["tools"]}
    assert listed - over_http == {"only_streams"}
    assert over_http < listed


REPEATED = b'{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"count","arguments":{"upto":1,"upto":2}%s}}'
ENVELOPE = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "t", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}


def test_a_repeated_argument_is_refused_at_every_door(session: httpx.Client, port: int) -> None:
    modern = REPEATED % b',"_meta":%b' % json.dumps(ENVELOPE).encode()
    headers = {"mcp-protocol-version": "2026-07-28", "mcp-method": "tools/call", "mcp-name": "count"}
    legacy = REPEATED % b""
    posts = [
        session.post("/mcp", content=legacy),
        session.post("/mcp", content=modern, headers={**headers, "mcp-session-id": ""}),
        session.post("/rpc", content=legacy),
    ]
    answers = [post.json() for post in posts] + [messages(session.post("/sse", content=legacy).text)[0]]
    with session.stream("GET", "/sse", headers={"accept": "text/event-stream"}) as stream:
        lines = (line.removeprefix("data: ") for line in stream.iter_lines() if line.startswith("data: "))
        place = next(lines)
        session.post(place, json=request("initialize", {**HELLO, "protocolVersion": "2024-11-05"}))
        next(lines)
        posted = session.post(place, content=legacy)
        answers.append(posted.json() if posted.status_code == 400 else json.loads(next(lines)))
    with socket_to(port) as socket:
        for body in (legacy, modern):
            shake_hands(socket)
            socket.send(body.decode())
            answers.append(hear(socket))
    assert [(answer["id"], answer["error"]["code"]) for answer in answers] == [(7, -32600)] * 7


# -- the deprecated doors --------------------------------------------------------------------------------------------------


def test_rpc_takes_one_message_or_several(http: httpx.Client) -> None:
    one = http.post("/rpc", json=calling("steps"))
    assert (one.status_code, text_of(one.json()["result"])) == (200, "done")
    several = http.post(
        "/rpc", json=[request("ping"), request("no/such", request_id=2), request("notifications/x", request_id=None)]
    )
    assert [answer["id"] for answer in several.json()] == [1, 2]
    assert several.json()[1]["error"]["code"] == -32601
    for notices in (request("notifications/x", request_id=None), [request("notifications/x", request_id=None)]):
        silent = http.post("/rpc", json=notices)
        assert (silent.status_code, silent.content) == (204, b"")
    garbage = http.post("/rpc", content=b"{")
    assert (garbage.status_code, garbage.json()["error"]["code"]) == (400, -32700)
    for answer in (one, several, silent, garbage):
        assert answer.headers["deprecation"]
        assert answer.headers["link"] == '</mcp>; rel="successor-version"'


def test_a_post_to_sse_is_answered_by_events_of_which_the_last_is_done(http: httpx.Client) -> None:
    answer = http.post("/sse", json=[calling("steps", 1, token="t"), request("ping", request_id=2)])
    told = events(answer.text)
    assert [event["id"] for event in told] == ["1", "2", "3", "4"]
    assert [event["event"] for event in told] == ["message"] * 3 + ["done"]
    assert told[-1]["data"] == "{}"
    assert {message.get("id") for message in messages(answer.text)[:3]} == {1, 2, None}
    garbage = events(http.post("/sse", content=b"{").text)
    assert [event["event"] for event in garbage] == ["error", "done"]
    assert json.loads(garbage[0]["data"])["error"]["code"] == -32700


def test_get_sse_and_messages_are_the_first_transport(http: httpx.Client) -> None:
    with http.stream("GET", "/sse", headers={"accept": "text/event-stream"}) as stream:
        lines = (line.removeprefix("data: ") for line in stream.iter_lines() if line.startswith("data: "))
        place = next(lines)
        assert place.startswith("/messages?sessionId=")
        for sent in (request("initialize", {**HELLO, "protocolVersion": "2024-11-05"}), calling("steps", 2)):
            assert http.post(place, json=sent).status_code == 202
        answers = [json.loads(next(lines)) for _ in range(2)]
    assert answers[0]["result"]["protocolVersion"] == "2024-11-05"
    assert text_of(answers[1]["result"]) == "done"
    wait_until(lambda: http.post(place, json=request("ping")).status_code == 404)


def test_health_and_readiness_are_reported_and_never_cached(http: httpx.Client) -> None:
    for path, status in (("/health", "ok"), ("/ready", "ready")):
        answer = http.get(path)
        assert (answer.status_code, answer.json()["status"]) == (200, status)
        assert answer.headers["cache-control"] == "no-store"


# -- /ws -------------------------------------------------------------------------------------------------------------------


@contextmanager
def socket_to(port: int) -> Iterator[ClientConnection]:
    with open_socket(port) as socket:
        yield socket


@pytest.fixture
def socket(port: int) -> Iterator[ClientConnection]:
    with socket_to(port) as opened:
        yield opened


def say(socket: ClientConnection, **message: Any) -> None:
    socket.send(json.dumps(message))


def start(socket: ClientConnection, tool: str, stream_id: str = GUID, **meta: Any) -> None:
    say(socket, type="start", id=stream_id, timestamp=NOW, meta={"method": tool, **meta})


def send(socket: ClientConnection, stream_id: str, index: int, payload: bytes) -> None:
    socket.send(UUID(stream_id).bytes_le + index.to_bytes(8, "little") + payload)


def done(socket: ClientConnection, stream_id: str = GUID, **summary: Any) -> None:
    say(socket, type="done", id=stream_id, timestamp=NOW, summary=summary)


def hear(socket: ClientConnection) -> Any:
    message = socket.recv(10)
    return json.loads(message) if isinstance(message, str) else message


def until(socket: ClientConnection, kind: str, stream_id: str = GUID) -> Any:
    while True:
        heard = hear(socket)
        if isinstance(heard, dict) and (heard.get("type"), heard.get("id")) == (kind, stream_id):
            assert heard["timestamp"]
            return heard


def ask(socket: ClientConnection, message: dict[str, Any]) -> Any:
    say(socket, **message)
    while True:
        heard = hear(socket)
        if isinstance(heard, dict) and heard.get("id") == message["id"] and "method" not in heard:
            return heard


def shake_hands(socket: ClientConnection) -> None:
    assert "result" in ask(socket, request("initialize", HELLO, 0))
    say(socket, **request("notifications/initialized", request_id=None))
    ask(socket, request("ping", request_id="ready"))


def test_a_plain_request_to_the_websocket_endpoint_is_rejected(http: httpx.Client) -> None:
    assert http.get("/ws").status_code == 426


def test_the_frame_of_the_documents_is_the_fourth_chunk_of_its_stream(socket: ClientConnection) -> None:
    start(socket, "upload", binary=True)
    for index in range(3):
        send(socket, GUID, index, b"x")
    socket.send(bytes.fromhex(DOCUMENTED))
    done(socket, said="all")
    result = until(socket, "done")["summary"]
    assert result["structuredContent"] == {"size": 5, "summary": {"said": "all"}}


def test_a_tool_that_does_not_stream_is_rejected_as_an_unknown_method(socket: ClientConnection) -> None:
    start(socket, "nope")
    error = until(socket, "error")["error"]
    assert (error["code"], error["data"]) == (-32601, {"method": "nope"})
    start(socket, "touch")
    error = until(socket, "error")["error"]
    assert error["code"] == -32601
    assert error["message"].startswith("Tool does not support streaming")


def test_a_request_in_the_name_of_a_tool_begins_a_stream(socket: ClientConnection) -> None:
    say(socket, **request("echo", {}, 5))
    socket.send(bytes(16) + (0).to_bytes(8, "little") + b"hi")
    say(socket, type="done", id="5")
    begun, chunk, ended, answer = (hear(socket) for _ in range(4))
    assert (begun["type"], begun["meta"]["binary"], begun["meta"]["correlationId"]) == ("start", True, 5)
    assert chunk == UUID(begun["id"]).bytes_le + bytes(8) + b"hi"
    assert (ended["type"], ended["id"]) == ("done", begun["id"])
    assert text_of(answer["result"]) == "echoed"


@pytest.mark.parametrize("binary", [True, False])
def test_both_directions_interleave_and_end_with_a_done_each(socket: ClientConnection, binary: bool) -> None:
    start(socket, "echo", binary=binary, name="a", mime="x/y")
    came = []
    for index in range(3):
        if binary:
            send(socket, GUID, index, b"%d" % index)
        else:
            say(socket, type="chunk", id=GUID, timestamp=NOW, index=index, data={"n": index})
        if index == 0:
            begun = hear(socket)
        heard = hear(socket)
        came.append(heard[24:] if binary else (heard["index"], heard["data"]))
    assert begun["type"] == "start"
    assert came == ([b"0", b"1", b"2"] if binary else [(index, {"n": index}) for index in range(3)])
    done(socket)
    assert [(heard["type"], heard["id"]) for heard in (hear(socket), hear(socket))] == [
        ("done", begun["id"]),
        ("done", GUID),
    ]


FAULTS: dict[str, tuple[bool, list[Any], str]] = {
    "text for binary": (True, ["text"], "Chunk was expected to be binary, got text"),
    "binary for text": (False, ["bytes"], "Chunk was expected to be text, got binary"),
    "binary after done": (True, ["done", "bytes"], "Binary data sent after done"),
    "text after done": (False, ["done", "text"], "Text chunk sent after done"),
    "a gap": (True, [1], "Received chunk 1, expected 0"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_of_the_sender_ends_its_stream_and_no_other(socket: ClientConnection, name: str) -> None:
    binary, steps, message = FAULTS[name]
    other = str(uuid4())
    start(socket, "keep", binary=binary)
    start(socket, "echo", other, binary=True)
    for step in steps:
        if step == "text":
            say(socket, type="chunk", id=GUID, timestamp=NOW, index=0, data=1)
        elif step == "done":
            done(socket)
        else:
            send(socket, GUID, 0 if step == "bytes" else step, b"x")
    error = until(socket, "error")["error"]
    assert (error["code"], error["message"]) == (-32000, message)
    done(socket, other)
    until(socket, "done", other)


def test_fragments_are_put_together_and_a_message_has_a_bound(socket: ClientConnection) -> None:
    start(socket, "upload", binary=True)
    socket.send(iter([UUID(GUID).bytes_le + bytes(8), b"a" * 1000, b"b" * 1000]))
    done(socket)
    assert until(socket, "done")["summary"]["structuredContent"]["size"] == 2000
    with suppress(ConnectionClosed):
        socket.send(bytes(5 * 1024 * 1024))
        socket.recv(10)
    assert socket.close_code == 1009


def test_a_failure_is_an_error_that_keeps_its_text_here_and_hooks_run_around_streams(socket: ClientConnection) -> None:
    shake_hands(socket)
    ask(socket, calling("noted"))
    start(socket, "broken")
    error = until(socket, "error")["error"]
    assert error["code"] == -32000
    assert "secret" not in json.dumps(error)
    start(socket, "upload", binary=True)
    done(socket)
    until(socket, "done")
    noted = ask(socket, calling("noted", 2))["result"]["structuredContent"]["result"]
    assert noted == ["before broken", "error broken", "before upload", "after upload"]


def test_a_socket_hears_of_changes_by_their_right_names_and_of_what_it_subscribed_to(socket: ClientConnection) -> None:
    shake_hands(socket)
    say(socket, **calling("grow", 1, name=next(names)))
    assert {heard.get("method", heard.get("id")) for heard in (hear(socket), hear(socket))} == {
        "notifications/tools/list_changed",
        1,
    }
    assert hear_all(socket, calling("touch", 2, uri="notes://a")) == []
    ask(socket, request("resources/subscribe", {"uri": "notes://b"}, 3))
    heard = hear_all(socket, calling("touch", 4, uri="notes://b"))
    assert [(one["method"], one["params"]) for one in heard] == [
        ("notifications/resources/updated", {"uri": "notes://b"})
    ]


def hear_all(socket: ClientConnection, message: dict[str, Any]) -> list[Any]:
    """What is heard beside the answers to a message and to a ping that follows it."""
    say(socket, **message)
    answered, others = False, []
    say(socket, **request("ping", request_id="last"))
    pinged = False
    while not (answered and pinged):
        heard = hear(socket)
        if "method" in heard:
            others.append(heard)
        answered, pinged = answered or heard.get("id") == message["id"], pinged or heard.get("id") == "last"
    return others
