"""Clients of the older revisions where there are no sessions: served one request at a time, or refused with the reason."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pegboard.call import Call, Question, Reply
from pegboard.errors import QuestionFailed
from pegboard.protocol.revisions import LEGACY, MODERN
from tests.server.fake_sink import Door, Response, notification, request, said

HELLO = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}


def off(**options: Any) -> Door:
    return Door(legacy="sessionless", **options)


def apart() -> Door:
    return Door(legacy="refused", legacy_endpoints=["rpc", "sse"])


async def ask(door: Door, method: str, params: Any = None, request_id: Any = 1, **headers: str | None) -> Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return await door.send(request(method, params, request_id), named).response()


async def call(door: Door, name: str, **headers: str | None) -> Response:
    params = {"name": name, "arguments": {}, "_meta": {"progressToken": "t"}}
    return await ask(door, "tools/call", params, **headers)


# -- off -------------------------------------------------------------------------------------------------------------


async def test_initialize_opens_no_session_and_offers_nothing_that_needs_one() -> None:
    response = await ask(off(), "initialize", HELLO)
    assert (response.status, response.json["result"]["protocolVersion"]) == (200, "2025-06-18")
    assert "mcp-session-id" not in response.headers
    assert response.json["result"]["capabilities"] == {"tools": {}}


@pytest.mark.parametrize("version", [None, *sorted(LEGACY)])
async def test_a_request_is_served_in_the_revision_it_states(version: str | None) -> None:
    door = off()
    response = await ask(door, "tools/list", mcp_protocol_version=version)
    assert response.json["result"]["tools"][0]["name"] == "echo"
    assert door.probe.calls[-1].caller.version == (version or "2025-03-26")


async def test_a_call_with_a_session_of_elsewhere_is_served_like_any_other() -> None:
    door = off()
    plain = await ask(door, "tools/call", {"name": "echo", "arguments": {"a": 1}}, mcp_session_id="0" * 32)
    assert (plain.status, plain.json["result"]["content"][0]["text"]) == (200, '{"a": 1}')
    assert door.probe.calls[-1].caller.session == ""


async def test_a_call_that_speaks_before_its_answer_is_streamed_without_ids() -> None:
    response = await call(off(), "steps")
    assert [message.get("method") for message in response.messages] == ["notifications/progress"] * 2 + [None]
    assert all(event.id is None for event in response.events)


async def test_a_client_that_leaves_cancels_its_call() -> None:
    door = off()
    visit = door.send(request("tools/call", {"name": "slow", "arguments": {}}, 1))
    await door.probe.started.wait()
    visit.sink.leave()
    await door.probe.cancelled.wait()
    await visit.settled()


async def test_a_client_without_a_session_cannot_be_asked() -> None:
    told: list[str] = []

    async def handle(one: Call) -> Reply:
        try:
            await one.channel.ask({"who": Question("elicitation/create", {})})
        except QuestionFailed as failed:
            told.append(failed.message)
        return said("done")

    response = await call(off(handler=handle), "any")
    assert response.json["result"]["content"][0]["text"] == "done"
    assert "cannot be asked" in told[0]


@pytest.mark.parametrize("method", ["logging/setLevel", "resources/subscribe", "resources/unsubscribe"])
async def test_what_is_for_the_rest_of_a_session_is_refused(method: str) -> None:
    response = await ask(off(), method, {"level": "info", "uri": "a://b"}, mcp_protocol_version="2025-11-25")
    assert (response.status, response.json["id"]) == (400, 1)
    assert "session" in response.error


async def test_notifications_are_taken_batches_answered_and_the_rest_is_not_there() -> None:
    door = off()
    assert (await door.send(notification("notifications/initialized")).response()).status == 202
    body = b"[" + request("ping", None, 1) + b"," + request("tools/list", None, 2) + b"]"
    response = await door.send(body).response()
    assert sorted(answer["id"] for answer in json.loads(response.body)) == [1, 2]
    streamed = await door.send(body, {"accept": "text/event-stream"}).response()
    assert len(streamed.messages[0]) == 2
    only = await door.send(b"[" + notification("notifications/initialized") + b"]").response()
    assert only.status == 202
    newer = await door.send(body, {"mcp-protocol-version": "2025-11-25"}).response()
    assert (newer.status, newer.code) == (400, -32600)
    assert (await door.send(method="GET").response()).status == 405
    assert (await door.send(method="DELETE").response()).status == 501
    modern = {"mcp-protocol-version": MODERN}
    assert (await door.send(b"", modern, method="DELETE").response()).status == 405
    unknown = {"mcp-protocol-version": "1999-01-01"}
    assert (await door.send(b"", unknown, method="DELETE").response()).code == -32022


async def test_modern_clients_notice_nothing() -> None:
    for door in (off(), apart()):
        assert await door.is_alive()


# -- apart -----------------------------------------------------------------------------------------------------------


async def test_where_sessions_are_unavailable_the_reason_and_the_remedy_are_reported() -> None:
    response = await ask(apart(), "initialize", HELLO, 7)
    assert (response.status, response.code, response.json["id"]) == (400, -32022, 7)
    assert response.json["error"]["data"] == {"requested": "2025-06-18", "supported": [MODERN]}
    assert "--store sqlite:PATH" in response.error
    assert "--workers 1" in response.error


@pytest.mark.parametrize("headers", [{}, {"mcp-session-id": "0" * 32, "mcp-protocol-version": "2025-11-25"}])
async def test_so_is_every_other_request_of_an_older_client(headers: dict[str, str]) -> None:
    door = apart()
    plain = request("tools/call", {"name": "echo", "arguments": {}}, 1)
    for body in (plain, request("tools/list", None, 1), b"[" + plain + b"]"):
        assert (await door.send(body, headers).response()).code == -32022
    for method in ("GET", "DELETE"):
        assert (await door.send(b"", headers, method=method).response()).code == -32022
    assert door.probe.calls == []


async def test_http_with_sse_is_refused_and_rpc_is_not() -> None:
    door = apart()
    refused = await door.send(b"", {"accept": "text/event-stream"}, method="GET", path="/sse").response()
    assert refused.code == -32022
    served = await door.send(request("ping", None, 1), path="/rpc").response()
    assert served.json["result"] == {}
