"""What connections are charged for is what Python really holds for them, as tracemalloc counts it."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import socket
import sys
import tracemalloc
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

import msgspec
import pytest

from pegboard import Board, ToolConnector
from pegboard.limits import Limits
from pegboard.server.http.guard import Guard
from pegboard.server.http.listener import listen
from pegboard.server.http_types import Answer, Head, Sink
from pegboard.server.streamable_http.mcp_endpoint import HttpEndpoint
from tests.server.fake_transport import Wire, get, until

COUNT = 4
# As much as a loop reads at a time.
READ = 256 * 1024
PLENTY = Limits(buffered_bytes=1 << 40)
START = b"POST / HTTP/1.1\r\nHost: x\r\n"
HANDSHAKE = (
    b"GET /ws HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)
CHUNKED = START + b"Transfer-Encoding: chunked\r\n\r\n"


def lines(line: bytes, count: int = 95) -> bytes:
    return b"".join(line % number for number in range(10, 10 + count))


HELD = {
    "short header lines": START + lines(b"%d:ab\r\n"),
    "ordinary header lines": START + lines(b"x-header-name-%d: and its value\r\n"),
    "header lines that come again": START
    + (lines(b"x-header-name-%d: and its value\r\n", 40) + b"accept: this\r\n") * 2,
    "half of a long header line": START + b"x: " + b"x" * 31_000,
    "half of a long target": b"GET /" + b"x" * 31_000,
    "half a head behind a whole request": get() + START + b"x: " + b"x" * 31_000,
    "half a body": START + b"Content-Length: 4000000\r\n\r\n" + b"x" * 3_000_000,
    "half a body behind many header lines": START
    + lines(b"%d:ab\r\n")
    + b"Content-Length: 400000\r\n\r\n"
    + b"x" * 20_000,
    "the smallest chunks": CHUNKED + b"2\r\nxy\r\n" * 20_000,
    "half of a large chunk": CHUNKED + b"f4240\r\n" + b"x" * 500_000,
    "a trailer of many lines": CHUNKED + b"2000\r\n" + b"x" * 8192 + b"\r\n0\r\n" + lines(b"%d:ab\r\n", 90),
    "half of a long trailer": CHUNKED + b"2000\r\n" + b"x" * 8192 + b"\r\n0\r\nx: " + b"x" * 31_000,
    "requests without a body": get() * 9000,
    "requests with many header lines": (START + lines(b"%d:ab\r\n") + b"\r\n") * 20,
    "requests with a body": (START + b"Content-Length: 30000\r\n\r\n" + b"x" * 30_000) * 20,
    "requests in chunks": (CHUNKED + b"2\r\nxy\r\n0\r\n\r\n") * 3000,
}


def receive(wire: Wire, data: bytes) -> None:
    """Hand over fresh bytes, as a transport does, for as long as they are read."""
    for at in range(0, len(data), READ):
        if wire.reading:
            wire.receive(bytes(bytearray(data[at : at + READ])))


@contextmanager
def measured() -> Iterator[list[int]]:
    """A list of the bytes that are held at the end of the block."""
    held: list[int] = []
    gc.collect()
    tracemalloc.start()
    try:
        yield held
        gc.collect()
        held.append(tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()


def compare(fill: Callable[[], None], account: Callable[[], int]) -> float:
    """The bytes that are charged for each byte that is held after `fill`."""
    with measured() as held:
        fill()
    return account() / held[0]


@pytest.mark.parametrize("data", HELD.values(), ids=HELD.keys())
async def test_what_is_held_of_requests_is_charged_within_a_quarter(data: bytes) -> None:
    async with waiting_wires() as wires:

        def fill() -> None:
            for wire in wires:
                receive(wire, data)

        charged = compare(fill, lambda: sum(wire.connections.weight for wire in wires))
    assert 0.75 <= charged <= 1.25


SERVED = {
    "short header lines": START + lines(b"%d:ab\r\n") + b"Content-Length: 100000\r\n\r\n" + b"x" * 100_000,
    "long header lines": START + lines(b"x-header-name-%d: " + b"x" * 300 + b"\r\n") + b"\r\n",
    "a long target": b"GET /" + b"x" * 30_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
    "a trailer": CHUNKED + b"1\r\nx\r\n0\r\n" + lines(b"%d:ab\r\n") + b"\r\n",
}


@pytest.mark.parametrize("data", SERVED.values(), ids=SERVED.keys())
async def test_between_two_requests_little_is_held_whatever_the_last_one_was(data: bytes) -> None:
    wires = [Wire(lambda *_: Answer(200), PLENTY) for _ in range(COUNT)]

    def fill() -> None:
        for wire in wires:
            receive(wire, data)
            # The test's own notes.
            wire.endpoint.heads.clear()
            wire.endpoint.bodies.clear()
            wire.written.clear()

    assert compare(fill, lambda: COUNT * 2048) > 1


@asynccontextmanager
async def waiting_wires() -> AsyncIterator[list[Wire]]:
    """Connections whose first request is being served, so that what comes behind it waits."""
    over = asyncio.Event()

    async def wait() -> Answer:
        await over.wait()
        return Answer(200)

    wires = [Wire(lambda *_: wait(), PLENTY) for _ in range(COUNT)]
    for wire in wires:
        receive(wire, get("/first"))
    await asyncio.sleep(0)
    try:
        yield wires
    finally:
        for wire in wires:
            wire.lose()
        over.set()
        await asyncio.sleep(0)


def frame(opcode: int, payload: bytes, *, fin: bool = True, length: int | None = None) -> bytes:
    """A frame as clients send it, masked with nothing; of more bytes than it has where a length is said."""
    size = len(payload) if length is None else length
    start = bytes([opcode | (0x80 if fin else 0)])
    if size < 126:
        return start + bytes([0x80 | size]) + bytes(4) + payload
    return start + b"\xff" + size.to_bytes(8, "big") + bytes(4) + payload


CALL = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"wait"}}'
INITIALIZE = (
    b'{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},'
    b'"clientInfo":{"name":"t","version":"1"}}}'
)
FRAMES = {
    "half of a frame": frame(1, b"x" * 3_000_000, length=4_000_000),
    "the smallest fragments": frame(1, b"x", fin=False) + frame(0, b"xy", fin=False) * 5_000,
    "large fragments": frame(1, b"x", fin=False) + frame(0, b"x" * 100_000, fin=False) * 30,
    "the smallest messages of text": frame(1, CALL) + frame(1, b"{}") * 30_000,
    "the smallest messages of bytes": frame(1, CALL) + frame(2, b"{}") * 30_000,
    "messages behind a large one": frame(1, CALL) + frame(2, b"x" * 65_536) + frame(2, b"{}") * 20_000,
}


@pytest.mark.parametrize("data", FRAMES.values(), ids=FRAMES.keys())
async def test_what_is_held_of_messages_is_charged_within_a_quarter(data: bytes) -> None:
    # One call at a time: messages behind it wait.
    limits = msgspec.structs.replace(PLENTY, calls_per_caller=1)
    board, over = Board("held", limits=limits), asyncio.Event()

    @board.tool
    async def wait() -> None:
        await over.wait()

    endpoint = HttpEndpoint(board.handler, board.info, limits=limits, guard=Guard())
    wires = [Wire(endpoint.accept, limits) for _ in range(COUNT)]  # type: ignore[arg-type]  # it may upgrade too
    for wire in wires:
        receive(wire, HANDSHAKE)
        receive(wire, frame(1, INITIALIZE))
    await until(lambda: all(wire.reading and b"serverInfo" in wire.written for wire in wires))

    def fill() -> None:
        for wire in wires:
            receive(wire, data)

    charged = compare(fill, lambda: sum(wire.connections.weight for wire in wires))
    for wire in wires:
        wire.abort()
        wire.lose()
    over.set()
    await asyncio.sleep(0)
    assert 0.75 <= charged <= 1.25


PADDING = b"x" * 2000
CHUNKS: dict[str, Callable[[int], bytes]] = {
    "of bytes": lambda index: frame(2, bytes(16) + index.to_bytes(8, "little") + b"x" * 40),
    "of text": lambda index: frame(1, b'{"type":"chunk","id":"s","index":%d,"data":"some text"}' % index),
    "of very many values": lambda index: frame(
        1, b'{"type":"chunk","id":"s","index":%d,"data":[%b[]]}' % (index, b"[]," * 500)
    ),
    "in long messages": lambda index: frame(
        1, b'{"type":"chunk","id":"s","index":%d,"data":"some text","more":"%b"}' % (index, PADDING)
    ),
}


@pytest.mark.parametrize("name", CHUNKS)
async def test_what_a_tool_has_not_read_is_charged_within_a_quarter(name: str) -> None:
    board, over = Board("held", limits=PLENTY), asyncio.Event()

    @board.tool
    async def ignore(connector: ToolConnector) -> None:
        await over.wait()

    endpoint = HttpEndpoint(board.handler, board.info, limits=PLENTY, guard=Guard())
    wire = Wire(endpoint.accept, PLENTY)  # type: ignore[arg-type]  # it may upgrade too
    receive(wire, HANDSHAKE)
    binary = b"true" if name == "of bytes" else b"false"
    receive(wire, frame(1, b'{"type":"start","id":"s","meta":{"method":"ignore","binary":%b}}' % binary))
    await asyncio.sleep(0)
    chunks = [CHUNKS[name](index) for index in range(200)]

    with measured() as held:
        for chunk in chunks:
            receive(wire, chunk)
            # A few messages are served in one turn of the loop.
            await asyncio.sleep(0)
    charged = wire.protocol._socket_handler.held / held[0]  # type: ignore[attr-defined]  # it is a WebSocket now
    wire.abort()
    wire.lose()
    over.set()
    await asyncio.sleep(0)
    assert 0.75 <= charged <= 1.25


def connect(port: int) -> socket.socket:
    """A connection that takes in little of what is not read."""
    one = socket.socket()
    one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    one.connect(("127.0.0.1", port))
    one.setblocking(False)
    return one


class Fixed:
    """An endpoint with one answer to everything."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer

    def accept(self, head: Head, body: bytes, sink: Sink) -> Answer:
        return self._answer


@pytest.mark.parametrize("size", [500, 5_000, 50_000, 500_000])
async def test_what_is_held_of_answers_is_charged_within_a_quarter(size: int) -> None:
    """Of those who read nothing, on real sockets."""
    server = await listen(Fixed(Answer(200, b"x" * size)), PLENTY)
    clients = [connect(server.port) for _ in range(4)]
    await until(lambda: len(server.connections.live) == len(clients))

    async def fill() -> None:
        # The kernel takes its part before anything is held here.
        while not all(one.full for one in server.connections.live):  # type: ignore[attr-defined]  # all are HTTP
            for client in clients:
                with contextlib.suppress(BlockingIOError):
                    client.send(get() * 8)
            await asyncio.sleep(0)
        server.connections.sweep()

    gc.collect()
    tracemalloc.start()
    try:
        await fill()
        gc.collect()
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    charged = server.connections.weight / held
    for client in clients:
        client.close()
    await server.close()
    # Before Python 3.12, asyncio copies what is unsent into one buffer instead of keeping whole writes.
    assert 0.75 <= charged <= (1.25 if sys.version_info >= (3, 12) else 1.5)
