"""`POST /rpc`: plain JSON-RPC, one message or many, with no session."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from pegboard import Board, Context, Limits
from pegboard.call import Call, Notification, Question, Reply
from pegboard.errors import QuestionFailed
from pegboard.protocol.revisions import LEGACY, MODERN
from tests.server.fake_sink import Door, Response, Visit, envelope, mirror, notification, request, said
from tests.stalls import no_stalls  # noqa: F401 — it is on for every test here

HELLO = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}


class Rpc:
    """The door by itself."""

    def __init__(self, **options: Any) -> None:
        self.door = Door(legacy_endpoints=["rpc"], **options)
        self.probe = self.door.probe

    def send(self, body: bytes, **headers: str | None) -> Visit:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.door.send(body, {"accept": "application/json", **named}, path="/rpc")

    async def ask(self, method: str, params: Any = None, request_id: Any = 1, **headers: str | None) -> Response:
        return await self.send(request(method, params, request_id), **headers).response()

    async def call(self, name: str, request_id: Any = 1) -> Response:
        return await self.ask("tools/call", {"name": name, "arguments": {}}, request_id)


def batch(*messages: bytes) -> bytes:
    return b"[" + b",".join(messages) + b"]"


async def test_the_responses_of_a_batch_are_in_the_order_of_its_requests() -> None:
    rpc = Rpc()
    visit = rpc.send(batch(request("tools/call", {"name": "slow"}, 1), request("ping", None, 2)))
    await rpc.probe.started.wait()
    rpc.probe.release.set()
    assert [response["id"] for response in (await visit.response()).json] == [1, 2]


async def test_the_answers_of_a_batch_have_a_limit_together() -> None:
    params = {"name": "echo", "arguments": {"text": "x" * 600}}
    body = batch(*(request("tools/call", params, number) for number in range(5)))
    answers = (await Rpc(limits=Limits(result_bytes=1000)).send(body).response()).json
    assert ["result" in one for one in answers] == [True, True, False, False, False]
    assert {one["error"]["message"] for one in answers[2:]} == {
        "The responses of this batch are too large together: send this request by itself"
    }


# -- one message -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("request_id", [1, "one", 0, ""])
async def test_a_request_is_answered_by_json_and_no_session(request_id: Any) -> None:
    response = await Rpc().ask("tools/call", {"name": "echo", "arguments": {"a": 1}}, request_id)
    assert (response.status, response.content_type) == (200, "application/json")
    assert response.json["id"] == request_id
    assert response.json["result"]["content"][0]["text"] == '{"a": 1}'
    assert "mcp-session-id" not in response.headers


async def test_initialize_is_answered_and_nothing_is_remembered() -> None:
    rpc = Rpc()
    response = await rpc.ask("initialize", HELLO)
    assert response.json["result"]["protocolVersion"] == "2025-06-18"
    assert response.json["result"]["serverInfo"]["name"] == "probe"
    assert "mcp-session-id" not in response.headers
    assert len(rpc.door.endpoint.sessions) == 0
    assert (await rpc.ask("tools/list")).json["result"]["tools"][0]["name"] == "echo"


async def test_no_capability_is_claimed_that_only_a_session_could_use() -> None:
    board = Board("b")
    board.tool("one")(lambda: 1)
    board.resource("a:b")(lambda: "x")
    told = (await Rpc(handler=board.handler).ask("initialize", HELLO)).json["result"]["capabilities"]
    assert "logging" not in told
    assert {"tools": told["tools"], "resources": told["resources"]} == {"tools": {}, "resources": {}}


@pytest.mark.parametrize("method", ["logging/setLevel", "resources/subscribe", "resources/unsubscribe"])
async def test_what_is_for_the_rest_of_a_session_is_refused_with_the_way_to_one(method: str) -> None:
    response = await Rpc().ask(method, {"uri": "a:b", "level": "info"})
    assert (response.status, response.code) == (200, -32602)
    assert "/mcp" in response.error


async def test_ping_is_answered() -> None:
    assert (await Rpc().ask("ping")).json == {"jsonrpc": "2.0", "id": 1, "result": {}}


@pytest.mark.parametrize("version", [None, *sorted(LEGACY)])
async def test_a_request_speaks_the_revision_it_states_or_2025_03_26(version: str | None) -> None:
    rpc = Rpc()
    response = await rpc.ask("tools/list", mcp_protocol_version=version)
    [call] = rpc.probe.calls
    assert call.caller.version == (version or "2025-03-26")
    tool = response.json["result"]["tools"][0]
    assert ("title" in tool) == ((version or "2025-03-26") >= "2025-06-18")


async def test_a_modern_request_is_known_by_its_envelope_and_needs_no_headers() -> None:
    rpc = Rpc()
    response = await rpc.ask("tools/list", {"_meta": envelope()})
    assert response.json["result"]["resultType"] == "complete"
    assert rpc.probe.calls[0].caller.version == MODERN
    stated = await rpc.ask("tools/list", {"_meta": envelope()}, mcp_protocol_version=MODERN)
    assert "ttlMs" in stated.json["result"]


@pytest.mark.parametrize(
    ("params", "version", "code"),
    [(None, MODERN, -32602), ({"_meta": envelope()}, "2025-11-25", -32020), ({"_meta": envelope("1")}, None, -32022)],
)
async def test_a_modern_request_in_disorder_is_refused(params: Any, version: str | None, code: int) -> None:
    response = await Rpc().ask("tools/list", params, mcp_protocol_version=version)
    assert (response.code, response.json["id"]) == (code, 1)


async def test_a_modern_tool_asks_by_its_answer() -> None:
    board = Board("b")

    @board.tool
    async def ask(ctx: Context) -> str:
        await ctx.roots()
        return "never"

    rpc = Rpc(handler=board.handler)
    able = {**envelope(), "io.modelcontextprotocol/clientCapabilities": {"roots": {}}}
    response = await rpc.ask("tools/call", {"name": "ask", "arguments": {}, "_meta": able})
    assert response.json["result"]["resultType"] == "input_required"


async def test_a_question_to_a_legacy_client_fails_and_the_tool_is_notified() -> None:
    async def handler(call: Call) -> Reply:
        try:
            await call.channel.ask({"r": Question("roots/list", {})})
        except QuestionFailed as failed:
            return said(failed.message)
        raise AssertionError("nobody answered")

    response = await Rpc(handler=handler).call("x")
    assert "/mcp" in response.json["result"]["content"][0]["text"]


@pytest.mark.parametrize("version", [None, MODERN])
async def test_a_listen_is_sent_where_streams_are(version: str | None) -> None:
    params = {"notifications": {"toolsListChanged": True}, "_meta": envelope()}
    response = await Rpc().ask("subscriptions/listen", params, mcp_protocol_version=version)
    assert (response.status, response.code) == (400, -32600)
    assert "/mcp" in response.error


async def test_what_a_call_says_before_its_answer_has_nowhere_to_go() -> None:
    params = {"name": "steps", "arguments": {}, "_meta": {"progressToken": 1}}
    response = await Rpc().ask("tools/call", params)
    assert response.json["result"]["content"][0]["text"] == "done"


async def test_a_caller_without_a_session_asked_for_no_log_messages() -> None:
    seen: list[str | None] = []

    async def handler(call: Call) -> Reply:
        seen.append(call.caller.log_level)
        await call.channel.emit(Notification("notifications/message", {"level": "info", "data": "x"}))
        return said("done")

    assert (await Rpc(handler=handler).call("x")).status == 200
    assert seen == [None]


# -- statuses ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    [
        notification("notifications/initialized"),
        notification("notifications/cancelled", {"requestId": 1}),
        notification("notifications/nobody/knows"),
        batch(notification("notifications/initialized"), notification("notifications/cancelled", {"requestId": 1})),
    ],
)
async def test_notifications_alone_are_answered_by_204_and_nothing(body: bytes) -> None:
    response = await Rpc().send(body).response()
    assert (response.status, response.body) == (204, b"")


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", -32700),
        (b"{", -32700),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":NaN}}', -32700),
        (b'"\xff"', -32700),
        (b"[" * 200 + b"]" * 200, -32700),
        (b"3", -32600),
        (b"[]", -32600),
        (b'{"id":1}', -32600),
        (request("ping", [1]), -32600),
        (request(7), -32600),
        (json.dumps({"jsonrpc": "2.0", "id": 1, "result": {}}).encode(), -32600),
    ],
)
async def test_an_invalid_request_is_rejected_with_400(body: bytes, code: int) -> None:
    rpc = Rpc()
    response = await rpc.send(body).response()
    assert (response.status, response.code) == (400, code)
    assert not rpc.probe.calls
    assert (await rpc.ask("ping")).status == 200


@pytest.mark.parametrize(
    ("method", "params", "code"),
    [("no/such", None, -32601), ("tools/call", {"name": "nope"}, -32602), ("tools/call", {}, -32602)],
)
async def test_an_error_is_an_answer_like_any_other(method: str, params: Any, code: int) -> None:
    response = await Rpc().ask(method, params)
    assert (response.status, response.code, response.json["id"]) == (200, code, 1)


async def test_a_failure_of_ours_is_500_and_its_text_stays_here(caplog: pytest.LogCaptureFixture) -> None:
    response = await Rpc().call("broken")
    assert (response.status, response.code) == (500, -32603)
    assert "error id" in response.error
    assert "secret" not in response.body.decode()
    assert "a secret" in caplog.text


async def test_an_overloaded_server_responds_503_with_retry_after() -> None:
    rpc = Rpc(limits=Limits(calls=1))
    first = rpc.send(request("tools/call", {"name": "slow"}))
    await rpc.probe.started.wait()
    response = await rpc.call("echo")
    assert (response.status, response.headers["retry-after"]) == (503, "1")
    rpc.probe.release.set()
    assert (await first.response()).status == 200
    assert not rpc.door.endpoint.calls


# -- arrays ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [None, *sorted(LEGACY)])
async def test_an_array_is_served_in_every_revision(version: str | None) -> None:
    body = batch(
        request("tools/list", None, "a"), notification("notifications/initialized"), request("ping", None, "b")
    )
    response = await Rpc().send(body, mcp_protocol_version=version).response()
    assert response.status == 200
    assert {one["id"] for one in response.json} == {"a", "b"}


async def test_an_array_of_one_is_answered_by_an_array() -> None:
    response = await Rpc().send(batch(request("ping"))).response()
    assert response.json == [{"jsonrpc": "2.0", "id": 1, "result": {}}]


async def test_an_array_may_mix_the_eras_and_hold_the_handshake() -> None:
    body = batch(
        request("initialize", HELLO, 1), request("tools/list", {"_meta": envelope()}, 2), request("tools/list", None, 3)
    )
    answers = {one["id"]: one["result"] for one in (await Rpc().send(body).response()).json}
    assert answers[1]["protocolVersion"] == "2025-06-18"
    assert "resultType" in answers[2]
    assert "resultType" not in answers[3]


async def test_the_calls_of_an_array_run_side_by_side() -> None:
    rpc = Rpc()
    visit = rpc.send(batch(*(request("tools/call", {"name": "slow"}, number) for number in range(3))))
    await rpc.probe.wait_for_calls(3)
    rpc.probe.release.set()
    assert [one["id"] for one in (await visit.response()).json] == [0, 1, 2]


async def test_each_bad_message_of_an_array_is_refused_by_itself() -> None:
    body = batch(
        b"1", request("no/such", None, 2), request("ping", None, 3), b"[]", request("tools/call", {"name": "broken"}, 5)
    )
    response = await Rpc().send(body).response()
    assert response.status == 200
    told = {one.get("id"): one.get("error", {}).get("code") for one in response.json}
    assert told == {None: -32600, 2: -32601, 3: None, 5: -32603}
    assert len(response.json) == 5


async def test_an_id_that_comes_twice_in_an_array_is_served_once() -> None:
    rpc = Rpc()
    body = batch(*(request("tools/call", {"name": "echo"}, number) for number in (1, 1, "1")))
    answers = (await rpc.send(body).response()).json
    assert sorted(("error" in one, type(one["id"]).__name__) for one in answers) == [
        (False, "int"),
        (False, "str"),
        (True, "int"),
    ]
    assert len(rpc.probe.calls) == 2


async def test_an_array_holds_a_hundred_messages() -> None:
    rpc = Rpc()
    many = [request("ping", None, number) for number in range(101)]
    assert len((await rpc.send(batch(*many[:100])).response()).json) == 100
    response = await rpc.send(batch(*many)).response()
    assert (response.status, response.code) == (400, -32600)


# -- leaving -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["single", "array"])
async def test_who_leaves_has_cancelled_its_calls(form: str) -> None:
    rpc = Rpc()
    one = request("tools/call", {"name": "slow"})
    visit = rpc.send(one if form == "single" else batch(one, request("ping", None, 2)))
    await rpc.probe.started.wait()
    visit.sink.leave()
    await rpc.probe.cancelled.wait()
    await asyncio.wait({visit._task} if visit._task else set())
    assert not rpc.door.endpoint.calls


async def test_a_cancelled_notification_does_not_cancel_a_call() -> None:
    rpc = Rpc()
    visit = rpc.send(request("tools/call", {"name": "slow"}, 1))
    await rpc.probe.started.wait()
    await rpc.send(notification("notifications/cancelled", {"requestId": 1})).response()
    rpc.probe.release.set()
    assert (await visit.response()).json["result"]


async def test_two_clients_may_use_the_same_id_at_once() -> None:
    rpc = Rpc()
    visits = [rpc.send(request("tools/call", {"name": "slow"}, 1)) for _ in range(2)]
    await rpc.probe.wait_for_calls(2)
    rpc.probe.release.set()
    assert [(await visit.response()).json["id"] for visit in visits] == [1, 1]


@pytest.mark.parametrize("how", ["single", "array"])
async def test_unfinished_calls_receive_an_error_when_the_server_shuts_down(how: str) -> None:
    rpc = Rpc()
    one = request("tools/call", {"name": "slow"})
    visit = rpc.send(one if how == "single" else batch(one, request("tools/call", {"name": "echo"}, 2)))
    await rpc.probe.started.wait()
    await rpc.door.endpoint.drain(0.01, asyncio.Event())
    response = await visit.response()
    if how == "single":
        assert (response.status, response.code, response.headers["retry-after"]) == (503, -32603, "1")
    else:
        assert {item["id"]: "error" in item for item in response.json} == {1: True, 2: False}


async def test_headers_of_the_newest_transport_are_no_hindrance() -> None:
    rpc = Rpc()
    response = await rpc.door.send(
        request("tools/list", {"_meta": envelope()}), mirror("tools/list"), path="/rpc"
    ).response()
    assert response.status == 200
