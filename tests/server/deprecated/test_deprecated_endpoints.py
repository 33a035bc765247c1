"""The deprecated doors: which are open, who is let in, and how they say that their time is over."""

from __future__ import annotations

import logging

import pytest

from pegboard.errors import SetupError
from pegboard.limits import Limits
from pegboard.server.endpoint_names import DEPRECATED_ENDPOINTS, read_endpoint_names
from pegboard.server.http.guard import Guard
from tests.server.fake_sink import Door, Visit, request

PLACES = pytest.mark.parametrize(
    ("method", "path"), [("POST", "/rpc"), ("POST", "/sse"), ("GET", "/sse"), ("POST", "/messages")]
)


def visit(door: Door, method: str, path: str, **headers: str | None) -> Visit:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return door.send(b"" if method == "GET" else request("ping"), named, method=method, path=path)


# -- which are open ----------------------------------------------------------------------------------------------------


@PLACES
async def test_a_door_that_is_not_opened_is_not_there(method: str, path: str) -> None:
    response = await visit(Door(), method, path).response()
    assert response.status == 404
    assert "/mcp" in response.error


@pytest.mark.parametrize(
    ("door", "found"),
    [
        ("rpc", {("POST", "/rpc")}),
        ("oneshot", {("POST", "/sse")}),
        ("sse", {("GET", "/sse"), ("POST", "/messages")}),
    ],
)
async def test_each_door_is_opened_by_itself(door: str, found: set[tuple[str, str]]) -> None:
    opened = Door(legacy_endpoints=[door])
    there = set()
    for method, path in [("POST", "/rpc"), ("POST", "/sse"), ("GET", "/sse"), ("POST", "/messages")]:
        visited = visit(opened, method, path)
        if visited.sink.started.is_set():
            visited.sink.leave()
            there.add((method, path))
        elif (await visited.response()).status not in (404, 405):
            there.add((method, path))
    assert there == found


async def test_a_prefix_moves_the_doors_too() -> None:
    door = Door(legacy_endpoints=DEPRECATED_ENDPOINTS, prefix="/tools")
    response = await door.send(request("ping"), path="/tools/rpc").response()
    assert response.json["result"] == {}
    assert response.headers["link"] == '</tools/mcp>; rel="successor-version"'
    stream = door.send(method="GET", path="/tools/sse").sink
    assert b"data: /tools/messages?" in stream.written
    assert (await door.send(request("ping"), path="/rpc").response()).status == 404


@pytest.mark.parametrize(
    ("given", "doors"),
    [
        ("all", DEPRECATED_ENDPOINTS),
        ("none", ()),
        ("sse", ("sse",)),
        ("sse, rpc", ("rpc", "sse")),
        (["oneshot"], ("oneshot",)),
        ((), ()),
    ],
)
def test_the_doors_to_open_are_named(given: str | list[str], doors: tuple[str, ...]) -> None:
    assert read_endpoint_names(given, "--legacy-endpoints") == doors


@pytest.mark.parametrize("given", ["", "none,rpc", "ws", "sse,rcp", ["all", "rpc"]])
def test_a_door_that_does_not_exist_is_refused_by_name(given: str | list[str]) -> None:
    with pytest.raises(SetupError, match=r"--legacy-endpoints .* is not one of rpc, oneshot, sse, all or none"):
        read_endpoint_names(given, "--legacy-endpoints")


# -- who is let in -----------------------------------------------------------------------------------------------------


@PLACES
@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"host": "evil.example"}, 421),
        ({"host": "evil.example", "origin": "http://evil.example"}, 421),
    ],
)
async def test_a_stranger_gets_no_further_than_the_guard(
    method: str, path: str, headers: dict[str, str | None], status: int
) -> None:
    door = Door(legacy_endpoints=DEPRECATED_ENDPOINTS)
    response = await visit(door, method, path, **headers).response()
    assert (response.status, response.code) == (status, -32600)
    assert not door.probe.calls


@PLACES
async def test_two_headers_where_one_decides_are_refused(method: str, path: str) -> None:
    door = Door(legacy_endpoints=DEPRECATED_ENDPOINTS)
    response = await door.send(request("ping"), method=method, path=path, repeated=("origin",)).response()
    assert response.status == 400


@pytest.mark.parametrize("path", ["/rpc", "/sse", "/messages"])
async def test_a_page_that_is_allowed_may_ask_first_and_read_the_answer(path: str) -> None:
    door = Door(guard=Guard(origins=["http://localhost:6274"]), legacy_endpoints=DEPRECATED_ENDPOINTS)
    page = {"origin": "http://localhost:6274"}
    asked = await door.send(headers=page, method="OPTIONS", path=path).response()
    assert asked.status == 204
    answer = await door.send(request("ping"), page, path=path).response()
    for response in (asked, answer):
        assert response.headers["access-control-allow-origin"] == "http://localhost:6274"


@pytest.mark.parametrize(
    ("path", "allow"), [("/rpc", "POST, OPTIONS"), ("/sse", "GET, POST, OPTIONS"), ("/messages", "POST, OPTIONS")]
)
@pytest.mark.parametrize("method", ["PUT", "DELETE", "HEAD"])
async def test_other_http_methods_are_rejected_with_the_allowed_ones(path: str, allow: str, method: str) -> None:
    response = await Door(legacy_endpoints=DEPRECATED_ENDPOINTS).send(method=method, path=path).response()
    assert (response.status, response.headers["allow"]) == (405, allow)


@pytest.mark.parametrize("path", ["/rpc", "/sse", "/messages"])
@pytest.mark.parametrize("content_type", ["text/plain", None, "application/json; charset=latin-1"])
async def test_a_body_that_is_not_called_json_is_not_read(path: str, content_type: str | None) -> None:
    door = Door(legacy_endpoints=DEPRECATED_ENDPOINTS)
    response = await visit(door, "POST", path, content_type=content_type).response()
    assert (response.status, response.code) == (415, -32600)


@pytest.mark.parametrize(
    ("method", "path", "accept"),
    [
        ("POST", "/rpc", "text/event-stream"),
        ("POST", "/sse", "application/json"),
        ("GET", "/sse", "application/json"),
        ("POST", "/rpc", "text/html"),
    ],
)
async def test_an_unacceptable_response_type_is_rejected_with_the_required_one(
    method: str, path: str, accept: str
) -> None:
    response = await visit(Door(legacy_endpoints=DEPRECATED_ENDPOINTS), method, path, accept=accept).response()
    assert response.status == 406
    assert "Accept must allow" in response.error


@PLACES
@pytest.mark.parametrize("version", ["2019-01-01", "nonsense"])
async def test_a_version_we_do_not_speak_is_refused(method: str, path: str, version: str) -> None:
    door = Door(legacy_endpoints=DEPRECATED_ENDPOINTS)
    headers = {"mcp-protocol-version": version}
    query = ""
    if path == "/messages":
        stream = door.send(method="GET", path="/sse").sink
        query = bytes(stream.written).partition(b"?")[2].decode().strip()
    response = await door.send(request("ping"), headers, method=method, path=path, query=query).response()
    assert (response.status, response.code) == (400, -32022)
    assert "2024-11-05" in response.json["error"]["data"]["supported"]


@PLACES
async def test_a_server_that_ends_takes_nothing_new(method: str, path: str) -> None:
    door = Door(legacy_endpoints=DEPRECATED_ENDPOINTS)
    door.endpoint._calls.draining = True
    response = await visit(door, method, path).response()
    # There, no session is left to speak for.
    assert response.status == (400 if path == "/messages" else 503)


# -- that their time is over -------------------------------------------------------------------------------------------


async def test_every_answer_says_that_the_door_is_deprecated_and_what_follows_it() -> None:
    door = Door(Limits(batch=1), legacy_endpoints=DEPRECATED_ENDPOINTS)
    visits = [
        door.send(request("ping"), path="/rpc"),
        door.send(b"{", path="/rpc"),
        door.send(b"[1,2]", path="/rpc"),
        door.send(request("ping"), path="/sse"),
        door.send(request("ping"), path="/messages"),
        door.send(method="PUT", path="/rpc"),
    ]
    answers = [(await one.response()).headers for one in visits]
    stream = door.send(method="GET", path="/sse").sink
    answers.append({name.decode(): value.decode() for name, value in stream.headers})
    for headers in answers:
        # RFC 9745: a date as the seconds since 1970, here that of revision 2025-03-26.
        assert headers["deprecation"] == "@1742947200"
        assert headers["link"] == '</mcp>; rel="successor-version"'


async def test_the_first_use_of_each_door_is_one_line_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    door = Door(legacy_endpoints=DEPRECATED_ENDPOINTS)
    with caplog.at_level(logging.INFO, "pegboard"):
        await visit(door, "POST", "/rpc", origin="http://evil.example").response()
        assert not caplog.records
        for _ in range(2):
            for method, path in [("POST", "/rpc"), ("POST", "/sse"), ("GET", "/sse"), ("POST", "/messages")]:
                visited = visit(door, method, path)
                if method == "POST":
                    await visited.response()
    lines = [record.getMessage() for record in caplog.records]
    assert [line.split(" is deprecated")[0] for line in lines] == ["POST /rpc", "POST /sse", "GET /sse"]
    assert all("127.0.0.1" in line and "legacy_endpoints" in line for line in lines)
