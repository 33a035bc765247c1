"""A connection without a network: a transport that keeps what is written, a clock that moves when told, a scripted endpoint."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import h11

from pegboard.limits import Limits
from pegboard.server.http.connections import Connections
from pegboard.server.http.http1_connection import Http1Connection
from pegboard.server.http_types import Answer, Endpoint, Head, Sink

Script = Callable[[Head, bytes, Sink], Answer | Coroutine[Any, Any, Answer | None]]


class Scripted:
    """An endpoint that does what one function says, and remembers what it was given."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.heads: list[Head] = []
        self.bodies: list[bytes] = []

    def accept(self, head: Head, body: bytes, sink: Sink) -> Answer | Coroutine[Any, Any, Answer | None]:
        self.heads.append(head)
        self.bodies.append(body)
        return self.script(head, body, sink)


class Fixed:
    """A house whose endpoint is always there."""

    def __init__(self, endpoint: Any) -> None:
        self.endpoint: Endpoint = endpoint
        self.closed = 0

    async def open(self) -> Endpoint:
        return self.endpoint

    async def close(self) -> None:
        self.closed += 1


def echo(head: Head, body: bytes, sink: Sink) -> Answer:
    return Answer(200, head.path + b" " + body, b"text/plain")


class Wire(asyncio.Transport):
    """The transport of one connection; `backlog` is what its peer has not read yet."""

    def __init__(
        self, script: Script = echo, limits: Limits | None = None, *, peer: tuple[str, int] = ("192.0.2.7", 50_000)
    ) -> None:
        super().__init__({"peername": peer, "sockname": ("192.0.2.1", 80)})
        self.time = 1000.0
        self.endpoint = Scripted(script)
        self.written = bytearray()
        self.writes = 0
        self.backlog = 0
        self.reading = True
        self.closed = False
        self.aborted = False
        self.half_closed = False
        self.high = 0
        self.connections = Connections(limits or Limits(), clock=lambda: self.time, wall=lambda: 0.0)
        loop = asyncio.get_running_loop()
        self.protocol = Http1Connection(self.endpoint, self.connections.limits, loop, self.connections)
        self.protocol.connection_made(self)

    def receive(self, data: bytes) -> None:
        self.protocol.data_received(data)

    def pass_time(self, seconds: float) -> None:
        self.time += seconds
        self.connections.sweep()

    def lose(self) -> None:
        self.protocol.connection_lost(None)

    def clog(self, backlog: int) -> None:
        self.backlog = backlog
        self.protocol.pause_writing()

    def unclog(self) -> None:
        self.backlog = 0
        self.protocol.resume_writing()

    def responses(self) -> list[tuple[int, dict[bytes, bytes], bytes]]:
        """What a client of these requests would have read, by a foreign parser."""
        return read_responses(bytes(self.written), [head.method for head in self.endpoint.heads])

    # asyncio.Transport

    def write(self, data: Any) -> None:
        assert not self.closed, "written after the close"
        self.written += data
        self.writes += 1

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self.high = high or 0

    def get_write_buffer_size(self) -> int:
        return self.backlog

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.half_closed = True

    def pause_reading(self) -> None:
        assert self.reading
        self.reading = False

    def resume_reading(self) -> None:
        assert not self.reading
        self.reading = True

    def is_closing(self) -> bool:
        return self.closed

    def set_protocol(self, protocol: Any) -> None:
        self.protocol = protocol

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = self.aborted = True


def read_responses(data: bytes, methods: list[bytes]) -> list[tuple[int, dict[bytes, bytes], bytes]]:
    """The complete responses in these bytes, given the methods they answer; a refusal may come after them."""
    found = []
    client = h11.Connection(h11.CLIENT)
    client.receive_data(data)
    for method in [*methods, b"GET"]:
        client.send(h11.Request(method=method, target="/", headers=[("host", "x")]))
        client.send(h11.EndOfMessage())
        status, headers, body = 0, {}, bytearray()
        while True:
            event = client.next_event()
            if event is h11.NEED_DATA:
                return found
            if isinstance(event, h11.InformationalResponse):
                continue
            if isinstance(event, h11.Response):
                status, headers = event.status_code, dict(event.headers)
            elif isinstance(event, h11.Data):
                body += event.data
            elif isinstance(event, h11.EndOfMessage):
                break
            else:
                return found
        found.append((status, headers, bytes(body)))
        if client.our_state is h11.MUST_CLOSE or client.their_state is h11.MUST_CLOSE:
            assert not client.trailing_data[0], "bytes after the last response"
            return found
        client.start_next_cycle()
    return found


def get(path: str = "/", *fields: str, version: str = "1.1") -> bytes:
    return "\r\n".join((f"GET {path} HTTP/{version}", "Host: x", *fields, "", "")).encode()


def post(body: bytes, path: str = "/", *fields: str) -> bytes:
    lines = (f"POST {path} HTTP/1.1", "Host: x", f"Content-Length: {len(body)}", *fields, "", "")
    return "\r\n".join(lines).encode() + body


async def until(condition: Callable[[], object]) -> None:
    """Let others run until something they do not announce has happened."""
    while not condition():  # noqa: ASYNC110 - there is no event for it
        await asyncio.sleep(0)
