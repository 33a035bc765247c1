"""The WebSocket itself, on our own HTTP door: who is let in, what ends it, and what a peer may not do."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.frames import Frame, Opcode

from pegboard import Board, Limits
from pegboard.server.http.guard import Guard
from pegboard.server.http.listener import listen
from pegboard.server.streamable_http.mcp_endpoint import HttpEndpoint
from tests.server.stream_client import House, serve
from tests.server_processes import WsChild
from tests.stalls import no_stalls  # noqa: F401 — it is on for every test here
from tests.waiting import until, wait_until

KEY = "dGhlIHNhbXBsZSBub25jZQ=="
FIELDS = {"Host": "127.0.0.1", "Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Key": KEY,
          "Sec-WebSocket-Version": "13"}  # fmt: skip


async def knock(port: int, path: str = "/ws", verb: str = "GET", more: bytes = b"", **fields: str | None) -> bytes:
    """The head of the answer to a request for a WebSocket; a field of None is left out."""
    sent = {**FIELDS, **{name.replace("_", "-"): value for name, value in fields.items()}}
    lines = [f"{verb} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in sent.items() if value is not None)]
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write("\r\n".join([*lines, "", ""]).encode() + more)
    try:
        return await reader.readuntil(b"\r\n\r\n")
    finally:
        writer.transport.abort()


def board(**limits: Any) -> Board:
    made = Board("x", limits=Limits(**limits))
    made.add(lambda: "pong", name="pong")
    return made


class Time:
    now = 1000.0


@asynccontextmanager
async def timed(**limits: Any) -> AsyncIterator[tuple[House, Time]]:
    """A house whose time passes when the test says so."""
    time, one = Time(), board(**limits)
    endpoint = HttpEndpoint(one.handler, one.info, limits=one.limits, guard=Guard())
    async with House(await listen(endpoint, one.limits, clock=lambda: time.now), endpoint) as house:
        yield house, time


def ping(number: int = 1) -> str:
    return json.dumps({"jsonrpc": "2.0", "id": number, "method": "ping"})


async def test_the_handshake_of_the_rfc_is_answered_as_the_rfc_says() -> None:
    async with await serve(board()) as house:
        answer = await knock(house.server.port)
    assert answer.startswith(b"HTTP/1.1 101 ")
    assert b"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=" in answer


REFUSED: dict[str, tuple[int, dict[str, Any]]] = {
    "no upgrade": (426, {"Upgrade": None}),
    "another upgrade": (426, {"Upgrade": "h2c"}),
    "no connection": (426, {"Connection": "keep-alive"}),
    "no key": (400, {"Sec_WebSocket_Key": None}),
    "a key too short": (400, {"Sec_WebSocket_Key": "abc="}),
    "another version": (400, {"Sec_WebSocket_Version": "8"}),
    "another verb": (405, {"verb": "POST", "Content_Length": "0"}),
    "a page from elsewhere": (403, {"Origin": "https://evil.example"}),
    "no origin at all": (403, {"Origin": "null"}),
    "another host": (421, {"Host": "evil.example"}),
    "two origins": (400, {"Origin": "http://127.0.0.1\r\nOrigin: http://127.0.0.1"}),
    "two keys": (400, {"Sec_WebSocket_Key": f"{KEY}\r\nSec-WebSocket-Key: {KEY}"}),
    "another path": (404, {"path": "/wsx"}),
    "bytes before the answer": (400, {"more": b"\x81\x80\0\0\0\0"}),
}


@pytest.mark.parametrize("name", REFUSED)
async def test_who_does_not_knock_properly_is_not_let_in(name: str) -> None:
    status, how = REFUSED[name]
    async with await serve(board()) as house:
        answer = await knock(house.server.port, **how)
        assert answer.startswith(b"HTTP/1.1 %d " % status)
        # Nothing is the worse for it.
        client = await house.connect()
        await client.say(jsonrpc="2.0", id=1, method="ping")
        await client.answer(1)


async def test_a_page_that_was_allowed_is_let_in() -> None:
    async with await serve(board(), guard=Guard(origins=["https://app.example"])) as house:
        client = await house.connect(origin="https://app.example")
        await client.say(jsonrpc="2.0", id=1, method="ping")
        await client.answer(1)


async def test_it_can_be_switched_off() -> None:
    async with await serve(board(), websocket=False) as house:
        with pytest.raises(InvalidStatus) as refused:
            await house.connect()
        assert refused.value.response.status_code == 404


async def test_it_is_found_below_a_prefix() -> None:
    async with await serve(board(), prefix="/x") as house:
        for path in ("/x/ws", "/x/ws/"):
            assert (await knock(house.server.port, path)).startswith(b"HTTP/1.1 101 ")


async def test_a_server_that_is_shutting_down_rejects_new_connections() -> None:
    async with await serve(board()) as house:
        await house.endpoint.drain(0, asyncio.Event())
        with pytest.raises(InvalidStatus) as refused:
            await house.connect()
        assert refused.value.response.status_code == 503


async def test_the_subprotocol_is_mcp_for_who_offers_it() -> None:
    async with await serve(board()) as house:
        for offered, chosen in ((["other", "mcp"], "mcp"), (["other"], None), (None, None)):
            assert (await house.connect(subprotocols=offered)).socket.subprotocol == chosen


async def test_nothing_is_compressed_even_for_who_offers_to() -> None:
    async with await serve(board()) as house, connect(house.url, proxy=None) as socket:
        assert socket.protocol.extensions == []


async def test_a_connection_that_served_requests_becomes_a_socket() -> None:
    async with await serve(board()) as house:
        reader, writer = await asyncio.open_connection("127.0.0.1", house.server.port)
        writer.write(b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        assert (await reader.readuntil(b"}")).startswith(b"HTTP/1.1 200")
        lines = [f"{name}: {value}" for name, value in FIELDS.items()]
        writer.write("\r\n".join(["GET /ws HTTP/1.1", *lines, "", ""]).encode())
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101")
        writer.write(Frame(Opcode.TEXT, ping().encode()).serialize(mask=True))
        assert b'"result":{}' in await reader.readuntil(b"}}")
        writer.transport.abort()


@pytest.mark.process
def test_a_server_that_is_stopped_answers_what_is_under_way_and_says_goodbye() -> None:
    with WsChild(ROUGH_DRAIN="5") as child:
        held = [child.start_call("hold", key="over"), child.start_call("hold_thread", key="over")]
        child.call("begun", key="over")
        child.signal(signal.SIGTERM)
        wait_until(lambda: "error" in child.answer(child.start_call("add", a=1, b=1)))
        child.signal(signal.SIGTERM)
        answers = {message["id"]: message for message in child.rest()}
        assert all("shutting down" in answers[one]["error"]["message"] for one in held)
        assert child.wait() == 0
        assert child.close_code == 1001


# -- frames ----------------------------------------------------------------------------------------------------------


async def test_a_message_may_come_in_fragments_with_others_between() -> None:
    async with await serve(board()) as house:
        client = await house.connect()

        async def pieces() -> AsyncIterator[str]:
            text = ping()
            for place in range(0, len(text), 7):
                yield text[place : place + 7]
                await client.socket.ping()

        await client.socket.send(pieces())
        assert (await client.answer(1))["result"] == {}


async def close_code(client: Any) -> int:
    await client.socket.wait_closed()
    code: int = client.socket.close_code
    return code


async def test_text_that_is_not_utf8_closes_the_socket() -> None:
    async with await serve(board()) as house:
        client = await house.connect()
        await client.socket.send(b'{"jsonrpc":"2.0","id":1,"method":"\xff"}', text=True)
        assert await close_code(client) == 1007


@pytest.mark.parametrize("fragments", [1, 10])
async def test_a_message_too_large_ends_the_socket(fragments: int) -> None:
    async with await serve(board(body_bytes=1000)) as house:
        client = await house.connect()
        with suppress(ConnectionClosed):
            await client.socket.send([bytes(1100 // fragments)] * fragments if fragments > 1 else bytes(1100))
        assert await close_code(client) == 1009


@pytest.mark.parametrize(
    "frame",
    [
        b"\x81\x01a",
        b"\xc1\x80\0\0\0\0",
        b"\x83\x80\0\0\0\0",
        b"\x80\x80\0\0\0\0",
        b"\x09\x80\0\0\0\0",
        b"\x88\x81\0\0\0\0a",
    ],
    ids=[
        "not masked",
        "a reserved bit",
        "an unknown kind",
        "a continuation of nothing",
        "a ping in pieces",
        "half a code",
    ],
)
async def test_a_frame_that_breaks_the_rules_ends_the_socket(frame: bytes) -> None:
    async with await serve(board()) as house:
        client = await house.connect()
        client.socket.transport.write(frame)
        assert await close_code(client) == 1002
        await until(lambda: not house.server.connections.live)


async def test_who_says_goodbye_is_answered() -> None:
    async with await serve(board()) as house:
        client = await house.connect()
        await client.socket.close(1000, "enough")
        assert client.socket.close_code == 1000
        await until(lambda: not house.server.connections.live)


async def test_a_ping_is_answered() -> None:
    async with await serve(board()) as house:
        client = await house.connect()
        pong = await client.socket.ping()
        await pong


# -- time ------------------------------------------------------------------------------------------------------------


async def test_a_peer_that_is_silent_is_pinged_and_one_that_is_gone_is_cut() -> None:
    async with timed() as (house, time):
        reader, writer = await asyncio.open_connection("127.0.0.1", house.server.port)
        lines = [f"{name}: {value}" for name, value in FIELDS.items()]
        writer.write("\r\n".join(["GET /ws HTTP/1.1", *lines, "", ""]).encode())
        await reader.readuntil(b"\r\n\r\n")
        time.now += 21
        house.server.connections.sweep()
        assert await reader.readexactly(2) == b"\x89\x00"
        writer.write(Frame(Opcode.PONG, b"").serialize(mask=True))
        [one] = house.server.connections.live
        await until(lambda: not one._pinged)
        time.now += 21
        house.server.connections.sweep()
        assert await reader.readexactly(2) == b"\x89\x00"
        time.now += 21
        house.server.connections.sweep()
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await reader.readexactly(1)
        await until(lambda: not house.server.connections.live)
        writer.close()


async def test_half_a_message_is_not_waited_for_for_ever() -> None:
    async with timed() as (house, time):
        client = await house.connect()
        client.socket.transport.write(b"\x81\xfe\x00\xff\0\0\0\0half")
        [one] = house.server.connections.live
        await until(lambda: one._begun is not None)
        for _ in range(3):
            time.now += 15
            one._heard = time.now
            house.server.connections.sweep()
        assert await close_code(client) == 1008


async def test_a_peer_that_does_not_read_is_cut() -> None:
    async with timed(write_seconds=5.0) as (house, time):
        client = await house.connect(max_queue=1)
        [one] = house.server.connections.live
        client.socket.transport.pause_reading()
        while not one.full:
            one.write(b'"' + b"x" * 1_000_000 + b'"')
            await asyncio.sleep(0)
        house.server.connections.sweep()
        time.now += 6
        house.server.connections.sweep()
        await until(lambda: not house.server.connections.live)
        # It would wait for a goodbye that it does not read.
        client.socket.transport.abort()


async def test_one_who_answers_no_goodbye_is_not_waited_for() -> None:
    async with timed() as (house, time):
        reader, writer = await asyncio.open_connection("127.0.0.1", house.server.port)
        lines = [f"{name}: {value}" for name, value in FIELDS.items()]
        writer.write("\r\n".join(["GET /ws HTTP/1.1", *lines, "", ""]).encode())
        await reader.readuntil(b"\r\n\r\n")
        [one] = house.server.connections.live
        one.close()
        time.now += 3
        house.server.connections.sweep()
        await until(lambda: not house.server.connections.live)
        writer.close()


async def test_what_is_said_after_the_end_goes_nowhere() -> None:
    async with await serve(board()) as house:
        client = await house.connect()
        [one] = house.server.connections.live
        client.socket.transport.abort()
        await until(lambda: not house.server.connections.live)
        one.write(b"{}")
        one.write_bytes(b"x")
        one.hold(True)
        one.close()
        await one.drain()
        assert not house.endpoint._calls.followers


async def test_the_half_message_that_has_waited_longest_makes_room_for_the_others() -> None:
    async with await serve(board(buffered_bytes=150_000)) as house:
        halves = []
        for _ in range(3):
            reader, writer = await open_socket(house.server.port)
            # The head of a frame of 100,000 bytes, and most of them; the mask is nothing.
            writer.write(bytes([0x81, 0xFF]) + (100_000).to_bytes(8, "big") + bytes(4) + b" " * 70_000)
            await writer.drain()
            halves.append((reader, writer))
        with suppress(ConnectionError):
            assert await halves[0][0].read() == b""
        halves[0][1].transport.abort()
        for reader, writer in halves[1:]:
            writer.write(b" " * (30_000 - len(ping())) + ping().encode())
            assert b"result" in await reader.read(1000)
            writer.transport.abort()


async def test_a_message_in_very_many_pieces_is_served_as_one() -> None:
    async with await serve(board()) as house:
        reader, writer = await open_socket(house.server.port)
        message = (" " * 20_000 + ping()).encode()
        pieces = [
            bytes([0x00 if at else 0x01, 0x82, 0, 0, 0, 0]) + message[at : at + 2]
            for at in range(0, len(message) & ~1, 2)
        ]
        rest = message[len(message) & ~1 :]
        writer.write(b"".join(pieces) + bytes([0x80, 0x80 | len(rest), 0, 0, 0, 0]) + rest)
        assert b"result" in await reader.read(1000)
        writer.transport.abort()


async def open_socket(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A WebSocket as the bytes it is made of."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    lines = ["GET /ws HTTP/1.1", *(f"{name}: {value}" for name, value in FIELDS.items())]
    writer.write("\r\n".join([*lines, "", ""]).encode())
    await reader.readuntil(b"\r\n\r\n")
    return reader, writer
