"""The MCP endpoint over HTTP through a door without connections: both eras, good input and bad."""

from __future__ import annotations

import asyncio
import base64
import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from pegboard.call import Caller
from pegboard.limits import Limits
from pegboard.protocol.revisions import LEGACY, MODERN, SUPPORTED
from pegboard.server.http.guard import Guard
from pegboard.server.http_types import Headers
from tests.server.fake_sink import BOTH, PREFIX, Door, Response, Visit, envelope, mirror, notification, request
from tests.stalls import no_stalls  # noqa: F401 — it is on for every test here

ALL_LEGACY = pytest.mark.parametrize("version", sorted(LEGACY))


class Ticking:
    """A loop whose time and timers move when told; all else is the running loop's."""

    def __init__(self) -> None:
        self.now = 0.0
        self.timers: list[tuple[float, Callable[..., Any], tuple[Any, ...]]] = []

    def time(self) -> float:
        return self.now

    def call_later(self, delay: float, callback: Callable[..., Any], *args: Any) -> None:
        self.timers.append((self.now + delay, callback, args))

    def pass_time(self, seconds: float) -> None:
        end = self.now + seconds
        while due := [timer for timer in self.timers if timer[0] <= end]:
            first = min(due, key=lambda timer: timer[0])
            self.timers.remove(first)
            self.now = first[0]
            first[1](*first[2])
        self.now = end


def values(headers: Headers, name: bytes) -> list[bytes]:
    return [value for key, value in headers if key == name]


async def refused(door: Door, visit: Visit, status: int, code: int, request_id: Any = 1) -> Response:
    """The refusal as it must be: status, code, the id if there is one, a text; and the next good request is served."""
    response = await visit.response()
    assert (response.status, response.code) == (status, code), response.body
    assert response.content_type == "application/json"
    if request_id is None:
        assert "id" not in response.json
    else:
        assert response.json["id"] == request_id
        assert type(response.json["id"]) is type(request_id)
    assert len(response.error) > 10
    assert not door.endpoint.calls or all(door.endpoint.calls.values())
    assert await door.is_alive()
    return response


# -- the walk, modern --------------------------------------------------------------------------------------------------


async def test_a_modern_request_needs_no_session_and_gets_none() -> None:
    response = await Door().modern("tools/list").response()
    assert (response.status, response.content_type) == (200, "application/json")
    assert response.json["id"] == 1
    assert response.json["result"]["resultType"] == "complete"
    assert "mcp-session-id" not in response.headers


async def test_a_session_header_means_nothing_to_a_modern_request() -> None:
    response = await Door().modern("tools/list", headers={"mcp-session-id": "f" * 32}).response()
    assert response.status == 200
    assert "mcp-session-id" not in response.headers


async def test_who_calls_is_what_the_envelope_says() -> None:
    door = Door()
    meta = {PREFIX + "clientCapabilities": {"sampling": {}}, PREFIX + "logLevel": "info", "progressToken": 7}
    await door.call("echo", meta=meta).response()
    await door.call("echo", meta=meta | {"progressToken": "8"}).response()
    first, second = door.probe.calls
    assert first.caller == Caller(
        version=MODERN,
        transport="http",
        client={"name": "t", "version": "1"},
        capabilities={"sampling": {}},
        log_level="info",
    )
    assert (first.token, second.token) == (7, "8")


@pytest.mark.requirement("modern/base/stateless")
async def test_client_info_of_one_client_is_not_attributed_to_another() -> None:
    door = Door()
    for number in range(3):
        info = {PREFIX + "clientInfo": {"name": f"client {number % 2}", "version": "1"}}
        await door.call("echo", meta=info).response()
    assert [call.caller.client["name"] for call in door.probe.calls] == ["client 0", "client 1", "client 0"]


@pytest.mark.requirement("modern/base/result-id")
async def test_ids_are_echoed_as_they_came() -> None:
    door = Door()
    for request_id in (0, -1, 10**30, "", "1", "ü"):
        assert (await door.modern(request_id=request_id).response()).json["id"] == request_id


@pytest.mark.requirement("modern/http/one-endpoint")
@pytest.mark.parametrize("path", ["/mcp", "/mcp/"])
async def test_the_endpoint_answers_with_and_without_a_slash(path: str) -> None:
    assert (await Door().modern(path=path).response()).status == 200


async def test_a_prefix_moves_every_path() -> None:
    door = Door(prefix="/tools")
    assert (await door.modern(path="/tools/mcp").response()).status == 200
    assert (await door.send(path="/tools/health", method="GET").response()).status == 200
    missing = await door.send(path="/mcp").response()
    assert missing.status == 404
    assert "/tools/mcp" in missing.error


async def test_health_and_readiness_are_reported() -> None:
    door = Door()
    for path, status in (("/health", "ok"), ("/ready", "ready")):
        response = await door.send(path=path, method="GET").response()
        assert (response.status, response.json["status"]) == (200, status)
        assert (await door.send(path=path, method="POST").response()).status == 405
    await door.endpoint.drain(0, asyncio.Event())
    assert (await door.send(path="/ready", method="GET").response()).status == 503
    assert (await door.send(path="/health", method="GET").response()).status == 200


# -- bad input, either era ---------------------------------------------------------------------------------------------

BODIES: list[tuple[str, bytes, int, Any]] = [
    ("malformed JSON", b'{"jsonrpc":"2.0",', -32700, None),
    ("nothing", b"", -32700, None),
    ("invalid UTF-8", b'{"jsonrpc":"2.0","id":1,"method":"\xff"}', -32700, None),
    ("UTF-16", request("tools/list").decode().encode("utf-16"), -32700, None),
    ("a lone surrogate", b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"\\ud800"}}', -32700, None),
    ("NaN", b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"a":NaN}}', -32700, None),
    (
        "a deep body",
        b'{"jsonrpc":"2.0","id":1,"method":"x","params":{"a":' + b"[" * 200 + b"]" * 200 + b"}}",
        -32700,
        None,
    ),
    (
        "a number of 500 digits",
        b'{"jsonrpc":"2.0","id":1,"method":"x","params":{"a":' + b"1" * 500 + b"}}",
        -32700,
        None,
    ),
    ("a string", b'"tools/list"', -32600, None),
    ("a broken array", b"[1,", -32700, None),
    ("no method", b'{"jsonrpc":"2.0","id":1}', -32600, 1),
    ("a method of the wrong type", b'{"jsonrpc":"2.0","id":1,"method":{}}', -32600, 1),
    ("params of the wrong type", b'{"jsonrpc":"2.0","id":"a","method":"tools/list","params":[]}', -32600, "a"),
    ("a name of the wrong type", b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":5}}', -32602, 1),
    ("two ids", b'{"jsonrpc":"2.0","id":1,"id":1,"method":"tools/list"}', -32600, 1),
    ("two names", b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","name":"b"}}', -32600, 1),
    *(
        (f"the id {text}", b'{"jsonrpc":"2.0","id":%b,"method":"tools/list"}' % text.encode(), -32600, None)
        for text in ("null", "true", "1.5", "{}", "[]")
    ),
]


@pytest.mark.requirement(
    "modern/base/request-id",
    "legacy/base/request-id",
    "modern/base/error-id",
    "legacy/base/error-id",
    "modern/http/utf-8",
    "legacy/http/utf-8",
)
@pytest.mark.parametrize("era", ["modern", "legacy", "neither"])
@pytest.mark.parametrize(("body", "code", "request_id"), [row[1:] for row in BODIES], ids=[row[0] for row in BODIES])
async def test_a_bad_body_is_refused_alike_in_both_eras(era: str, body: bytes, code: int, request_id: Any) -> None:
    door = Door()
    headers: dict[str, str | None] = {}
    if era == "modern":
        headers = {"mcp-protocol-version": MODERN, "mcp-method": "tools/list"}
    elif era == "legacy":
        headers = dict((await door.open_session()).headers)
    await refused(door, door.send(body, headers), 400, code, request_id)


@pytest.mark.parametrize(
    "content_type",
    [None, "", "text/plain", "application/json-rpc", "text/json", "application/json; charset=utf-16", "application/x"],
)
async def test_a_body_that_is_not_called_json_is_not_read(content_type: str | None) -> None:
    door = Door()
    visit = door.modern(headers={"content-type": content_type})
    response = await refused(door, visit, 415, -32600, None)
    assert "Content-Type" in response.error


@pytest.mark.parametrize(
    "content_type",
    [
        "application/json",
        "Application/JSON",
        "application/json;charset=UTF-8",
        'application/json; charset="utf-8"; x=y',
    ],
)
async def test_json_may_be_called_so_in_any_spelling(content_type: str) -> None:
    assert (await Door().modern(headers={"content-type": content_type}).response()).status == 200


@pytest.mark.parametrize("accept", ["text/html", "image/*", "", "application/json;q=0", "application/xml, text/plain"])
async def test_a_client_that_accepts_no_supported_response_type_is_rejected_with_both(accept: str) -> None:
    door = Door()
    response = await refused(door, door.modern(headers={"accept": accept}), 406, -32600, None)
    assert "application/json" in response.error
    assert "text/event-stream" in response.error


@pytest.mark.parametrize(
    "accept", [None, BOTH, "*/*", "application/*", "application/json; q=0.1", "text/html, */*;q=0.1"]
)
async def test_a_client_that_takes_json_gets_json(accept: str | None) -> None:
    response = await Door().modern(headers={"accept": accept}).response()
    assert (response.status, response.content_type) == (200, "application/json")


@pytest.mark.parametrize("method", ["PUT", "PATCH", "HEAD", "TRACE"])
async def test_an_unsupported_http_method_is_rejected_with_the_allowed_methods(method: str) -> None:
    door = Door(guard=Guard(origins=["http://localhost:6274"]))
    response = await refused(
        door, door.send(method=method, headers={"origin": "http://localhost:6274"}), 405, -32600, None
    )
    assert response.headers["allow"] == "GET, POST, DELETE, OPTIONS"
    # Without it a page cannot tell a 405, which it expects, from a network failure.
    assert response.headers["access-control-allow-origin"] == "http://localhost:6274"


async def test_an_unknown_path_is_rejected_with_the_path_of_the_endpoint() -> None:
    door = Door()
    response = await refused(door, door.modern(path="/other"), 404, -32600, None)
    assert "/mcp" in response.error


@pytest.mark.requirement("legacy/http/version-header-400", "legacy/http/notification-refused")
@pytest.mark.parametrize("version", ["v999", "2024-01-01", "2026-07-29", "", "2025-11-25 "])
async def test_a_version_header_that_we_do_not_serve_is_answered_with_those_we_do(version: str) -> None:
    door = Door()
    session = await door.open_session()
    for body in (request("tools/list"), request("initialize", {}), notification("notifications/initialized")):
        visit = session.send(body, {"mcp-protocol-version": version})
        response = await refused(door, visit, 400, -32022, 1 if b'"id"' in body else None)
        assert response.json["error"]["data"] == {"requested": version, "supported": list(SUPPORTED)}
    await refused(door, session.send(b"[1]", {"mcp-protocol-version": version}), 400, -32022, None)
    await refused(door, session.send(b"", {"mcp-protocol-version": version}, method="DELETE"), 400, -32022, None)


# -- bad input, modern -------------------------------------------------------------------------------------------------


@pytest.mark.requirement("modern/base/envelope-required", "modern/base/envelope-required-400")
@pytest.mark.parametrize(
    ("params", "text"),
    [
        (None, "protocolVersion"),
        ({}, "protocolVersion"),
        ({"_meta": {PREFIX + "clientCapabilities": {}}}, "protocolVersion"),
        ({"_meta": {PREFIX + "protocolVersion": MODERN}}, "clientCapabilities"),
        ({"_meta": {**envelope(), PREFIX + "clientCapabilities": []}}, "clientCapabilities"),
        ({"_meta": []}, "_meta"),
    ],
)
async def test_a_modern_request_without_its_envelope_is_invalid_params(params: Any, text: str) -> None:
    door = Door()
    visit = door.send(request("server/discover", params), mirror("server/discover"))
    assert text in (await refused(door, visit, 400, -32602)).error


@pytest.mark.requirement("modern/versioning/unsupported", "modern/http/version-header-unsupported")
async def test_an_unsupported_version_in_header_and_body_is_rejected_with_the_supported_versions() -> None:
    door = Door()
    visit = door.send(request("tools/list", {"_meta": envelope("v999.0.0")}), mirror("tools/list", version="v999.0.0"))
    response = await refused(door, visit, 400, -32022)
    assert response.json["error"]["data"] == {"requested": "v999.0.0", "supported": list(SUPPORTED)}


def coded(text: str) -> str:
    return f"=?base64?{base64.b64encode(text.encode()).decode()}?="


MISMATCHES: list[tuple[str, dict[str, str | None]]] = [
    ("no version", {"mcp-protocol-version": None}),
    ("another version", {"mcp-protocol-version": "2025-11-25"}),
    ("an unknown version", {"mcp-protocol-version": "v999"}),
    ("no method", {"mcp-method": None}),
    ("another method", {"mcp-method": "tools/list"}),
    ("a method in another case", {"mcp-method": "TOOLS/CALL"}),
    ("a method in Base64", {"mcp-method": coded("tools/call")}),
    ("no name", {"mcp-name": None}),
    ("another name", {"mcp-name": "other"}),
    ("a name in another case", {"mcp-name": "ECHO"}),
    ("another name in Base64", {"mcp-name": coded("other")}),
    ("bad padding", {"mcp-name": "=?base64?ZWNobw?="}),
    ("a bad alphabet", {"mcp-name": "=?base64?ZWN!bw==?="}),
    ("markers in capitals", {"mcp-name": coded("echo").replace("base64", "BASE64")}),
    ("no end marker", {"mcp-name": coded("echo")[:-2]}),
    ("characters no header carries", {"mcp-name": "ech\u00f6"}),
]


@pytest.mark.requirement(
    "modern/http/version-header-mismatch",
    "modern/http/version-header-missing",
    "modern/headers/match",
    "modern/headers/mismatch-400",
    "modern/headers/standard-required",
)
@pytest.mark.parametrize("headers", [row[1] for row in MISMATCHES], ids=[row[0] for row in MISMATCHES])
async def test_headers_and_body_have_to_agree(headers: dict[str, str | None]) -> None:
    door = Door()
    response = await refused(door, door.call("echo", headers=headers), 400, -32020)
    assert "Header mismatch" in response.error
    assert not [call for call in door.probe.calls if call.method == "tools/call"]


@pytest.mark.requirement("modern/headers/base64-decoded")
async def test_a_name_in_base64_is_compared_once_decoded() -> None:
    assert (await Door().call("echo", headers={"mcp-name": coded("echo")}).response()).status == 200


@pytest.mark.requirement("modern/http/method-404")
@pytest.mark.parametrize(
    "method",
    ["initialize", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe", "unknown/method", ""],
)
async def test_a_method_the_revision_does_not_have_is_not_found(method: str) -> None:
    door = Door()
    await refused(door, door.modern(method), 404, -32601)


async def test_a_call_that_names_no_tool_says_what_is_missing() -> None:
    door = Door()
    response = await refused(door, door.modern("tools/call", {}, headers={"mcp-name": "x"}), 400, -32602)
    assert "params.name" in response.error


async def test_an_unknown_tool_is_invalid_params() -> None:
    door = Door()
    await refused(door, door.call("nope"), 400, -32602)


@pytest.mark.requirement("modern/http/message-directions")
async def test_a_modern_client_sends_no_responses() -> None:
    door = Door()
    visit = door.send(b'{"jsonrpc":"2.0","id":1,"result":{}}', {"mcp-protocol-version": MODERN})
    await refused(door, visit, 400, -32600)


@pytest.mark.requirement("modern/http/notification-202", "modern/base/notification-unanswered")
async def test_a_modern_notification_is_accepted_with_nothing_to_say() -> None:
    response = await Door().send(notification("notifications/cancelled"), {"mcp-protocol-version": MODERN}).response()
    assert (response.status, response.body) == (202, b"")


async def test_a_modern_client_sends_no_arrays() -> None:
    door = Door()
    visit = door.send(b"[" + request("tools/list", {"_meta": envelope()}) + b"]", mirror("tools/list"))
    await refused(door, visit, 400, -32600, None)


async def test_an_envelope_is_known_though_its_slash_is_escaped() -> None:
    door = Door()
    body = request("tools/list", {"_meta": envelope()}).replace(b"/protocolVersion", b"\\/protocolVersion")
    assert (await door.send(body, mirror("tools/list")).response()).status == 200
    await refused(door, door.send(body, {"mcp-method": "tools/list"}), 400, -32020)


async def test_a_modern_delete_has_no_session_to_end() -> None:
    response = await Door().send(method="DELETE", headers={"mcp-protocol-version": MODERN}).response()
    assert (response.status, response.headers["allow"]) == (405, "POST, OPTIONS")


# -- the guard stands before all of it ---------------------------------------------------------------------------------


@pytest.mark.requirement("modern/http/origin-403", "modern/http/origin-checked")
@pytest.mark.parametrize("method", ["POST", "GET", "DELETE", "OPTIONS"])
@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "http://localhost:7332.evil"}, 403),
        ({"host": "evil.example"}, 421),
        ({"host": "evil.example", "origin": "http://evil.example"}, 421),
    ],
)
async def test_a_stranger_gets_no_further_than_the_guard(
    method: str, headers: dict[str, str | None], status: int
) -> None:
    door = Door()
    response = await refused(door, door.modern(headers=headers, method=method), status, -32600, None)
    assert "allow it with --" in response.error
    assert "access-control-allow-origin" not in response.headers


@pytest.mark.parametrize("name", ["mcp-session-id", "mcp-protocol-version", "mcp-method", "mcp-name", "origin"])
async def test_two_headers_where_one_decides_are_refused(name: str) -> None:
    door = Door()
    await refused(door, door.modern(repeated=(name,)), 400, -32600, None)


async def test_a_page_that_is_allowed_reads_every_answer_and_the_session() -> None:
    door = Door(guard=Guard(origins=["http://localhost:6274"]))
    page = {"origin": "http://localhost:6274"}
    opened = await door.initialize(headers=page)
    assert "Mcp-Session-Id" in opened.headers["access-control-expose-headers"]
    visits = [
        door.modern(headers=page),
        door.call("steps", headers=page, meta={"progressToken": 1}),
        door.send(b"{", page),
        door.send(request("tools/list"), page),
        door.modern(headers={**page, "accept": "text/html"}),
        door.send(method="OPTIONS", headers=page),
        door.modern("unknown/method", headers=page),
    ]
    for visit in visits:
        response = await visit.response()
        assert values(response.fields, b"access-control-allow-origin") == [b"http://localhost:6274"]


# -- progress ----------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("modern/http/answer-form", "modern/http/notices-of-the-request")
async def test_the_first_notice_opens_a_stream_that_the_answer_ends() -> None:
    response = await Door().call("steps", meta={"progressToken": "t"}).response()
    assert (response.status, response.content_type) == (200, "text/event-stream")
    assert response.headers["x-accel-buffering"] == "no"
    assert response.headers["cache-control"] == "no-cache"
    first, second, last = response.messages
    assert first == {
        "jsonrpc": "2.0",
        "method": "notifications/progress",
        "params": {"progressToken": "t", "progress": 1, "message": "step 1"},
    }
    assert second["params"]["progress"] == 2
    assert last["id"] == 1
    assert last["result"]["resultType"] == "complete"


@pytest.mark.requirement("legacy/http/answer-form")
@pytest.mark.parametrize("version", sorted(LEGACY))
async def test_a_legacy_call_tells_its_progress_on_the_stream_of_its_post(version: str) -> None:
    session = await Door().open_session(version)
    response = await session.call("steps", token=5).response()
    assert response.content_type == "text/event-stream"
    assert response.headers["mcp-session-id"] == session.id
    first, _, last = response.messages
    assert ("message" in first["params"]) is (version >= "2025-03-26")
    assert (first["params"]["progressToken"], last["id"]) == (5, 1)


@pytest.mark.requirement("modern/http/answer-form", "legacy/http/answer-form")
async def test_a_call_that_says_nothing_before_its_answer_is_answered_by_json() -> None:
    session = await Door().open_session()
    for visit in (Door().call("echo", meta={"progressToken": 1}), session.call("echo", token=1)):
        assert (await visit.response()).content_type == "application/json"


@pytest.mark.parametrize("accept", ["application/json", "application/json, text/event-stream;q=0"])
async def test_a_client_that_accepts_only_json_receives_only_the_response(accept: str) -> None:
    response = await Door().call("steps", meta={"progressToken": 1}, headers={"accept": accept}).response()
    assert (response.status, response.content_type) == (200, "application/json")
    assert response.json["id"] == 1


@pytest.mark.parametrize("accept", ["text/event-stream", "text/*", "text/event-stream, application/json;q=0"])
async def test_a_client_that_takes_only_a_stream_gets_every_answer_there(accept: str) -> None:
    door = Door()
    only = {"accept": accept}
    session = await door.open_session("2025-03-26")
    assert (await door.initialize(headers=only)).headers["mcp-session-id"]
    visits = [
        door.modern(headers=only),
        door.call("echo", headers=only),
        session.ask("ping", request_id=2, headers=only),
        session.call("echo", 3, headers=only),
        session.call("nope", 4, headers=only),
        session.ask("unknown/method", request_id=5, headers=only),
    ]
    for request_id, visit in zip((1, 1, 2, 3, 4, 5), visits, strict=True):
        response = await visit.response()
        assert (response.status, response.content_type) == (200, "text/event-stream")
        assert [message["id"] for message in response.messages] == [request_id]
    batch = await session.send(b"[" + request("ping") + b"]", only).response()
    assert (batch.content_type, batch.json) == ("text/event-stream", [{"jsonrpc": "2.0", "id": 1, "result": {}}])


async def test_what_a_call_says_after_its_answer_goes_nowhere() -> None:
    door = Door()
    response = await door.call("afterwards", meta={"progressToken": 1}).response()
    assert response.content_type == "application/json"
    door.probe.release.set()
    assert door.probe.late is not None
    await door.probe.late


async def test_a_reader_who_never_reads_stops_his_own_call_alone() -> None:
    door = Door()
    slow = door.call("chatty", meta={"progressToken": 1})
    await door.probe.started.wait()
    slow.sink.clog()
    door.probe.release.set()
    assert await door.is_alive()
    assert not door.probe.finished.is_set()
    slow.sink._room.set()
    assert (await slow.response()).messages[-1]["id"] == 1


# -- a long silence ----------------------------------------------------------------------------------------------------


async def test_a_silent_call_opens_its_stream_after_a_while_and_is_kept_alive() -> None:
    clock = Ticking()
    door = Door(Limits(quiet_seconds=5), loop=clock)
    visit = door.call("slow")
    clock.pass_time(4)
    assert not visit.sink.started.is_set()
    clock.pass_time(2)
    assert visit.sink.started.is_set()
    assert bytes(visit.sink.written) == b": keep-alive\n\n"
    clock.pass_time(16)
    assert bytes(visit.sink.written) == b": keep-alive\n\n" * 2
    door.probe.release.set()
    response = await visit.response()
    assert (response.status, len(response.messages)) == (200, 1)
    clock.pass_time(2)
    assert not clock.timers, "no timer runs when no call does"


async def test_a_silent_call_of_one_who_takes_no_stream_stays_silent() -> None:
    clock = Ticking()
    door = Door(Limits(quiet_seconds=5), loop=clock)
    visit = door.call("slow", headers={"accept": "application/json"})
    clock.pass_time(60)
    assert not visit.sink.started.is_set()
    door.probe.release.set()
    assert (await visit.response()).content_type == "application/json"


# -- leaving and cancelling --------------------------------------------------------------------------------------------


@pytest.mark.requirement(
    "modern/http/disconnect-cancels", "modern/http/cancelled-silent", "modern/cancellation/disconnect"
)
@pytest.mark.parametrize("tool", ["slow", "chatty"])
async def test_a_modern_client_that_leaves_has_cancelled_its_call(tool: str) -> None:
    door = Door()
    visit = door.call(tool, meta={"progressToken": 1})
    await door.probe.started.wait()
    said = bytes(visit.sink.written)
    visit.sink.leave()
    await door.probe.cancelled.wait()
    await visit.settled()
    assert bytes(visit.sink.written) == said
    assert not door.endpoint.calls


@pytest.mark.parametrize("tool", ["slow", "chatty"])
async def test_a_legacy_client_that_leaves_has_cancelled_nothing(tool: str) -> None:
    door = Door()
    session = await door.open_session()
    visit = session.call(tool, token=1)
    await door.probe.started.wait()
    visit.sink.leave()
    door.probe.release.set()
    await visit.settled()
    assert door.probe.finished.is_set()
    assert not door.probe.cancelled.is_set()
    assert not door.endpoint.calls


async def test_a_legacy_call_outlives_a_reader_who_was_too_slow() -> None:
    door = Door()
    session = await door.open_session()
    visit = session.call("chatty", token=1)
    await door.probe.started.wait()
    visit.sink.clog()
    door.probe.release.set()
    await asyncio.sleep(0)
    visit.sink.leave()
    await visit.settled()
    assert door.probe.finished.is_set()


@pytest.mark.parametrize("request_id", [7, "7"])
async def test_a_legacy_call_is_cancelled_by_a_notice_and_not_answered(request_id: int | str) -> None:
    door = Door()
    session = await door.open_session()
    visit = session.call("slow", request_id)
    await door.probe.started.wait()
    told = await session.notify("notifications/cancelled", {"requestId": request_id, "reason": "enough"})
    assert (told.status, told.body) == (202, b"")
    await door.probe.cancelled.wait()
    response = await visit.response()
    assert (response.status, response.messages) == (200, [])


async def test_a_cancelled_call_of_one_who_takes_no_stream_ends_with_nothing() -> None:
    door = Door()
    session = await door.open_session()
    visit = session.call("slow", 7, headers={"accept": "application/json"})
    await door.probe.started.wait()
    await session.notify("notifications/cancelled", {"requestId": 7})
    response = await visit.response()
    assert (response.status, response.body) == (202, b"")


@pytest.mark.requirement("legacy/cancellation/late")
@pytest.mark.parametrize(
    "params", [None, {}, {"requestId": 8}, {"requestId": "7"}, {"requestId": []}, {"requestId": None}]
)
async def test_a_cancellation_of_nothing_we_know_is_ignored(params: Any) -> None:
    door = Door()
    session = await door.open_session()
    visit = session.call("slow", 7)
    await door.probe.started.wait()
    assert (await session.notify("notifications/cancelled", params)).status == 202
    door.probe.release.set()
    assert (await visit.response()).json["id"] == 7


async def test_one_session_does_not_cancel_the_calls_of_another() -> None:
    door = Door()
    session, other = await door.open_session(), await door.open_session()
    visit = session.call("slow", 7)
    await door.probe.started.wait()
    assert (await other.notify("notifications/cancelled", {"requestId": 7})).status == 202
    door.probe.release.set()
    assert (await visit.response()).json["id"] == 7


# -- sessions ----------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("legacy/lifecycle/version-agreed")
@ALL_LEGACY
async def test_initialize_agrees_on_the_revision_and_opens_a_session(version: str) -> None:
    response = await Door().initialize(version)
    assert response.status == 200
    assert re.fullmatch("[0-9a-f]{32}", response.headers["mcp-session-id"])
    assert response.json["result"]["protocolVersion"] == version
    assert ("title" in response.json["result"]["serverInfo"]) is (version >= "2025-06-18")


@pytest.mark.requirement("legacy/lifecycle/version-offered")
@pytest.mark.parametrize("version", ["2026-07-28", "2099-01-01", "nonsense"])
async def test_initialize_with_another_revision_is_answered_with_our_newest(version: str) -> None:
    response = await Door().initialize(version)
    assert response.json["result"]["protocolVersion"] == "2025-11-25"


async def test_initialize_may_carry_the_headers_of_later_revisions() -> None:
    headers = {"mcp-protocol-version": "2025-11-25", "mcp-method": "initialize"}
    assert (await Door().initialize(headers=headers)).status == 200


@pytest.mark.parametrize("params", [{"protocolVersion": 1}, {"protocolVersion": "2025-11-25"}])
async def test_initialize_with_incomplete_params_opens_nothing(params: Any) -> None:
    door = Door()
    await refused(door, door.send(request("initialize", params)), 400, -32602)
    assert len(door.endpoint.sessions) == 0


@pytest.mark.requirement("legacy/lifecycle/initialize-first")
@pytest.mark.parametrize("body", [request("tools/list"), request("ping"), notification("notifications/initialized")])
async def test_a_legacy_message_without_a_session_is_rejected_and_asks_for_initialize(body: bytes) -> None:
    door = Door()
    for headers in ({}, {"mcp-protocol-version": "2025-06-18"}):
        response = await refused(door, door.send(body, headers), 400, -32602, 1 if b'"id"' in body else None)
        assert "initialize" in response.error


@pytest.mark.parametrize("sent", ["", "f" * 32, "é", "x" * 5000])
async def test_a_session_that_does_not_exist_is_not_found(sent: str) -> None:
    door = Door()
    response = await refused(door, door.send(request("ping"), {"mcp-session-id": sent}), 404, -32001)
    assert "initialize" in response.error


async def test_the_session_is_named_on_every_answer() -> None:
    session = await Door().open_session()
    visits = [
        session.ask("ping"),
        session.ask("tools/list", request_id=2),
        session.call("echo", 3),
        session.call("nope", 4),
        session.ask("unknown/method", request_id=5),
        session.send(notification("notifications/initialized")),
        session.send(b'{"jsonrpc":"2.0","id":1,"result":{}}'),
    ]
    for visit in visits:
        assert (await visit.response()).headers["mcp-session-id"] == session.id


@pytest.mark.requirement("legacy/http/session-ended-404")
async def test_a_session_ends_by_delete_and_is_not_found_afterwards() -> None:
    door = Door()
    session, other = await door.open_session(), await door.open_session()
    assert (await session.delete()).status == 204
    await refused(door, session.ask("ping"), 404, -32001)
    assert (await session.delete()).status == 404
    assert (await other.ask("ping").response()).status == 200


async def test_a_delete_without_a_session_is_rejected() -> None:
    door = Door()
    await refused(door, door.send(method="DELETE"), 400, -32602, None)


async def test_delete_cancels_the_calls_of_the_session() -> None:
    door = Door()
    session = await door.open_session()
    visit = session.call("slow")
    await door.probe.started.wait()
    await session.delete()
    await door.probe.cancelled.wait()
    assert (await visit.response()).messages == []
    assert not door.endpoint.calls


@pytest.mark.requirement("legacy/http/session-ended-404")
async def test_a_session_expires_half_an_hour_after_its_last_use() -> None:
    door = Door()
    now = 0.0
    door.endpoint.sessions._clock = lambda: now
    session = await door.open_session()
    now += 1800
    assert (await session.ask("ping").response()).status == 200
    now += 1801
    await refused(door, session.ask("ping"), 404, -32001)


async def test_expired_sessions_are_removed_without_further_requests() -> None:
    clock = Ticking()
    door = Door(loop=clock)
    door.endpoint.sessions._clock = clock.time
    for _ in range(3):
        await door.open_session()
    clock.pass_time(1700)
    assert len(door.endpoint.sessions) == 3
    clock.pass_time(102)
    assert len(door.endpoint.sessions) == 0
    # Then there is nothing to do any more.
    clock.pass_time(2)
    assert clock.timers == []


async def test_the_longest_idle_session_makes_room_and_a_busy_house_says_503() -> None:
    door = Door(Limits(sessions=2))
    first = await door.open_session()
    second = await door.open_session()
    third = await door.open_session()
    assert (await first.ask("ping").response()).status == 404
    for session in (second, third):
        session.call("slow")
    await door.probe.wait_for_calls(2)
    response = await refused(door, door.send(request("initialize", handshake())), 503, -32603)
    assert response.headers["retry-after"] == "30"
    door.probe.release.set()


def handshake() -> dict[str, Any]:
    return {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}


@pytest.mark.requirement("legacy/lifecycle/version-respected")
@ALL_LEGACY
async def test_results_have_the_fields_of_the_session_s_revision(version: str) -> None:
    session = await Door().open_session(version)
    listed = (await session.ask("tools/list").response()).json["result"]
    assert set(listed) == {"tools"}
    assert ("icons" in listed["tools"][0]) is (version >= "2025-11-25")
    called = (await session.call("number").response()).json["result"]
    assert "resultType" not in called
    assert called.get("structuredContent") == ({"result": 7} if version >= "2025-06-18" else None)
    assert (await session.ask("ping").response()).json["result"] == {}


async def test_natural_values_are_for_modern_clients() -> None:
    assert (await Door().call("number").response()).json["result"]["structuredContent"] == 7


@pytest.mark.parametrize("version", [None, "2025-03-26", "2025-11-25"])
async def test_the_session_s_revision_decides_whatever_legacy_header_comes(version: str | None) -> None:
    session = await Door().open_session("2025-06-18")
    listed = await session.ask("tools/list", headers={"mcp-protocol-version": version}).response()
    assert {"title"} <= set(listed.json["result"]["tools"][0])


@pytest.mark.parametrize(
    ("method", "params", "code"),
    [
        ("server/discover", {}, -32601),
        ("unknown/method", {}, -32601),
        ("tools/call", {}, -32602),
        ("tools/call", {"name": "nope"}, -32602),
        ("tools/call", {"name": "echo", "_meta": []}, -32602),
        ("tools/list", {"_meta": {"progressToken": {}}}, -32602),
    ],
)
async def test_an_error_in_a_session_is_an_answer_and_the_session_goes_on(method: str, params: Any, code: int) -> None:
    # 404 would tell the client that its session is over.
    door = Door(Limits(calls=3))
    session = await door.open_session()
    for _ in range(4):
        await refused(door, session.ask(method, params), 200, code)
    assert (await session.ask("ping").response()).status == 200
    assert not door.endpoint.calls


@pytest.mark.requirement("legacy/http/notification-202")
async def test_a_response_from_a_legacy_client_is_accepted() -> None:
    session = await Door().open_session()
    response = await session.send(b'{"jsonrpc":"2.0","id":1,"result":{}}').response()
    assert (response.status, response.body) == (202, b"")


# -- ids in flight -----------------------------------------------------------------------------------------------------


async def test_an_id_in_flight_is_refused_and_the_first_call_is_answered() -> None:
    door = Door()
    session = await door.open_session()
    visit = session.call("slow", 7)
    response = await refused(door, session.call("echo", 7), 409, -32600, 7)
    assert "in flight" in response.error
    door.probe.release.set()
    assert (await visit.response()).json["id"] == 7
    assert (await session.call("echo", 7).response()).status == 200


@pytest.mark.requirement("legacy/base/result-id")
async def test_1_and_the_text_1_are_two_ids() -> None:
    door = Door()
    session = await door.open_session()
    number, text = session.call("slow", 1), session.call("slow", "1")
    door.probe.release.set()
    assert (await number.response()).json["id"] == 1
    assert (await text.response()).json["id"] == "1"


async def test_two_sessions_may_use_the_same_id_at_once_and_so_may_modern_clients() -> None:
    door = Door()
    sessions = [await door.open_session() for _ in range(2)]
    visits = [session.call("slow", 1) for session in sessions] + [door.call("slow"), door.call("slow")]
    door.probe.release.set()
    assert [(await visit.response()).status for visit in visits] == [200] * 4


# -- batches -----------------------------------------------------------------------------------------------------------


def batch(*messages: bytes) -> bytes:
    return b"[" + b",".join(messages) + b"]"


async def test_an_array_is_served_in_the_revision_that_has_them() -> None:
    session = await Door().open_session("2025-03-26")
    response = await session.send(
        batch(request("tools/list", request_id=1), request("ping", request_id="2"), notification("notifications/x"))
    ).response()
    assert response.status == 200
    assert response.headers["mcp-session-id"] == session.id
    assert [answer["id"] for answer in response.json] == [1, "2"]


async def test_an_array_without_requests_is_accepted_with_nothing_to_say() -> None:
    session = await Door().open_session("2025-03-26")
    response = await session.send(
        batch(notification("notifications/x"), b'{"jsonrpc":"2.0","id":1,"result":{}}')
    ).response()
    assert (response.status, response.body) == (202, b"")


@pytest.mark.parametrize("version", sorted(LEGACY - {"2025-03-26"}))
async def test_an_array_is_an_invalid_request_in_every_other_revision(version: str) -> None:
    door = Door()
    session = await door.open_session(version)
    for headers in ({}, {"mcp-protocol-version": "2025-03-26"}, {"mcp-protocol-version": None}):
        await refused(door, session.send(batch(request("ping")), headers), 400, -32600, None)


async def test_a_batch_without_a_session_is_rejected() -> None:
    door = Door()
    await refused(door, door.send(batch(request("ping"))), 400, -32602, None)


async def test_an_array_holds_a_hundred_messages_and_at_least_one() -> None:
    door = Door()
    session = await door.open_session("2025-03-26")
    pings = [request("ping", request_id=number) for number in range(101)]
    assert len((await session.send(batch(*pings[:100])).response()).json) == 100
    await refused(door, session.send(batch(*pings)), 400, -32600, None)
    await refused(door, session.send(b"[]"), 400, -32600, None)


async def test_each_bad_message_of_an_array_is_refused_by_itself() -> None:
    door = Door()
    session = await door.open_session("2025-03-26")
    items = [
        (b"1", -32600, None),
        (b"[]", -32600, None),
        (b'{"jsonrpc":"2.0","id":null,"method":"ping"}', -32600, None),
        (request("initialize", handshake(), 3), -32600, 3),
        (request("unknown/method", request_id=4), -32601, 4),
        (request("tools/call", {}, 5), -32602, 5),
        (b'{"jsonrpc":"2.0","id":6,"method":"ping","method":"ping"}', -32600, 6),
        (request("tools/call", {"name": "broken"}, 7), -32603, 7),
        (b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1,"requestId":2}}', -32600, None),
    ]
    response = await session.send(batch(*(item[0] for item in items), request("ping", request_id=9))).response()
    answers = response.json
    assert [(answer.get("error", {}).get("code"), answer.get("id")) for answer in answers] == [
        *((code, request_id) for _, code, request_id in items),
        (None, 9),
    ]
    assert not door.endpoint.calls


async def test_a_call_in_an_array_can_be_cancelled_and_its_id_is_in_flight() -> None:
    door = Door()
    session = await door.open_session("2025-03-26")
    slow = request("tools/call", {"name": "slow"}, 7)
    visit = session.send(batch(slow, slow, request("ping", request_id=8)))
    await door.probe.started.wait()
    await refused(door, session.call("echo", 7), 409, -32600, 7)
    await session.notify("notifications/cancelled", {"requestId": 7})
    answers = (await visit.response()).json
    assert [(answer["id"], "error" in answer) for answer in answers] == [(7, True), (8, False)]
    assert not door.endpoint.calls


async def test_delete_cancels_the_calls_of_an_array() -> None:
    door = Door()
    session = await door.open_session("2025-03-26")
    visit = session.send(batch(request("tools/call", {"name": "slow"})))
    await door.probe.started.wait()
    await session.delete()
    await door.probe.cancelled.wait()
    assert (await visit.response()).status == 202


async def test_the_responses_of_a_batch_are_in_the_order_of_its_requests() -> None:
    door = Door()
    session = await door.open_session("2025-03-26")
    visit = session.send(batch(request("tools/call", {"name": "slow"}, 1), request("ping", None, 2)))
    await door.probe.started.wait()
    door.probe.release.set()
    assert [response["id"] for response in (await visit.response()).json] == [1, 2]


async def test_the_answers_of_a_batch_have_a_limit_together() -> None:
    params = {"name": "echo", "arguments": {"text": "x" * 600}}
    body = batch(*(request("tools/call", params, number) for number in range(5)))
    session = await Door(Limits(result_bytes=1000)).open_session("2025-03-26")
    answers = (await session.send(body).response()).json
    assert ["result" in one for one in answers] == [True, True, False, False, False]
    assert {one["error"]["message"] for one in answers[2:]} == {
        "The responses of this batch are too large together: send this request by itself"
    }


# -- when there is too much, or the end is near ------------------------------------------------------------------------


async def test_an_overloaded_server_sends_retry_after() -> None:
    door = Door(Limits(calls=2))
    session = await door.open_session("2025-03-26")
    visits = [door.call("slow"), session.call("slow")]
    await door.probe.started.wait()
    opened = len(door.endpoint.sessions)
    for more in (
        door.call("echo"),
        session.call("echo", 2),
        session.send(batch(request("ping"))),
        door.send(request("initialize", handshake())),
    ):
        response = await more.response()
        assert (response.status, response.code, response.headers["retry-after"]) == (503, -32603, "1")
    assert len(door.endpoint.sessions) == opened
    door.probe.release.set()
    for visit in visits:
        assert (await visit.response()).status == 200
    assert await door.is_alive()


async def test_large_requests_are_refused_while_those_of_the_calls_under_way_fill_their_limit() -> None:
    door = Door(Limits(call_bytes=20_000))
    session = await door.open_session("2025-03-26")
    large = {"text": "x" * 12_000}
    visits = [door.call("slow", arguments=large)]
    await door.probe.started.wait()
    for more in (
        door.call("echo", arguments=large),
        session.ask("tools/call", {"name": "echo", "arguments": large}, 2),
        session.send(batch(request("tools/call", {"name": "echo", "arguments": large}))),
    ):
        response = await more.response()
        assert (response.status, response.code, response.headers["retry-after"]) == (503, -32603, "1")
        assert "too large together" in response.json["error"]["message"]
    assert (await door.call("echo", arguments={"text": "small"}).response()).status == 200
    door.probe.release.set()
    for visit in visits:
        assert (await visit.response()).status == 200
    assert (await door.call("echo", arguments=large).response()).status == 200


async def test_a_draining_server_refuses_new_calls_and_finishes_those_that_run() -> None:
    door = Door()
    session = await door.open_session("2025-03-26")
    running = [
        door.call("slow"),
        session.call("slow", 1),
        session.send(batch(request("tools/call", {"name": "slow"}, 2))),
    ]
    await door.probe.wait_for_calls(3)
    draining = asyncio.ensure_future(door.endpoint.drain(30, asyncio.Event()))
    await asyncio.sleep(0)
    for late in (door.call("echo"), session.call("echo", 3), session.send(batch(request("ping"))), door.modern()):
        response = await late.response()
        assert (response.status, response.headers["retry-after"]) == (503, "1")
        assert "shutting down" in response.error
    # What comes in about calls that run is still heard.
    assert (await session.notify("notifications/cancelled", {"requestId": 99})).status == 202
    assert (await session.ask("ping", request_id=4).response()).status == 200
    assert not draining.done()
    door.probe.release.set()
    await draining
    for visit in running:
        response = await visit.response()
        assert response.status == 200
        assert b"done" in response.body


@pytest.mark.parametrize("how", ["time is up", "in a hurry"])
async def test_unfinished_calls_receive_an_error_when_the_server_shuts_down(how: str) -> None:
    door = Door()
    session = await door.open_session("2025-03-26")
    visits = [
        door.call("slow"),
        session.call("chatty", 1, token=1),
        session.send(batch(request("tools/call", {"name": "slow"}, 2))),
    ]
    await door.probe.wait_for_calls(3)
    hurried = asyncio.Event()
    if how == "in a hurry":
        hurried.set()
    await door.endpoint.drain(30 if how == "in a hurry" else 0.01, hurried)
    plain, streamed, array = [await visit.response() for visit in visits]
    assert (plain.status, plain.code) == (503, -32603)
    assert (streamed.status, streamed.messages[-1]["error"]["code"]) == (200, -32603)
    assert array.json[0]["error"]["code"] == -32603
    assert not door.endpoint.calls


# -- our own faults ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tool", ["broken", "surrogate"])
async def test_a_failure_of_ours_is_answered_under_an_id_and_its_text_stays_here(
    tool: str, caplog: pytest.LogCaptureFixture
) -> None:
    door = Door()
    session = await door.open_session()
    for visit in (door.call(tool), session.call(tool)):
        response = await visit.response()
        assert (response.status, response.code) == (200, -32603)
        found = re.search("error id ([0-9a-f]{8})", response.error)
        assert found is not None
        assert found[1] in caplog.text
        assert "secret" not in response.body.decode()
    assert await door.is_alive()


async def test_what_was_said_stays_one_line_of_json() -> None:
    response = await Door().call("echo", arguments={"text": "a\n\u2028b"}).response()
    assert b"\n" not in response.body
    assert json.loads(response.json["result"]["content"][0]["text"]) == {"text": "a\n\u2028b"}


async def test_the_endpoint_holds_no_call_that_has_ended() -> None:
    door = Door()
    session = await door.open_session()
    for _ in range(50):
        await door.call("echo").response()
        await session.call("steps", token=1).response()
        await session.call("broken").response()
    assert not door.endpoint.calls
