"""The five tests of the design that the endpoint goes back to, at a board that is served in a process of its own."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.server_processes import PEGBOARD, PLAIN_PEGBOARD, ROOT, HttpChild

VERSION = "2025-11-25"
HELLO = {"protocolVersion": VERSION, "capabilities": {}, "clientInfo": {"name": "seed", "version": "1"}}


@pytest.fixture(scope="module", params=[PEGBOARD, PLAIN_PEGBOARD], ids=["uvloop", "asyncio"])
def child(request: pytest.FixtureRequest) -> Iterator[HttpChild]:
    with HttpChild(target=ROOT / "tests" / "changing_board.py", command=request.param) as one:
        yield one


@contextmanager
def sent(
    child: HttpChild, verb: str, session: str | None = None, message: Any = None, **headers: str
) -> Iterator[http.client.HTTPResponse]:
    """The response to a request, as far as its head."""
    fields = {"MCP-Protocol-Version": VERSION, "Accept": "application/json, text/event-stream"}
    if session is not None:
        fields["MCP-Session-Id"] = session
    if message is not None:
        fields["Content-Type"] = "application/json"
    fields |= {name.replace("_", "-"): value for name, value in headers.items()}
    connection = child.connect()
    try:
        connection.request(verb, child.path, None if message is None else json.dumps(message), fields)
        with connection.getresponse() as response:
            yield response
    finally:
        connection.close()


def request(method: str, params: Any = None) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params or {}}


def create_session(child: HttpChild) -> str:
    with sent(child, "POST", message=request("initialize", HELLO)) as response:
        return response.headers["MCP-Session-Id"]


def next_event(stream: http.client.HTTPResponse) -> dict[str, str]:
    """The fields of the next event, or a comment under the empty name."""
    lines = iter(lambda: stream.readline().decode().rstrip("\n"), "")
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


@pytest.mark.process
def test_post_mcp_with_an_initialize_request_returns_an_immediate_response(child: HttpChild) -> None:
    with sent(child, "POST", message=request("initialize", HELLO)) as response:
        assert response.status == 200
        assert response.headers.get_content_type() == "application/json"
        assert response.headers["MCP-Session-Id"]
        assert json.load(response)["result"]["protocolVersion"] == VERSION


def test_get_mcp_opens_a_long_lived_sse_stream(child: HttpChild) -> None:
    session = create_session(child)
    with sent(child, "GET", session, Accept="text/event-stream") as stream:
        assert stream.status == 200
        assert stream.headers.get_content_type() == "text/event-stream"
        assert stream.headers["X-Accel-Buffering"] == "no"
        assert next_event(stream) == {"": "keep-alive"}
        primed = next_event(stream)
        assert primed["id"]
        assert primed["data"] == ""
        child.text("hang", kind="tools", what="later")
        assert json.loads(next_event(stream)["data"])["method"] == "notifications/tools/list_changed"


def test_get_mcp_with_last_event_id_replays_messages(child: HttpChild) -> None:
    session = create_session(child)
    with sent(child, "GET", session, Accept="text/event-stream") as stream:
        next_event(stream)
        next_event(stream)
        child.text("hang", kind="tools", what="seen")
        seen = next_event(stream)
    child.text("hang", kind="prompts", what="missed")
    child.text("hang", kind="resources", what="missed")
    with sent(child, "GET", session, Accept="text/event-stream", Last_Event_ID=seen["id"]) as stream:
        assert next_event(stream) == {"": "keep-alive"}
        assert next_event(stream)["id"] == seen["id"]
        replayed = [next_event(stream), next_event(stream)]
    assert [json.loads(event["data"])["method"] for event in replayed] == [
        "notifications/prompts/list_changed",
        "notifications/resources/list_changed",
    ]
    assert len({seen["id"], *(event["id"] for event in replayed)}) == 3


def test_post_mcp_with_an_expired_session_returns_404(child: HttpChild) -> None:
    with sent(child, "POST", "nonexistent-session", request("tools/list")) as response:
        assert response.status == 404
        assert json.load(response)["error"]["code"] == -32001


def test_delete_mcp_terminates_the_session(child: HttpChild) -> None:
    session = create_session(child)
    with sent(child, "GET", session, Accept="text/event-stream") as stream:
        with sent(child, "DELETE", session) as response:
            assert response.status == 204
            assert response.read() == b""
        # The end of a session ends its streams.
        assert stream.read().endswith(b"\n\n")
    for verb, message in (("POST", request("tools/list")), ("GET", None), ("DELETE", None)):
        with sent(child, verb, session, message, Accept="application/json, text/event-stream") as response:
            assert response.status == 404, verb
