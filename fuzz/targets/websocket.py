"""WebSocket frames (RFC 6455): whatever a peer sends, the connection delivers whole messages or is closed with a code."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from pegboard.limits import Limits
from pegboard.server.http.connections import Connections
from pegboard.server.http_types import Answer, Head, MessageSocket, Upgrade
from pegboard.server.websocket.websocket_connection import WebSocket, accept_handshake, take_over

LIMITS = Limits(body_bytes=1024)
HEAD = Head(
    b"GET",
    b"/ws",
    b"",
    {
        b"host": b"127.0.0.1",
        b"connection": b"Upgrade",
        b"upgrade": b"websocket",
        b"sec-websocket-key": b"dGhlIHNhbXBsZSBub25jZQ==",
        b"sec-websocket-version": b"13",
    },
)


class Wire(asyncio.Transport):
    """A transport to nowhere."""

    def __init__(self) -> None:
        super().__init__()
        self.closed = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        assert not self.closed, "nothing is written after the end"

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None: ...

    def close(self) -> None:
        self.closed = True

    abort = close

    def is_closing(self) -> bool:
        return self.closed

    def get_write_buffer_size(self) -> int:
        return 0

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None: ...

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


class Guest:
    """Answers every message, as a call that is done at once does."""

    held = 0

    def __init__(self, socket: MessageSocket) -> None:
        self.socket = socket
        self.left = False

    def receive_text(self, message: bytes) -> None:
        assert len(message) <= LIMITS.body_bytes
        message.decode()
        self.socket.write(b"{}")

    def receive_bytes(self, message: bytes) -> None:
        assert len(message) <= LIMITS.body_bytes
        self.socket.write_bytes(b"")

    def resume_if_room(self) -> None: ...

    def leave(self) -> None:
        self.left = True

    @property
    def gone(self) -> bool:
        return self.left


def check(data: bytes) -> None:
    shaken = accept_handshake(HEAD, LIMITS)
    assert not isinstance(shaken, Answer)
    wire, connections = Wire(), Connections(LIMITS, clock=lambda: 1.0, wall=lambda: 1.0)
    socket = WebSocket(shaken[0], wire, LIMITS, connections)
    opened: Callable[[MessageSocket], Guest] = Guest
    socket.begin(Upgrade(opened, take_over))
    for at in range(0, len(data), 61):
        if wire.closed:
            break
        socket.data_received(data[at : at + 61])
        # A call that ends later, whatever has become of the connection.
        socket.write(b"{}")
    socket.eof_received()
    socket.connection_lost(None)
    socket.write(b"{}")
    assert not connections.live
