"""However a WebSocket ends, at whatever moment, that is not an error of ours: nothing is logged, and nothing is left."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from pegboard import Board, Limits, ToolConnector
from pegboard.server.asgi.asgi_websocket import AsgiWebSocket
from pegboard.server.http_types import Upgrade
from pegboard.server.websocket.websocket_connection import take_over
from tests.depth import every_case
from tests.quiet import nothing_logged
from tests.server.asgi.test_asgi_app import serving
from tests.server.stream_client import serve
from tests.server.websocket.test_websocket_connection import open_socket
from tests.waiting import until

pytestmark = every_case


def board() -> Board:
    made = Board("ends", limits=Limits())

    @made.tool
    async def pong() -> str:
        return "pong"

    @made.tool
    async def soon() -> str:
        for _ in range(3):
            await asyncio.sleep(0)
        return "soon"

    @made.tool
    async def flood(connector: ToolConnector) -> None:
        while True:
            await connector.write(bytes(65_536))

    return made


@asynccontextmanager
async def own_door() -> AsyncIterator[int]:
    async with await serve(board()) as house:
        yield house.server.port
        await until(lambda: not house.server.connections.live)


DOORS = {
    "our own door": own_door,
    "uvicorn": lambda: serving(board().asgi(ws="/ws")),
    "uvicorn with another protocol": lambda: serving(board().asgi(ws="/ws"), ws="websockets-sansio"),
}


def frame(opcode: int, payload: bytes) -> bytes:
    """As a client sends it, masked with nothing."""
    length = bytes([0x80 | len(payload)]) if len(payload) < 126 else b"\xfe" + len(payload).to_bytes(2, "big")
    return bytes([0x80 | opcode]) + length + bytes(4) + payload


def call(tool: str, number: int) -> bytes:
    params = {
        "name": tool,
        "_meta": {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
        },
    }
    message = {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}
    return frame(1, json.dumps(message).encode())


START = frame(1, json.dumps({"type": "start", "id": "f", "meta": {"method": "flood", "binary": True}}).encode())
CLOSE = frame(8, (1000).to_bytes(2, "big"))
PING = frame(9, b"there?")
PIECES = {
    "call": call("pong", 1),
    "slow call": call("soon", 2),
    "stream": START,
    "ping": PING,
    "close": CLOSE,
    "bytes": frame(2, b"x"),
    "nonsense": b"\xff\xff",
}
ENDINGS = {
    "a call and a close at once": [b"call", b"close"],
    "a slow call and a close at once": [b"slow call", b"close"],
    "calls before and after the close": [b"call", b"close", b"call"],
    "a stream and a close at once": [b"stream", b"close"],
    "a stream, then a close": [b"stream", b"", b"close"],
    "a stream, then nonsense": [b"stream", b"", b"nonsense"],
    "a call and nonsense at once": [b"call", b"nonsense", b"call"],
    "two closes": [b"close", b"close"],
    "a ping after the close": [b"close", b"ping", b"call"],
    "a call and nothing more": [b"call"],
    "a stream and nothing more": [b"stream", b""],
}


async def end(port: int, pieces: list[bytes], *, reset: bool) -> None:
    """Say these, all at once but where one is empty; then leave, politely or not."""
    _, writer = await open_socket(port)
    for piece in pieces:
        if piece:
            writer.write(PIECES[piece.decode()])
        else:
            await asyncio.sleep(0)
            await asyncio.sleep(0)
    if reset:
        # Closing now resets the connection.
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        await writer.drain()
    writer.close()
    with suppress(ConnectionError):
        await writer.wait_closed()


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("reset", [False, True], ids=["closed", "reset"])
@pytest.mark.parametrize("ending", ENDINGS)
async def test_nothing_is_logged_however_a_peer_leaves(
    door: str, ending: str, reset: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async with DOORS[door]() as port:
        with nothing_logged(caplog):
            await asyncio.gather(*(end(port, ENDINGS[ending], reset=reset) for _ in range(5)))
            # Others are served meanwhile and after.
            reader, writer = await open_socket(port)
            writer.write(call("pong", 7))
            assert b"pong" in await asyncio.wait_for(reader.read(1000), 5)
            writer.close()
            await writer.wait_closed()


@pytest.mark.parametrize("ending", ["call", "slow call", "stream", "close"])
async def test_nothing_is_logged_where_the_server_leaves_at_the_same_time(
    ending: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with await serve(board()) as house:
        with nothing_logged(caplog):
            for turns in range(6):
                reader, writer = await open_socket(house.server.port)
                [one] = house.server.connections.live
                writer.write(PIECES[ending])
                for _ in range(turns):
                    await asyncio.sleep(0)
                one.close()
                one.close()
                writer.write(PIECES[ending] + CLOSE)
                await asyncio.wait_for(reader.read(), 5)
                writer.close()
                with suppress(ConnectionError):
                    await writer.wait_closed()
                await until(lambda: not house.server.connections.live)


async def test_what_has_been_sent_in_any_script_is_held_no_more() -> None:
    """By another server: what was counted in bytes is taken back in bytes."""
    sent: list[str] = []
    over = asyncio.Event()

    class Guest:
        held = 0

        def __init__(self, made: AsgiWebSocket) -> None:
            for _ in range(20):
                made.write("é".encode() * 5000)
            made.close(1000, "")

        def resume_if_room(self) -> None: ...

        def leave(self) -> None: ...

    async def receive() -> Any:
        await over.wait()

    async def send(event: Any) -> None:
        sent.append(event["type"])

    made = AsgiWebSocket(Limits())
    await asyncio.wait_for(made.serve(Upgrade(Guest, take_over), receive, send), 5)  # type: ignore[arg-type]  # it takes nothing
    assert sent == ["websocket.send"] * 20 + ["websocket.close"]
    assert made._held == 0
