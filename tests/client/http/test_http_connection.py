"""What a connection reads: the same whether a head is new to it or known from the response before."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pegboard.client.http.http_connection import HttpConnection
from pegboard.errors import ConnectionLost, MalformedMessage, ServerFault

ORIGIN = ("http", "localhost", 80)
DATE = "Date: Sun, 15 Nov 2026 12:00:0{} GMT\r\n"
HEADS = [
    f"{status}{first}{before}{length}{after}\r\n"
    for status in ("HTTP/1.1 200 OK\r\n", "HTTP/1.1 404 Not Found\r\n", "HTTP/1.0 200 OK\r\n")
    for first in ("Content-Type: application/json\r\n", "")
    for before in ("", DATE.format(1), DATE.format(2), "Connection: close\r\n", "Keep-Alive: timeout=2\r\n")
    for length in (
        "Content-Length: {}\r\n",
        "content-length:{}\r\n",
        "Content-Length: 0{}\r\n",
        "Content-Length: {} \r\n",
    )
    for after in ("", "Content-Length: {}\r\n", "X-A: Content-Length: 3\r\n", "Content-Length: 4\r\n")
]
BODIES = [b"", b"{}", b'{"a":1}', b"x" * 9, b"\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n1"]


class Line(asyncio.Transport):
    """Notes what becomes of a connection."""

    def __init__(self) -> None:
        super().__init__()
        self.ended = False

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None: ...

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def abort(self) -> None:
        self.ended = True

    def close(self) -> None:
        self.ended = True

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default


def connect(loop: asyncio.AbstractEventLoop) -> HttpConnection:
    connection = HttpConnection(ORIGIN, loop, lambda _: None)
    connection.connection_made(Line())
    return connection


async def read(connection: HttpConnection, pieces: list[bytes]) -> object:
    """What comes of one request: its response, or why there is none, and whether another may follow."""
    waiter = connection.send(b"")
    for piece in pieces:
        if not connection.closed:
            connection.data_received(piece)
    if not waiter.done():
        connection.connection_lost(None)
    try:
        response = await waiter
        if not response.ended and not connection.closed:
            connection.connection_lost(None)
        body = await response.read_all(1000)
    except ServerFault as fault:
        return type(fault), connection.closed
    return response.status, response.headers, body, connection.closed


def split(data: bytes, cuts: list[int]) -> list[bytes]:
    ends = sorted({cut % (len(data) + 1) for cut in cuts} | {0, len(data)})
    return [data[start:end] for start, end in pairwise(ends)]


async def compare(answers: list[bytes], cuts: list[int]) -> None:
    """Read each answer on a kept connection and on a new one."""
    loop = asyncio.get_running_loop()
    kept = connect(loop)
    for answer in answers:
        expected = await read(connect(loop), split(answer, cuts))
        assert await read(kept, split(answer, cuts)) == expected, answer
        if kept.closed:
            kept = connect(loop)


def written(head: str, body: bytes) -> bytes:
    return head.replace("{}", str(len(body))).encode() + body


async def test_responses_with_one_head_read_the_same_as_on_new_connections() -> None:
    for head in HEADS:
        await compare([written(head, body) for body in (*BODIES, *BODIES)], [])


@given(
    st.lists(st.tuples(st.sampled_from(HEADS[:80]), st.sampled_from(BODIES)), min_size=2, max_size=5),
    st.lists(st.integers(0, 200), max_size=2),
)
def test_responses_of_any_heads_in_any_pieces_read_the_same_as_on_new_connections(
    answers: list[tuple[str, bytes]], cuts: list[int]
) -> None:
    asyncio.run(compare([written(head, body) for head, body in answers], cuts))


async def test_a_known_head_is_not_parsed_again() -> None:
    connection = connect(asyncio.get_running_loop())
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    await read(connection, [head % 2 + b"{}"])
    del connection._parser
    assert await read(connection, [head % 10 + b'{"abc":12}']) == (
        200,
        {b"content-type": b"application/json", b"content-length": b"10"},
        b'{"abc":12}',
        False,
    )


@pytest.mark.parametrize("more", [b"x", b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"])
async def test_what_follows_a_response_with_a_known_head_breaks_the_connection(more: bytes) -> None:
    connection = connect(asyncio.get_running_loop())
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
    await read(connection, [answer])
    await read(connection, [answer + more])
    assert connection.closed


async def test_a_response_without_a_request_is_rejected_though_its_head_is_known() -> None:
    connection = connect(asyncio.get_running_loop())
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
    await read(connection, [answer])
    connection.data_received(answer)
    assert connection.closed


async def test_a_response_that_is_not_waited_for_any_more_closes_its_connection() -> None:
    connection = connect(asyncio.get_running_loop())
    waiter = connection.send(b"")
    connection.leave(waiter)
    assert connection.closed
    with pytest.raises((ConnectionLost, MalformedMessage)):
        await waiter
