"""What a peer sends costs work in proportion to its size: twice the bytes, at most three times the work, up to each limit."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from itertools import pairwise
from types import FrameType
from typing import Self

import pytest

from pegboard import Board
from pegboard.limits import Limits
from pegboard.server.http.guard import Guard
from pegboard.server.http_types import Answer
from pegboard.server.streamable_http.mcp_endpoint import HttpEndpoint
from pegboard.server.websocket.websocket_connection import FRAMES_A_TURN
from tests.server.fake_transport import Wire, get, until
from tests.server.test_account import HANDSHAKE, frame

pytestmark = pytest.mark.same_on_every_python

START = b"POST / HTTP/1.1\r\nHost: x\r\n"
CHUNKED = START + b"Transfer-Encoding: chunked\r\n\r\n"


class Work:
    """Counts calls of functions, ours and built in."""

    def __init__(self) -> None:
        self.units = 0

    def __enter__(self) -> Self:
        sys.setprofile(self._note)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _note(self, _frame: FrameType, event: str, _called: object) -> None:
        self.units += event in ("call", "c_call")


def numbered(line: bytes, count: int) -> bytes:
    return b"".join(line % number for number in range(10, 10 + count))


def in_pieces(data: bytes, size: int) -> Iterator[bytes]:
    return (data[at : at + size] for at in range(0, len(data), size))


REQUESTS: dict[str, tuple[Callable[[int], bytes], tuple[int, ...]]] = {
    "header lines": (lambda count: START + numbered(b"%d:ab\r\n", count) + b"\r\n", (12, 24, 48, 96)),
    "lines that come again": (lambda count: START + b"accept: a\r\n" * count + b"\r\n", (12, 24, 48, 96)),
    "one long header line": (lambda size: START + b"x: " + b"x" * size + b"\r\n\r\n", (4000, 8000, 16_000, 32_000)),
    "a long target": (lambda size: b"GET /" + b"x" * size + b" HTTP/1.1\r\nHost: x\r\n\r\n", (8000, 16_000, 32_000)),
    "a long host": (lambda size: b"GET / HTTP/1.1\r\nHost: " + b"x" * size + b"\r\n\r\n", (8000, 16_000, 32_000)),
    "blank lines": (lambda count: b"\r\n" * count + get(), (10_000, 20_000, 40_000)),
    "requests at once": (lambda count: get() * count, (500, 1000, 2000, 4000)),
    "a body": (
        lambda size: START + b"Content-Length: %d\r\n\r\n" % size + b"x" * size,
        (500_000, 1_000_000, 2_000_000, 4_000_000),
    ),
    "small chunks": (lambda count: CHUNKED + b"2\r\nxy\r\n" * count + b"0\r\n\r\n", (2000, 4000, 8000, 16_000)),
    "chunks of blank lines": (
        lambda count: CHUNKED + b"%x\r\n" % (4 * count) + b"\r\n\r\n" * count + b"\r\n0\r\n\r\n",
        (5000, 10_000, 20_000, 40_000),
    ),
    "a trailer": (
        lambda count: CHUNKED + b"1\r\nx\r\n0\r\n" + numbered(b"%d:ab\r\n", count) + b"\r\n",
        (12, 24, 48, 96),
    ),
    "header lines beyond the limit": (lambda count: START + numbered(b"%d:ab\r\n", count), (1000, 2000, 4000)),
}


def check(work: list[int]) -> None:
    for less, more in pairwise(work):
        assert more <= 3 * less, work


@pytest.mark.parametrize("size", [1, 1000, 256 * 1024], ids=["byte by byte", "in pieces", "at once"])
@pytest.mark.parametrize("name", REQUESTS)
async def test_twice_the_request_is_at_most_three_times_the_work(name: str, size: int) -> None:
    make, counts = REQUESTS[name]
    work = []
    for step, count in enumerate(counts):
        data = make(count)
        if size == 1:
            data = data[: 2000 << step]
        wire = Wire(lambda *_: Answer(200, b"x"), Limits())
        with Work() as spent:
            for piece in in_pieces(data, size):
                wire.receive(piece)
                await until(lambda: wire.reading)  # noqa: B023 - it is awaited at once
        work.append(spent.units)
        wire.lose()
    check(work)


MESSAGES: dict[str, tuple[Callable[[int], bytes], tuple[int, ...]]] = {
    "a long message": (lambda size: frame(1, b" " * size), (500_000, 1_000_000, 2_000_000, 4_000_000)),
    "small fragments": (
        lambda count: frame(1, b" ", fin=False) + frame(0, b" ", fin=False) * count + frame(0, b" "),
        (1000, 2000, 4000, 8000),
    ),
    "pings": (lambda count: frame(9, b"x") * count, (1000, 2000, 4000)),
    "small messages": (lambda count: frame(1, b"{}") * count, (500, 1000, 2000)),
    "empty messages": (lambda count: frame(2, b"") * count, (500, 1000, 2000)),
}


@pytest.mark.parametrize("size", [100, 256 * 1024], ids=["in pieces", "at once"])
@pytest.mark.parametrize("name", MESSAGES)
async def test_twice_the_messages_are_at_most_three_times_the_work(name: str, size: int) -> None:
    make, counts = MESSAGES[name]
    board, limits = Board("costs"), Limits()
    endpoint = HttpEndpoint(board.handler, board.info, limits=limits, guard=Guard())
    work = []
    for count in counts:
        wire = Wire(endpoint.accept, limits)  # type: ignore[arg-type]  # it may upgrade too
        wire.receive(HANDSHAKE)
        with Work() as spent:
            for piece in in_pieces(make(count)[: size * 4000], size):
                wire.receive(piece)
                await until(lambda: wire.reading)  # noqa: B023 - it is awaited at once
        work.append(spent.units)
        wire.abort()
        wire.lose()
    check(work)


async def test_very_many_frames_at_once_leave_others_their_turn() -> None:
    board, limits = Board("costs"), Limits()
    endpoint = HttpEndpoint(board.handler, board.info, limits=limits, guard=Guard())
    wire = Wire(endpoint.accept, limits)  # type: ignore[arg-type]  # it may upgrade too
    wire.receive(HANDSHAKE)
    wire.written.clear()
    wire.receive(frame(9, b"x") * 10_000)
    # A pong has three bytes, and a piece may hold a few frames more.
    assert FRAMES_A_TURN * 3 <= len(wire.written) <= FRAMES_A_TURN * 4
    await until(lambda: wire.reading)
    assert len(wire.written) == 30_000
    wire.abort()
    wire.lose()


async def test_very_many_messages_at_once_leave_others_their_turn() -> None:
    board, limits = Board("costs"), Limits()
    endpoint = HttpEndpoint(board.handler, board.info, limits=limits, guard=Guard())
    wire = Wire(endpoint.accept, limits)  # type: ignore[arg-type]  # it may upgrade too
    wire.receive(HANDSHAKE)
    wire.written.clear()
    ping = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'
    wire.receive(frame(1, ping) * 1000)
    assert wire.written.count(b'"result"') == limits.inline_answers
    await until(lambda: wire.written.count(b'"result"') == 1000)
    wire.abort()
    wire.lose()
