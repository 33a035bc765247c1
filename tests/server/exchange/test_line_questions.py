"""A legacy client on a shared line: asked while its calls run, told at the level it set, subscribed to what it named."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any, cast

import pytest

from pegboard import Board
from pegboard.call import Call, Done, Question, Reply
from pegboard.errors import QuestionFailed
from pegboard.limits import Limits
from pegboard.server.exchange.calls_in_flight import CallsInFlight
from pegboard.server.exchange.service import Service
from pegboard.server.exchange.subscribers import Subscribers
from pegboard.server.stdio.stdio_server import StdioServer
from pegboard.server.websocket.websocket_endpoint import WebSocketConversation
from tests.server.fake_sink import notification, request
from tests.server.fake_transport import until
from tests.server.stream_client import Held

ROOTS = Question("roots/list", {})


class Pipe(asyncio.WriteTransport):
    """The peer's end of our output."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[dict[str, Any]] = []

    def write(self, data: Any) -> None:
        self.lines.append(json.loads(bytes(data)))

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...


class Source(asyncio.ReadTransport):
    """The peer's end of our input; what it says while we do not read waits."""

    def __init__(self) -> None:
        super().__init__()
        self.reading = True

    def is_closing(self) -> bool:
        return False

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True


async def ask(call: Call) -> Reply:
    """Asks for roots, as many times as its name says."""
    if call.method != "tools/call":
        return Done({"capabilities": {}})
    try:
        answers = await call.channel.ask({str(number): ROOTS for number in range(int(call.name))})
    except QuestionFailed as failed:
        return Done({"content": [{"type": "text", "text": failed.message}]})
    return Done({"content": [{"type": "text", "text": str([one["n"] for one in answers.values()])}]})


class Peer:
    kind = "stdio"

    def __init__(self, handler: Any = ask, **limits: Any) -> None:
        info, bounds = {"name": "x", "version": "1"}, Limits(**limits)
        self.pipe: Pipe | Held
        self.source: Source | Held
        self.door: StdioServer | WebSocketConversation
        if self.kind == "stdio":
            self.pipe, self.source = Pipe(), Source()
            self.door = StdioServer(handler, info, bounds, asyncio.get_running_loop())
            self.door.line.connection_made(self.pipe)
            self.door.connection_made(cast("asyncio.BaseTransport", self.source))
        else:
            self.pipe = self.source = Held()
            service = Service(handler, info, bounds, Subscribers(bounds.subscribers), "ws")
            self.door = WebSocketConversation(service, self.pipe, CallsInFlight(bounds, lambda: None))

    def say(self, line: bytes) -> None:
        assert self.source.reading
        if isinstance(self.door, StdioServer):
            self.door.data_received(line + b"\n")
        else:
            self.door.receive_text(line)

    def initialize(self, version: str = "2025-11-25") -> None:
        info = {"name": "t", "version": "1"}
        self.say(request("initialize", {"protocolVersion": version, "capabilities": {}, "clientInfo": info}, "init"))

    def call(self, count: int, request_id: Any = 1) -> None:
        self.say(request("tools/call", {"name": str(count)}, request_id))

    def answer(self, request_id: Any, **outcome: Any) -> None:
        self.say(json.dumps({"jsonrpc": "2.0", "id": request_id, **outcome}).encode())

    async def on_message(self, wanted: Callable[[dict[str, Any]], bool], count: int = 1) -> list[dict[str, Any]]:
        """The messages of a kind, once there are so many."""
        await until(lambda: sum(map(wanted, self.pipe.lines)) >= count)
        return [line for line in self.pipe.lines if wanted(line)]

    async def questions(self, count: int = 1) -> list[dict[str, Any]]:
        return await self.on_message(lambda line: line.get("method") == "roots/list", count)

    async def result(self, request_id: Any = 1) -> Any:
        [answer] = await self.on_message(lambda line: line.get("id") == request_id and "method" not in line)
        return answer.get("result", answer.get("error"))


@pytest.fixture(autouse=True, params=["stdio", "ws"])
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """On which kind of line all peers are."""
    monkeypatch.setattr(Peer, "kind", request.param)


def text(result: Any) -> str:
    return str(result["content"][0]["text"])


async def test_a_call_asks_on_the_line_and_is_answered_on_it() -> None:
    peer = Peer()
    peer.initialize()
    peer.call(2)
    first, second = await peer.questions(2)
    peer.answer("unknown", result={})
    peer.answer(second["id"], result={"n": 2})
    peer.answer(first["id"], result={"n": 1})
    peer.answer(first["id"], result={"n": 3})
    assert text(await peer.result()) == "[1, 2]"


async def test_a_client_that_cannot_answer_says_so() -> None:
    peer = Peer()
    peer.initialize()
    peer.call(1)
    [asked] = await peer.questions()
    peer.answer(asked["id"], error={"code": -32601, "message": "no roots here"})
    assert text(await peer.result()) == "The client could not answer roots/list: no roots here"


async def test_a_cancelled_call_withdraws_its_question_and_is_not_answered() -> None:
    peer = Peer()
    peer.initialize()
    peer.call(1)
    [asked] = await peer.questions()
    peer.say(notification("notifications/cancelled", {"requestId": 1}))
    [withdrawn] = await peer.on_message(lambda line: line.get("method") == "notifications/cancelled")
    assert withdrawn["params"]["requestId"] == asked["id"]
    await until(lambda: not peer.door.calls)
    assert not [line for line in peer.pipe.lines if line.get("id") == 1]


async def test_calls_that_wait_for_answers_do_not_keep_the_answers_out() -> None:
    peer = Peer(calls_per_caller=2)
    peer.initialize()
    await until(lambda: not peer.door.calls)
    for number in range(4):
        peer.call(1, number)
        await peer.questions(number + 1)
    assert peer.source.reading
    for number, asked in enumerate(await peer.questions(4)):
        peer.answer(asked["id"], result={"n": number})
        assert text(await peer.result(number)) == f"[{number}]"


async def test_there_is_an_end_to_the_calls_that_wait() -> None:
    peer = Peer(calls_per_caller=1, calls=3)
    peer.initialize()
    await until(lambda: not peer.door.calls)
    for number in range(3):
        peer.call(1, number)
        await peer.questions(number + 1)
    assert not peer.source.reading
    for task, _ in peer.door.calls.values():
        task.cancel()
    await until(lambda: peer.source.reading)


async def test_a_response_to_an_unknown_request_is_ignored() -> None:
    peer = Peer()
    peer.answer("x", result={})
    peer.initialize()
    peer.answer("x", result={})
    peer.say(request("ping", None, 9))
    assert await peer.result(9) == {}


@pytest.mark.parametrize("level", ["debug", "emergency"])
async def test_the_level_of_a_connection_is_set(level: str) -> None:
    heard: list[str | None] = []

    async def listen(call: Call) -> Reply:
        heard.append(call.caller.log_level)
        return Done({"capabilities": {}, "tools": []})

    peer = Peer(listen)
    peer.initialize()
    peer.say(request("tools/list", None, 1))
    await peer.result(1)
    peer.say(request("logging/setLevel", {"level": level}, 2))
    assert await peer.result(2) == {}
    peer.say(request("tools/list", None, 3))
    await peer.result(3)
    peer.say(request("logging/setLevel", {"level": "loud"}, 4))
    assert (await peer.result(4))["code"] == -32602
    assert heard[1:] == ["info", level]


async def test_a_subscription_is_kept_for_the_connection() -> None:
    board = Board("x")

    @board.resource("test://a")
    async def a() -> str:
        return "a"

    peer = Peer(board.handler)
    peer.initialize()
    peer.say(request("resources/subscribe", {"uri": "test://a"}, 1))
    assert await peer.result(1) == {}
    assert peer.door.following.uris == {"test://a"}
    peer.say(request("resources/subscribe", {"uri": "test://b"}, 2))
    assert (await peer.result(2))["code"] == -32002
    peer.say(request("resources/subscribe", {}, 3))
    assert (await peer.result(3))["code"] == -32602
    assert peer.door.following.uris == {"test://a"}
    peer.say(request("resources/unsubscribe", {"uri": "test://a"}, 4))
    assert await peer.result(4) == {}
    assert peer.door.following.uris == set()
