"""A conversation on a line, in both eras, against servers in processes of their own: on stdio, and over /ws by both doors."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

import pytest

from tests.server_processes import (
    MODERN,
    PEGBOARD,
    PLAIN_PEGBOARD,
    ROUGH,
    MountedWsChild,
    Speaker,
    StdioChild,
    WsChild,
    modern,
)

pytestmark = pytest.mark.process

DOORS = {
    "stdio": lambda: StdioChild(*PEGBOARD, "run", ROUGH, "--stdio"),
    "stdio on asyncio": lambda: StdioChild(*PLAIN_PEGBOARD, "run", ROUGH, "--stdio"),
    "ws": WsChild,
    "ws on asyncio": lambda: WsChild(command=PLAIN_PEGBOARD),
    "ws behind uvicorn": MountedWsChild,
}


@pytest.fixture(scope="module", params=DOORS)
def shared(request: pytest.FixtureRequest) -> Iterator[Speaker]:
    """One server for all tests that leave it as they found it."""
    with DOORS[request.param]() as child:
        yield child


# -- the modern era --------------------------------------------------------------------------------------------------


@pytest.mark.requirement("modern/base/base-supported", "modern/versioning/discover")
def test_a_modern_client_discovers_lists_and_calls_without_a_handshake(shared: Speaker) -> None:
    found = shared.request("server/discover", modern())["result"]
    assert found["resultType"] == "complete"
    assert MODERN in found["supportedVersions"]
    assert found["_meta"]["io.modelcontextprotocol/serverInfo"]["name"] == "rough"
    listed = shared.request("tools/list", modern())["result"]
    assert "add" in {tool["name"] for tool in listed["tools"]}
    called = shared.request("tools/call", modern({"name": "add", "arguments": {"a": 1, "b": 2}}))["result"]
    assert called["structuredContent"] == 3
    assert not called.get("isError", False)


def test_a_modern_client_has_no_ping(shared: Speaker) -> None:
    assert shared.request("ping", modern())["error"]["code"] == -32601


@pytest.mark.requirement("modern/versioning/unsupported")
def test_a_revision_we_do_not_speak_is_refused_with_those_we_do(shared: Speaker) -> None:
    params = {"_meta": {**modern()["_meta"], "io.modelcontextprotocol/protocolVersion": "2031-01-01"}}
    error = shared.request("tools/list", params)["error"]
    assert error["code"] == -32022
    assert MODERN in error["data"]["supported"]


def test_progress_comes_before_the_answer_and_under_its_token(shared: Speaker) -> None:
    before = len(shared.messages)
    request_id = shared.start_call("steps", upto=3, token="t-1")
    shared.answer(request_id)
    *notices, answer = shared.messages[before:]
    assert [notice["params"]["progress"] for notice in notices] == [1, 2, 3]
    assert {notice["params"]["progressToken"] for notice in notices} == {"t-1"}
    assert answer["id"] == request_id


def test_progress_is_not_sent_to_a_caller_that_did_not_request_it(shared: Speaker) -> None:
    before = len(shared.messages)
    shared.answer(shared.start_call("steps", upto=3))
    assert len(shared.messages) == before + 1


@pytest.mark.requirement("modern/base/result-id", "modern/stdio/lines")
def test_request_ids_are_returned_unchanged(shared: Speaker) -> None:
    for request_id in ("a string", "7", 7, 0, -3, "", 2**60, 'quoted "id"\n', "日本"):
        answer = shared.answer(shared.start_call("add", a=1, b=1, as_id=request_id))
        assert answer["id"] == request_id
        assert type(answer["id"]) is type(request_id)


# -- the legacy era --------------------------------------------------------------------------------------------------


@pytest.mark.requirement("legacy/base/base-supported", "legacy/lifecycle/version-agreed", "legacy/ping/answered")
@pytest.mark.parametrize("version", ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"])
def test_a_legacy_client_shakes_hands_lists_calls_and_pings(shared: Speaker, version: str) -> None:
    answer = shared.initialize(version)["result"]
    assert answer["protocolVersion"] == version
    assert answer["serverInfo"]["name"] == "rough"
    assert answer["instructions"] == "Handle with care."
    assert shared.request("ping")["result"] == {}
    assert shared.request("tools/list")["result"]["tools"]
    called = shared.request("tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}})["result"]
    assert called["content"] == [{"type": "text", "text": "3"}]
    assert "resultType" not in called
    assert ("structuredContent" in called) == (version >= "2025-06-18")


@pytest.mark.requirement("legacy/lifecycle/initialize-first")
def test_a_legacy_request_before_the_handshake_is_rejected_and_asks_for_initialize() -> None:
    with StdioChild() as child:
        for method, params in (("tools/list", None), ("tools/call", {"name": "add"}), ("server/discover", None)):
            error = child.request(method, params)["error"]
            assert error["code"] == -32600
            assert "Send initialize first" in error["message"]
            assert MODERN in error["message"]
        assert child.request("ping")["result"] == {}
        child.initialize()
        assert child.request("tools/list")["result"]["tools"]


def test_both_eras_share_one_pipe(shared: Speaker) -> None:
    shared.initialize()
    assert shared.call("add", a=1, b=2) == "3"
    assert shared.request("ping")["result"] == {}
    assert "resultType" not in shared.request("tools/list")["result"]
    assert shared.request("tools/list", modern())["result"]["resultType"] == "complete"


@pytest.mark.requirement("legacy/lifecycle/version-offered")
def test_an_unknown_revision_is_answered_with_our_newest_legacy_one(shared: Speaker) -> None:
    assert shared.initialize("2031-01-01")["result"]["protocolVersion"] == "2025-11-25"


def test_batches_are_served_where_the_revision_has_them(shared: Speaker) -> None:
    batch = [{"jsonrpc": "2.0", "id": f"b{number}", "method": "ping"} for number in range(3)]
    line = json.dumps([*batch, {"jsonrpc": "2.0", "method": "notifications/initialized"}, 5]).encode() + b"\n"
    shared.initialize("2025-03-26")
    shared.write(line)
    for one in batch:
        assert shared.answer(one["id"])["result"] == {}
    assert shared.next()["error"]["code"] == -32600
    shared.initialize("2025-11-25")
    shared.write(line)
    assert shared.next()["error"]["code"] == -32600


def test_a_batch_in_a_batch_is_refused_and_the_messages_beside_it_are_served(shared: Speaker) -> None:
    shared.initialize("2025-03-26")
    ping = {"jsonrpc": "2.0", "id": "beside", "method": "ping"}
    shared.write(json.dumps([[{"jsonrpc": "2.0", "id": "inside", "method": "ping"}], ping, [[]]]).encode() + b"\n")
    refused = shared.next(), shared.next()
    assert [one["error"]["message"] for one in refused] == 2 * ["A batch cannot contain another batch"]
    assert shared.next() == {"jsonrpc": "2.0", "id": "beside", "result": {}}


# -- many at once ----------------------------------------------------------------------------------------------------


def test_sixty_four_calls_are_in_flight_and_answered_in_any_order(shared: Speaker) -> None:
    ids = [shared.start_call("hold" if n % 2 else "hold_thread", key=f"many-{n}") for n in range(64) if n % 2 or n < 40]
    assert shared.call("add", a=2, b=2) == "4"
    order = list(zip(ids, [n for n in range(64) if n % 2 or n < 40], strict=True))
    random.Random(3).shuffle(order)
    for request_id, n in order:
        shared.call("release", key=f"many-{n}")
        assert shared.answer(request_id)["result"]["content"][0]["text"].startswith(f"held many-{n}")


def test_an_id_in_flight_is_refused_and_its_call_goes_on(shared: Speaker) -> None:
    shared.start_call("hold", key="twice", as_id="same")
    shared.call("begun", key="twice")
    shared.start_call("add", a=1, b=1, as_id="same")
    error = shared.next()
    assert error["id"] == "same"
    assert error["error"]["code"] == -32600
    assert "in flight" in error["error"]["message"]
    shared.messages.clear()
    shared.call("release", key="twice")
    assert shared.answer("same")["result"]["content"][0]["text"] == "held twice"
    shared.messages.clear()
    assert shared.answer(shared.start_call("add", a=1, b=1, as_id="same"))["result"]["structuredContent"] == 2
    shared.messages.clear()


@pytest.mark.requirement("modern/stdio/cancelled-silent")
@pytest.mark.parametrize("tool", ["hold", "hold_thread"])
def test_a_cancelled_call_is_not_answered(shared: Speaker, tool: str) -> None:
    request_id = shared.start_call(tool, key=f"cancel-{tool}")
    shared.call("begun", key=f"cancel-{tool}")
    shared.notify("notifications/cancelled", {"requestId": request_id, "reason": "enough"})
    before = len(shared.messages)
    shared.call("release", key=f"cancel-{tool}")
    if tool == "hold_thread":
        shared.call("ended", key=f"cancel-{tool}")
    # Its id is free again, which says that the call is over.
    assert shared.answer(shared.start_call("add", a=1, b=1, as_id="after"))["result"]["structuredContent"] == 2
    assert request_id not in {message.get("id") for message in shared.messages[before:]}
    shared.messages.clear()


@pytest.mark.requirement("modern/stdio/cancelled-silent", "modern/progress/stops")
def test_a_thread_that_goes_on_after_its_call_was_cancelled_is_not_heard(shared: Speaker) -> None:
    request_id = shared.start_call("chatter", key="chatter", token="chat")
    shared.call("begun", key="chatter")
    shared.notify("notifications/cancelled", {"requestId": request_id})
    assert shared.call("ended", key="chatter") == "true"
    assert shared.call("add", a=1, b=1) == "2"
    assert "chat" not in {message.get("params", {}).get("progressToken") for message in shared.messages}


@pytest.mark.requirement("modern/cancellation/late")
@pytest.mark.parametrize("params", [{}, {"requestId": None}, {"requestId": 424242}, {"requestId": [1]}])
def test_a_cancellation_of_nothing_is_ignored(shared: Speaker, params: dict[str, Any]) -> None:
    shared.notify("notifications/cancelled", params)
    before = len(shared.messages)
    assert shared.call("add", a=1, b=1) == "2"
    assert len(shared.messages) == before + 1


# -- bad messages ---------------------------------------------------------------------------------------------------

BAD = {
    "junk": (b"hello there", -32700),
    "half an object": (b'{"jsonrpc":"2.0","id":1', -32700),
    "NaN": b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":NaN}}',
    "infinity": b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":-Infinity}}',
    "a lone surrogate": b'{"jsonrpc":"2.0","id":1,"method":"\\ud800"}',
    "too deep": b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":' + b"[" * 5000 + b"]" * 5000 + b"}}",
    "a number too long": b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":' + b"9" * 5000 + b"}}",
    "id null": (b'{"jsonrpc":"2.0","id":null,"method":"ping"}', -32600),
    "id true": (b'{"jsonrpc":"2.0","id":true,"method":"ping"}', -32600),
    "id 1.5": (b'{"jsonrpc":"2.0","id":1.5,"method":"ping"}', -32600),
    "id a list": (b'{"jsonrpc":"2.0","id":[1],"method":"ping"}', -32600),
    "no version": (b'{"id":1,"method":"ping"}', -32600),
    "another version": (b'{"jsonrpc":"1.0","id":1,"method":"ping"}', -32600),
    "no method": (b'{"jsonrpc":"2.0","id":1}', -32600),
    "a method that is a number": (b'{"jsonrpc":"2.0","id":1,"method":5}', -32600),
    "params that are a list": (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":[1]}', -32600),
    "a string": (b'"ping"', -32600),
    "a number": (b"17", -32600),
    "an array": (b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]', -32600),
    "a member twice": (b'{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}', -32600),
    "an argument twice": (
        b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"add","arguments":{"a":1,"b":1,"a":2}}}',
        -32600,
    ),
    "a member twice in a notification": (
        b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1,"requestId":2}}',
        -32600,
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_message_is_answered_and_the_next_is_served(shared: Speaker, name: str) -> None:
    line, code = BAD[name] if isinstance(BAD[name], tuple) else (BAD[name], -32700)
    shared.initialize("2025-11-25")
    shared.write(line + b"\n")
    answer = shared.next()
    assert answer["error"]["code"] == code
    assert answer["error"]["message"]
    assert answer.get("id", 1) in (1, 2)
    assert shared.call("add", a=1, b=1) == "2"
    shared.messages.clear()


@pytest.mark.parametrize("line", [b"", b"   ", b"\r", b"\t"])
def test_empty_lines_and_carriage_returns_do_no_harm(shared: Speaker, line: bytes) -> None:
    before = len(shared.messages)
    shared.write(line + b"\n" + json.dumps({"jsonrpc": "2.0", "id": "crlf", "method": "ping"}).encode() + b"\r\n")
    assert shared.answer("crlf")["result"] == {}
    assert len(shared.messages) == before + 1
    shared.messages.clear()


def test_lines_may_come_in_pieces_and_together(shared: Speaker) -> None:
    lines = b"".join(
        json.dumps({"jsonrpc": "2.0", "id": f"p{number}", "method": "ping", "params": {"text": "ü" * number}}).encode()
        + b"\n"
        for number in range(40)
    )
    for start in range(0, len(lines), 37):
        shared.write(lines[start : start + 37])
    for number in range(40):
        assert shared.answer(f"p{number}")["result"] == {}
