"""WebSockets that another server holds: mounted boards stream as our own door does."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import pytest
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.routing import Mount
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from pegboard import Board, Limits, ToolConnector
from pegboard.server.asgi.asgi_websocket import AsgiWebSocket
from pegboard.server.http_types import Upgrade
from pegboard.server.websocket.websocket_connection import take_over
from tests.server.asgi.test_asgi_app import serving
from tests.server.stream_client import Streamer
from tests.waiting import until

GUID = "550e8400-e29b-41d4-a716-446655440000"


def board(**limits: Any) -> Board:
    made = Board("mounted", limits=Limits(**limits))

    @made.tool
    async def echo(connector: ToolConnector) -> str:
        async for chunk in connector:
            await connector.write(chunk)
        return "echoed"

    @made.tool
    async def flood(connector: ToolConnector) -> None:
        try:
            while True:
                await connector.write(bytes(65536))
                made.chunks += 1  # type: ignore[attr-defined]
        finally:
            made.ended.set()  # type: ignore[attr-defined]

    made.chunks, made.ended = 0, asyncio.Event()  # type: ignore[attr-defined]
    return made


def routed(kind: Any) -> Any:
    app = kind()
    app.routes.append(board().asgi(ws="/ws"))
    return app


PLACES: dict[str, tuple[Any, str]] = {
    "alone": (lambda: board().asgi(ws="/ws"), "/ws"),
    "with a slash": (lambda: board().asgi(ws="/ws"), "/ws/"),
    "at another path": (lambda: board().asgi(ws="/socket"), "/socket"),
    "a route of Starlette": (lambda: routed(Starlette), "/ws"),
    "a route of FastAPI": (lambda: routed(FastAPI), "/ws"),
    "mounted below": (lambda: Starlette(routes=[Mount("/api", board().asgi(ws="/ws"))]), "/api/ws"),
    "a route of an inner application": (
        lambda: Starlette(routes=[Mount("/api", Starlette(routes=[board().asgi(ws="/ws")]))]),
        "/api/ws",
    ),
}


@pytest.mark.parametrize("name", PLACES)
async def test_it_streams_where_it_is_put(name: str) -> None:
    make, path = PLACES[name]
    async with (
        serving(make()) as port,
        connect(f"ws://127.0.0.1:{port}{path}", proxy=None, subprotocols=["mcp"]) as socket,
    ):
        assert socket.subprotocol == "mcp"
        client = Streamer(socket)
        await client.start("echo", GUID, binary=True)
        for index in range(3):
            await client.bytes(GUID, index, bytes([index]))
        await client.done(GUID)
        assert (await client.result(GUID))["content"][0]["text"] == "echoed"
        assert [heard[2] for heard in client.heard if isinstance(heard, tuple)] == [b"\0", b"\1", b"\2"]


REFUSED: dict[str, tuple[int, dict[str, Any]]] = {
    "another path": (404, {"path": "/mcp"}),
    "a page from elsewhere": (403, {"origin": "https://evil.example"}),
    "another host": (421, {"name": "evil.example"}),
    "two hosts": (400, {"additional_headers": {"Host": "127.0.0.1"}}),
}


@pytest.mark.parametrize("name", REFUSED)
async def test_it_is_guarded_as_our_own_door_is(name: str) -> None:
    status, how = REFUSED[name]
    async with serving(board().asgi(ws="/ws")) as port:
        options = {**how}
        url = f"ws://{options.pop('name', '127.0.0.1')}:{port}{options.pop('path', '/ws')}"
        with pytest.raises(InvalidStatus) as refused:
            await connect(url, proxy=None, host="127.0.0.1", port=port, **options)
        assert refused.value.response.status_code == status


@pytest.mark.parametrize("make", [lambda: board().asgi(), lambda: FastAPI(routes=[board().asgi()])])
async def test_a_mounted_board_accepts_no_websocket_unless_asked(make: Any) -> None:
    async with serving(make()) as port:
        with pytest.raises(InvalidStatus) as refused:
            await connect(f"ws://127.0.0.1:{port}/ws", proxy=None)
        assert refused.value.response.status_code in (403, 404)


async def test_a_server_that_cannot_answer_in_http_closes_with_the_status() -> None:
    sent: list[Any] = []
    scope = {
        "type": "websocket", "path": "/ws", "headers": [(b"host", b"evil.example")], "query_string": b"",
        "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 80), "scheme": "ws",
    }  # fmt: skip

    async def receive() -> Any:
        return {"type": "websocket.connect"}

    async def send(event: Any) -> None:
        sent.append(event)

    await board().asgi(ws="/ws")(scope, receive, send)
    assert [(event["type"], event["code"]) for event in sent] == [("websocket.close", 4421)]


async def test_a_message_too_large_ends_the_socket() -> None:
    app = board(body_bytes=1000).asgi(ws="/ws")
    async with serving(app) as port, connect(f"ws://127.0.0.1:{port}/ws", proxy=None) as socket:
        with suppress(ConnectionClosed):
            await socket.send("x" * 1001)
        await socket.wait_closed()
        assert socket.close_code == 1009


async def test_a_tool_waits_for_a_slow_reader_and_ends_with_it() -> None:
    one: Any = board()
    async with serving(one.asgi(ws="/ws")) as port:
        socket = await connect(f"ws://127.0.0.1:{port}/ws", proxy=None, max_queue=1, compression=None)
        await Streamer(socket).start("flood", "f")
        await until(lambda: one.chunks > 2)
        before = -1
        while before != one.chunks:
            before = one.chunks
            await asyncio.sleep(0.2)
        socket.transport.abort()
        await one.ended.wait()


async def test_a_socket_whose_messages_are_not_read_ends_at_the_limit() -> None:
    opened: list[AsgiWebSocket] = []
    sent: list[Any] = []
    reads = asyncio.Event()

    class Guest:
        def receive_text(self, message: bytes) -> None: ...

        def receive_bytes(self, message: bytes) -> None: ...

        def resume_if_room(self) -> None: ...

        def leave(self) -> None: ...

    def open_socket(socket: Any) -> Any:
        opened.append(socket)
        return Guest()

    async def receive() -> Any:
        await asyncio.Event().wait()

    async def send(event: Any) -> None:
        await reads.wait()
        sent.append(event)

    limits = Limits(buffered_bytes=10_000)
    served = asyncio.ensure_future(AsgiWebSocket(limits).serve(Upgrade(open_socket, take_over), receive, send))
    await until(lambda: bool(opened))
    opened[0].write(b"x" * 4000)
    await asyncio.sleep(0)
    for _ in range(20):
        opened[0].write(b"x" * 4000)
    reads.set()
    await served
    assert [event["type"] for event in sent] == ["websocket.send", "websocket.close"]
    assert sent[1]["code"] == 1008


async def test_what_is_not_read_is_not_received() -> None:
    received = 0
    held: list[AsgiWebSocket] = []

    class Guest:
        def receive_text(self, message: bytes) -> None:
            held[0].hold(True)

        def receive_bytes(self, message: bytes) -> None: ...

        def resume_if_room(self) -> None: ...

        def leave(self) -> None: ...

    def open_socket(socket: Any) -> Any:
        held.append(socket)
        return Guest()

    async def receive() -> Any:
        nonlocal received
        received += 1
        return {"type": "websocket.receive", "text": "x"} if received < 3 else {"type": "websocket.disconnect"}

    async def send(event: Any) -> None: ...

    served = asyncio.ensure_future(AsgiWebSocket(Limits()).serve(Upgrade(open_socket, take_over), receive, send))
    await until(lambda: received == 1)
    for _ in range(5):
        await asyncio.sleep(0)
    assert received == 1
    held[0].hold(False)
    await until(lambda: received == 2)
    held[0].hold(False)
    await served
