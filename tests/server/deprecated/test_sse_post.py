"""`POST /sse`: the answers as events, and one more that says they were all."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from pegboard.limits import Limits
from pegboard.server.http_types import Headers
from tests.server.fake_sink import Door, Visit, envelope, notification, request
from tests.server.streamable_http.test_mcp_endpoint import Ticking
from tests.waiting import until

DONE = ("done", {})


class OneShot:
    """The door by itself."""

    def __init__(self, limits: Limits | None = None, **options: Any) -> None:
        self.door = Door(limits, legacy_endpoints=["oneshot"], **options)
        self.probe = self.door.probe

    def send(self, body: bytes, **headers: str | None) -> Visit:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.door.send(body, {"accept": "text/event-stream", **named}, path="/sse")

    def call(self, name: str, request_id: Any = 1, token: Any = None) -> Visit:
        params: dict[str, Any] = {"name": name, "arguments": {}}
        if token is not None:
            params["_meta"] = {"progressToken": token}
        return self.send(request("tools/call", params, request_id))


async def told(visit: Visit) -> list[tuple[str, Any]]:
    """The kind and the data of each event; their ids count from 1."""
    response = await visit.response()
    assert (response.status, response.content_type) == (200, "text/event-stream")
    events = response.events
    assert [event.id for event in events] == [str(number) for number in range(1, len(events) + 1)]
    return [(event.name, json.loads(event.data)) for event in events]


def batch(*messages: bytes) -> bytes:
    return b"[" + b",".join(messages) + b"]"


async def test_the_answer_is_an_event_and_the_next_says_it_was_the_last() -> None:
    shot = OneShot()
    response = await shot.send(request("ping")).response()
    assert response.body == (
        b'id: 1\nevent: message\ndata: {"jsonrpc":"2.0","id":1,"result":{}}\n\nid: 2\nevent: done\ndata: {}\n\n'
    )
    headers: Headers = response.fields
    assert (b"x-accel-buffering", b"no") in headers
    assert (b"cache-control", b"no-cache") in headers


async def test_what_a_call_says_before_comes_before() -> None:
    *notices, answer, last = await told(OneShot().call("steps", token="t"))
    assert [notice["params"]["progress"] for _, notice in notices] == [1, 2]
    assert {name for name, _ in notices} == {"message"}
    assert answer[1]["result"]["content"][0]["text"] == "done"
    assert last == DONE


async def test_each_answer_of_an_array_is_sent_as_it_is_there() -> None:
    shot = OneShot()
    visit = shot.send(
        batch(
            request("tools/call", {"name": "slow"}, 1),
            notification("notifications/initialized"),
            request("tools/call", {"name": "echo"}, 2),
        )
    )
    await shot.probe.started.wait()
    await until(lambda: b'"id":2' in visit.sink.written)
    assert not visit.sink.ended
    shot.probe.release.set()
    events = await told(visit)
    assert [data.get("id") for _, data in events] == [2, 1, None]
    assert events[-1] == DONE


async def test_notifications_alone_are_followed_by_the_end() -> None:
    assert await told(OneShot().send(notification("notifications/initialized"))) == [DONE]


@pytest.mark.parametrize(
    ("body", "code"),
    [(b"{", -32700), (b"", -32700), (b"[]", -32600), (b"[1", -32700), (b"3", -32600), (batch(*[b"1"] * 101), -32600)],
)
async def test_what_cannot_be_read_is_an_error_event(body: bytes, code: int) -> None:
    [(name, data), last] = await told(OneShot().send(body))
    assert (name, data["error"]["code"], "id" in data) == ("error", code, False)
    assert last == DONE


async def test_in_an_array_only_what_cannot_be_read_is_an_error_event() -> None:
    events = await told(OneShot().send(batch(b"1", request("no/such", None, 2), request("ping", None, 3))))
    kinds = {(name, data.get("id"), "error" in data) for name, data in events}
    assert kinds == {("error", None, True), ("message", 2, True), ("message", 3, False), ("done", None, False)}


async def test_a_failure_of_ours_is_an_answer_and_its_text_stays_here() -> None:
    [(name, data), last] = await told(OneShot().call("broken"))
    assert (name, data["id"], data["error"]["code"], last) == ("message", 1, -32603, DONE)
    assert "secret" not in json.dumps(data)


async def test_a_modern_request_is_known_by_its_envelope() -> None:
    [(_, data), _] = await told(OneShot().send(request("tools/list", {"_meta": envelope()})))
    assert data["result"]["resultType"] == "complete"


async def test_a_full_house_is_503() -> None:
    shot = OneShot(Limits(calls=1))
    first = shot.call("slow")
    await shot.probe.started.wait()
    response = await shot.call("echo").response()
    assert (response.status, response.headers["retry-after"]) == (503, "1")
    shot.probe.release.set()
    assert (await told(first))[-1] == DONE


async def test_a_silent_stream_is_kept_alive_once_for_all_its_calls() -> None:
    clock = Ticking()
    shot = OneShot(loop=clock)
    visit = shot.send(batch(*(request("tools/call", {"name": "slow"}, number) for number in range(3))))
    await shot.probe.wait_for_calls(3)
    assert visit.sink.started.is_set()
    clock.pass_time(16)
    assert bytes(visit.sink.written) == b": keep-alive\n\n"
    shot.probe.release.set()
    assert len(await told(visit)) == 4
    clock.pass_time(2)
    assert not clock.timers, "no timer runs when no call does"


@pytest.mark.parametrize("form", ["single", "array"])
async def test_who_leaves_has_cancelled_its_calls(form: str) -> None:
    shot = OneShot()
    one = request("tools/call", {"name": "slow"})
    visit = shot.send(one if form == "single" else batch(one, request("tools/call", {"name": "slow"}, 2)))
    await shot.probe.started.wait()
    visit.sink.leave()
    await shot.probe.cancelled.wait()
    assert visit._task is not None
    await asyncio.wait({visit._task})
    assert not shot.door.endpoint.calls
    assert not shot.door.endpoint._calls.followers
    assert not visit.sink.written


async def test_a_reader_who_never_reads_stops_his_own_call_alone() -> None:
    shot = OneShot()
    slow = shot.call("chatty", token=1)
    await shot.probe.started.wait()
    slow.sink.clog()
    shot.probe.release.set()
    assert (await told(shot.call("echo", 2)))[-1] == DONE
    assert not shot.probe.finished.is_set()
    slow.sink.unclog()
    assert (await told(slow))[-1] == DONE


async def test_unfinished_calls_receive_an_error_when_the_server_shuts_down() -> None:
    shot = OneShot()
    visit = shot.call("slow")
    await shot.probe.started.wait()
    await shot.door.endpoint.drain(0.01, asyncio.Event())
    [(_, data), last] = await told(visit)
    assert (data["error"]["code"], last) == (-32603, DONE)
