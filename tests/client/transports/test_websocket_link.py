"""Servers behind a WebSocket that refuse, hang, break off or send what they may not."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from websockets.frames import Frame, Opcode
from websockets.http11 import Request
from websockets.protocol import State
from websockets.server import ServerProtocol

from pegboard import Client, Limits
from pegboard.client.http.address import read_address
from pegboard.client.http.dialer import Dialer
from pegboard.client.links import era_cache
from pegboard.client.transports import websocket_link
from pegboard.errors import (
    ConnectionLost,
    MalformedMessage,
    PegboardError,
    ResponseTimeout,
    SetupError,
    Unauthorized,
    Unreachable,
)
from tests.client.conftest import served
from tests.client.fakes import MODERN, Asked, faking, reply
from tests.client.process_leftovers import nothing_left
from tests.client.websocket_servers import Answer, Peer, serving
from tests.quiet import nothing_logged
from tests.stalls import no_stalls  # noqa: F401 — it is on for every test here
from tests.waiting import until


@pytest.fixture(autouse=True)
def strangers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(era_cache, "_eras", {})


def echo(peer: Peer, asked: dict[str, Any]) -> None:
    peer.answer(asked, asked["params"]["name"])


async def test_the_handshake_says_where_to_and_carries_its_users_headers() -> None:
    async with nothing_left(), serving(echo) as server:
        async with Client(server.url, headers={"Authorization": "Bearer x"}) as client:
            assert (await client.call("hello")).text == "hello"
            assert client.version == MODERN
        [head] = server.heads
        assert head.path == "/ws?of=mine"
        assert head.headers["Authorization"] == "Bearer x"
        assert head.headers["Sec-WebSocket-Protocol"] == "mcp"
        assert "Sec-WebSocket-Extensions" not in head.headers


async def test_a_connection_that_was_lost_fails_its_calls_and_serves_the_next() -> None:
    def drop(peer: Peer, asked: dict[str, Any]) -> None:
        if len(server.heads) == 1:
            peer.writer.close()
        else:
            echo(peer, asked)

    async with nothing_left(), serving(drop) as server, Client(server.url) as client:
        told = await asyncio.gather(*(client.call("any") for _ in range(5)), return_exceptions=True)
        assert {type(one) for one in told} == {ConnectionLost}
        assert (await client.call("again")).text == "again"
        assert len(server.heads) == 2


async def test_a_close_frame_is_reported_with_its_code_and_reason() -> None:
    def leave(peer: Peer, asked: dict[str, Any]) -> None:
        peer.protocol.send_close(1001, "closing time")
        peer.flush()

    async with nothing_left(), serving(leave) as server, Client(server.url) as client:
        with pytest.raises(ConnectionLost, match=r"closed the connection \(1001 closing time\)"):
            await client.call("any")


async def test_a_message_may_come_in_pieces_among_pings_and_bytes() -> None:
    def crumble(peer: Peer, asked: dict[str, Any]) -> None:
        whole = json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": {"content": []}}).encode()
        peer.protocol.send_binary(b"not for us")
        peer.protocol.send_text(whole[:5], fin=False)
        peer.protocol.send_ping(b"there?")
        peer.protocol.send_continuation(whole[5:9], fin=False)
        peer.protocol.send_continuation(whole[9:], fin=True)
        peer.flush()

    async with serving(crumble) as server, Client(server.url) as client:
        assert (await client.call("any")).content == []


@pytest.mark.parametrize("opcode", [Opcode.PING, Opcode.CONT], ids=["pings", "empty fragments"])
async def test_frames_of_two_bytes_do_not_hold_the_event_loop(opcode: Opcode) -> None:
    def flood(peer: Peer, asked: dict[str, Any]) -> None:
        if opcode is Opcode.CONT:
            peer.writer.write(Frame(Opcode.TEXT, b"", fin=False).serialize(mask=False))
        peer.writer.write(Frame(opcode, b"", fin=opcode is Opcode.PING).serialize(mask=False) * 30_000)
        if opcode is Opcode.CONT:
            peer.writer.write(Frame(Opcode.CONT, b"", fin=True).serialize(mask=False))
        peer.answer(asked, "after it")

    async with nothing_left(), serving(flood) as server, Client(server.url) as client:
        assert (await client.call("any")).text == "after it"


async def test_a_server_that_pings_and_reads_no_pongs_is_read_no_further() -> None:
    async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        protocol = ServerProtocol()
        protocol.receive_data(await reader.readuntil(b"\r\n\r\n"))
        [request] = protocol.events_received()
        assert isinstance(request, Request)
        protocol.send_response(protocol.accept(request))
        writer.write(b"".join(protocol.data_to_send()))
        writer.transport.pause_reading()  # type: ignore[attr-defined]  # a socket can be paused
        with suppress(ConnectionError):
            while not writer.is_closing():
                writer.write(Frame(Opcode.PING, b"x" * 125).serialize(mask=False) * 500)
                await writer.drain()

    server = await asyncio.start_server(flood, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    dialer = Dialer(ca=None, timeout=5.0)
    pipe = websocket_link.WebSocketPipe(
        read_address(f"http://127.0.0.1:{port}/"), "ws", {}, dialer, timeout=5.0, max_size=1 << 20
    )
    try:
        async with nothing_left():
            await pipe.open(lambda _: None, lambda _: None)
            unsent = pipe._transport.get_write_buffer_size
            await until(lambda: unsent() > websocket_link.WRITE_BYTES)
            for _ in range(300):
                await asyncio.sleep(0)
            assert unsent() < websocket_link.WRITE_BYTES + 256 * 1024
            await pipe.close()
    finally:
        server.close()


async def test_an_invalid_message_is_skipped_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    def mumble(peer: Peer, asked: dict[str, Any]) -> None:
        for noise in (b"", b"{", b"[]", b"null", b'{"jsonrpc":"2.0","id":9999,"result":{}}'):
            peer.protocol.send_text(noise)
        peer.answer(asked, "hi")

    async with nothing_left(), serving(mumble) as server, Client(server.url) as client:
        assert (await client.call("any")).text == "hi"
    assert "an invalid MCP message" in caplog.text


@pytest.mark.parametrize(
    ("sent", "told"),
    [
        (b"\xc1\x01x", "reserved bits"),
        (b"\x80\x01x", "unexpected continuation"),
        (b"\x81\x7e\x07\xd0" + b"x" * 2000, "2000 bytes"),
    ],
    ids=["reserved bits", "a continuation of nothing", "too long"],
)
async def test_what_a_websocket_does_not_carry_is_a_clear_error(sent: bytes, told: str) -> None:
    limits = Limits(server_message_bytes=1000)

    def garble(peer: Peer, asked: dict[str, Any]) -> None:
        peer.writer.write(sent)

    async with nothing_left(), serving(garble) as server, Client(server.url, limits=limits) as client:
        with pytest.raises(MalformedMessage, match=told):
            await client.call("any")


@pytest.mark.parametrize(
    ("status", "kind", "told"),
    [
        ("401 Unauthorized", Unauthorized, "requires credentials"),
        ("403 Forbidden", Unauthorized, "rejected the credentials that were sent"),
        ("404 Not Found", Unreachable, "answered 404, 'not here', and did not open a WebSocket"),
        ("200 OK", Unreachable, "answered 200"),
        ("101 Switching Protocols", MalformedMessage, "response to the WebSocket handshake is invalid"),
        ("307 Temporary Redirect", Unreachable, "answered 307"),
    ],
)
async def test_a_server_that_opens_no_websocket_says_why(status: str, kind: type[PegboardError], told: str) -> None:
    def refuse(asked: Asked, writer: asyncio.StreamWriter) -> None:
        body = b"" if status.startswith("101") else b"not here"
        challenge = 'Bearer error="insufficient_scope"' if status.startswith("403") else "Bearer"
        reply(writer, body, status, Location="ws://127.0.0.1:1/", WWW_Authenticate=challenge)

    async with nothing_left(), faking(refuse) as fake:
        with pytest.raises(kind, match=told) as raised:
            async with Client(fake.url.replace("http", "ws")):
                pass
        assert fake.url.replace("http", "ws") in str(raised.value)
        assert len(fake.asked) == 1


async def test_an_unreachable_server_is_reported() -> None:
    async with serving(echo) as server:
        url = server.url
    async with nothing_left():
        with pytest.raises(Unreachable, match=r"ws://.*Is the server running"):
            async with Client(url):
                pass


async def test_a_server_that_never_answers_the_handshake_is_given_up() -> None:
    async with nothing_left(), faking(lambda asked, writer: None) as fake:
        with pytest.raises(Unreachable, match=r"no response to the handshake within 0\.2 s"):
            async with Client(fake.url.replace("http", "ws"), connect_timeout=0.2):
                pass


async def test_a_call_given_up_is_cancelled_at_the_server() -> None:
    heard: list[dict[str, Any]] = []

    def hang(peer: Peer, asked: dict[str, Any]) -> None:
        heard.append(asked)

    async with nothing_left(), serving(hang) as server, Client(server.url) as client:
        with pytest.raises(ResponseTimeout):
            await client.call("any", timeout=0.1)
        await until(lambda: len(heard) == 2)
        assert heard[1]["method"] == "notifications/cancelled"
        assert heard[1]["params"]["requestId"] == heard[0]["id"]


async def test_a_server_that_is_gone_without_a_word_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(websocket_link, "PING_SECONDS", 0.1)
    async with nothing_left(), serving(lambda peer, asked: None, pongs=False) as server, Client(server.url) as client:
        with pytest.raises(ConnectionLost):
            await client.call("any", timeout=10)


async def test_a_silent_server_that_answers_pings_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(websocket_link, "PING_SECONDS", 0.05)

    async def take_time(peer: Peer, asked: dict[str, Any]) -> None:
        loop = asyncio.get_running_loop()
        loop.call_later(0.4, peer.answer, asked, "at last")

    async with serving(take_time) as server, Client(server.url) as client:
        assert (await client.call("any", timeout=10)).text == "at last"


async def test_a_plain_websocket_goes_through_a_proxy_by_a_tunnel(monkeypatch: pytest.MonkeyPatch) -> None:
    dug: list[str] = []

    async def proxy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        dug.append((await reader.readuntil(b"\r\n\r\n")).decode().splitlines()[0])
        there_reader, there = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(b"HTTP/1.1 200 Connected\r\n\r\n")

        async def carry(one: asyncio.StreamReader, other: asyncio.StreamWriter) -> None:
            while data := await one.read(65_536):
                other.write(data)
            other.close()

        await asyncio.gather(carry(reader, there), carry(there_reader, writer), return_exceptions=True)

    async with serving(echo) as server:
        listening = await asyncio.start_server(proxy, "127.0.0.1", 0)
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}")
        async with listening, Client(f"ws://server.example:{server.port}/ws") as client:
            assert (await client.call("hello")).text == "hello"
    assert dug == [f"CONNECT server.example:{server.port} HTTP/1.1"]


async def test_an_encrypted_websocket_is_one_whose_certificate_is_vouched_for(certificate: tuple[Path, Path]) -> None:
    async with nothing_left(), serving(echo, tls=served(certificate)) as server:
        async with Client(f"wss://localhost:{server.port}/ws", ca=certificate[0]) as client:
            told = await asyncio.gather(*(client.call(f"{number}" * 50_000) for number in range(10)))
            assert [one.text[0] for one in told] == list("0123456789")
        with pytest.raises(Unreachable, match="certificate"):
            async with Client(f"wss://localhost:{server.port}/ws"):
                pass


@pytest.mark.parametrize("url", ["ws://", "ws://user:secret@example.com/ws", "ws://exa mple/"])
def test_an_invalid_address_is_rejected(url: str) -> None:
    with pytest.raises(SetupError):
        Client(url)


def test_a_header_that_would_end_its_line_is_refused() -> None:
    with pytest.raises(SetupError, match="line break"):
        Client("ws://127.0.0.1/ws", headers={"X-A": "b\r\nc: d"})


def answer_and_close(peer: Peer, asked: dict[str, Any]) -> None:
    result = {"jsonrpc": "2.0", "id": asked["id"], "result": {"content": [{"type": "text", "text": "last"}]}}
    peer.protocol.send_text(json.dumps(result).encode())
    peer.protocol.send_close(1001, "gone")
    peer.flush()


def ask_and_close(peer: Peer, asked: dict[str, Any]) -> None:
    peer.protocol.send_text(json.dumps({"jsonrpc": "2.0", "id": "s", "method": "ping"}).encode())
    peer.protocol.send_ping(b"")
    peer.protocol.send_close(1001, "gone")
    peer.flush()


def close_and_go_on(peer: Peer, asked: dict[str, Any]) -> None:
    peer.protocol.send_close(1001, "gone")
    late = Frame(Opcode.TEXT, b'{"jsonrpc":"2.0","id":1,"result":{}}').serialize(mask=False)
    peer.writer.write(b"".join((*peer.protocol.data_to_send(), late, late)))


def break_the_rules(peer: Peer, asked: dict[str, Any]) -> None:
    peer.protocol.fail(1002)
    peer.writer.write(b"\xff\xff" + Frame(Opcode.CLOSE, b"").serialize(mask=False))


def reset(peer: Peer, asked: dict[str, Any]) -> None:
    own = peer.writer.get_extra_info("socket")
    own.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    peer.protocol.fail(1006)
    peer.writer.transport.abort()


def once(end: Answer) -> Answer:
    """Leave when the first request comes."""
    return lambda peer, asked: end(peer, asked) if peer.protocol.state is State.OPEN else None


ENDS = (answer_and_close, ask_and_close, close_and_go_on, break_the_rules, reset)


@pytest.mark.parametrize("end", ENDS, ids=[one.__name__ for one in ENDS])
@pytest.mark.parametrize("size", [10, 3_000_000], ids=["small", "large"])
async def test_nothing_is_logged_however_a_server_leaves(end: Any, size: int, caplog: pytest.LogCaptureFixture) -> None:
    async with nothing_left(), serving(once(end)) as server:
        with nothing_logged(caplog):
            for _ in range(3):
                async with Client(server.url) as client:
                    calls = (client.call("any", {"text": "x" * size}) for _ in range(4))
                    told = await asyncio.gather(*calls, return_exceptions=True)
            for one in told:
                assert isinstance(one, PegboardError) or one.text == "last"  # type: ignore[union-attr]  # a result


@pytest.mark.parametrize("turns", range(6))
async def test_nothing_is_logged_where_both_leave_at_once(turns: int, caplog: pytest.LogCaptureFixture) -> None:
    async with nothing_left(), serving(once(ask_and_close)) as server:
        with nothing_logged(caplog):
            client = Client(server.url)
            await client.__aenter__()
            calling = asyncio.ensure_future(client.call("any"))
            for _ in range(turns):
                await asyncio.sleep(0)
            await client.__aexit__(None, None, None)
            with pytest.raises(PegboardError):
                await calling


@pytest.mark.parametrize("said", [b"", b"HTTP/1.1 1", b"HTTP/1.1 200 OK\r\n\r\n", b"\0\xff"])
async def test_nothing_is_logged_where_a_handshake_breaks_off(said: bytes, caplog: pytest.LogCaptureFixture) -> None:
    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        own = writer.get_extra_info("socket")
        own.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.write(said)
        writer.close()

    server = await asyncio.start_server(hang_up, "127.0.0.1", 0)
    async with nothing_left(), server:
        with nothing_logged(caplog):
            for _ in range(5):
                with pytest.raises(PegboardError):
                    async with Client(f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}/ws"):
                        pass
