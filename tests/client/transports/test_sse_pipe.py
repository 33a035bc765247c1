"""Servers of HTTP+SSE, the transport of 2024-11-05, that lose, forget, garble or never answer."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest

from pegboard import Client, Limits
from pegboard.errors import ConnectionLost, MalformedMessage, PegboardError, ResponseTimeout
from tests.client.fakes import Asked, data, faking, initialized, reply, stream, text
from tests.client.process_leftovers import nothing_left
from tests.stalls import no_stalls  # noqa: F401 — it is on for every test here
from tests.waiting import until


class First:
    """One stream for all answers, and another address for messages; `call` answers those that call a tool."""

    def __init__(self, call: Callable[[Asked, asyncio.StreamWriter], Any], endpoint: str = "/messages") -> None:
        self.streams: list[asyncio.StreamWriter] = []
        self._call = call
        self._endpoint = endpoint

    def answer(self, asked: Asked, writer: asyncio.StreamWriter) -> None:
        if asked.method == "GET" and asked.target == "/mcp":
            stream(writer, f"event: endpoint\ndata: {self._endpoint}\n\n".encode() if self._endpoint else b": soon\n\n")
            self.streams.append(writer)
        elif asked.target != "/messages":
            reply(writer, b"", "405 Method Not Allowed")
        elif asked.message.get("method") == "tools/call":
            self._call(asked, writer)
        else:
            reply(writer, b"", "202 Accepted")
            if asked.message.get("method") == "initialize":
                self.streams[-1].write(data(initialized(asked)))

    def say(self, asked: Asked, writer: asyncio.StreamWriter, *said: bytes) -> None:
        """Take a message, and say this on the stream."""
        reply(writer, b"", "202 Accepted")
        self.streams[-1].write(b"".join(said))


async def test_a_stream_that_was_lost_is_opened_again_for_the_next_call() -> None:
    def call(asked: Asked, writer: asyncio.StreamWriter) -> None:
        if len(server.streams) == 1:
            reply(writer, b"", "202 Accepted")
            server.streams[-1].close()
        else:
            server.say(asked, writer, data(text(asked, "again")))

    server = First(call)
    async with nothing_left(), faking(server.answer) as fake, Client(fake.url) as client:
        with pytest.raises(ConnectionLost, match=r"127\.0\.0\.1.*ended its stream"):
            await client.call("any")
        assert (await client.call("any")).text == "again"


async def test_a_stream_that_its_server_forgot_is_opened_again_for_the_same_call() -> None:
    def call(asked: Asked, writer: asyncio.StreamWriter) -> None:
        if len(server.streams) == 1:
            reply(writer, b"who are you?", "404 Not Found")
        else:
            server.say(asked, writer, data(text(asked, "again")))

    server = First(call)
    async with nothing_left(), faking(server.answer) as fake, Client(fake.url) as client:
        assert (await client.call("any")).text == "again"
        assert len(server.streams) == 2


async def test_a_call_to_a_hanging_server_times_out_and_the_server_is_notified() -> None:
    server = First(lambda asked, writer: reply(writer, b"", "202 Accepted"))
    async with nothing_left(), faking(server.answer) as fake, Client(fake.url) as client:
        with pytest.raises(ResponseTimeout, match=r"no response to tools/call within 0\.2 s"):
            await client.call("any", timeout=0.2)
        await until(lambda: "notifications/cancelled" in fake.methods)


async def test_a_stream_that_names_no_address_is_given_up() -> None:
    server = First(lambda asked, writer: None, endpoint="")
    async with nothing_left(), faking(server.answer) as fake:
        with pytest.raises(PegboardError, match=r"127\.0\.0\.1"):
            async with Client(fake.url, connect_timeout=0.3):
                pass


@pytest.mark.parametrize("endpoint", ["http://127.0.0.1:1/messages", "//elsewhere.example/messages", "http://["])
async def test_messages_go_to_the_origin_of_the_stream_alone(endpoint: str) -> None:
    server = First(lambda asked, writer: None, endpoint=endpoint)
    async with nothing_left(), faking(server.answer) as fake:
        with pytest.raises(PegboardError, match=r"127\.0\.0\.1"):
            async with Client(fake.url, headers={"Authorization": "Bearer x"}, connect_timeout=2):
                pass


async def test_an_invalid_message_is_skipped_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    noise = b': hi\n\ndata: {\n\ndata: []\n\nevent: endpoint\ndata: /elsewhere\n\ndata: {"jsonrpc":"2.0","id":77}\n\n'
    server = First(lambda asked, writer: server.say(asked, writer, noise, data(text(asked, "fine"))))
    with caplog.at_level(logging.WARNING):
        async with nothing_left(), faking(server.answer) as fake, Client(fake.url) as client:
            assert (await client.call("any")).text == "fine"
            assert (await client.call("any")).text == "fine"
    assert "an invalid MCP message" in caplog.text


async def test_an_event_without_end_is_a_clear_error() -> None:
    limits = Limits(server_message_bytes=10_000)
    server = First(lambda asked, writer: server.say(asked, writer, b"data: " + b"x" * 50_000))
    async with nothing_left(), faking(server.answer) as fake, Client(fake.url, limits=limits) as client:
        with pytest.raises(MalformedMessage, match=r"127\.0\.0\.1"):
            await client.call("any", timeout=5)


async def test_a_message_that_is_refused_is_a_clear_error() -> None:
    server = First(lambda asked, writer: reply(writer, b"oops", "500 Internal Server Error"))
    async with nothing_left(), faking(server.answer) as fake, Client(fake.url) as client:
        with pytest.raises(MalformedMessage, match="answered 500"):
            await client.call("any", timeout=5)
