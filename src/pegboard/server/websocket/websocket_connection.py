"""An HTTP connection of our server that was upgraded to a WebSocket.

The sweep over all connections also sends pings, since a peer that vanished without closing would never be noticed.

Frames are parsed only while the endpoint accepts messages. Otherwise the bytes are kept unparsed: small frames take
thirty times as much memory once they are messages.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from pegboard.limits import Limits
from pegboard.protocol.framing.websocket_messages import OPEN, SUBPROTOCOL, MessageAssembler
from pegboard.server.http.connections import Connections, unsent
from pegboard.server.http.limited_connection import LimitedConnection
from pegboard.server.http.responses import plain_error
from pegboard.server.http_types import LIGHT, Answer, Head, SocketHandler, Upgrade

if TYPE_CHECKING:
    from websockets.frames import Frame
    from websockets.server import ServerProtocol

_log = logging.getLogger("pegboard.websocket")
# The library logs every opening and closing.
_log.setLevel(logging.WARNING)

GOING_AWAY: Final = 1001
# The size of a piece that is parsed before checking whether the endpoint accepts more; it grows within a long frame.
LEAST_PIECE: Final = 1024
MOST_PIECE: Final = 16 * 1024
# Frames parsed in one turn of the loop: a frame of six bytes takes microseconds too.
FRAMES_A_TURN: Final = 1000
_INVALID_DATA: Final = 1007
_TOO_SLOW: Final = 1008

# The fields of the handshake; it does not read the rest of the request.
_FIELDS: Final = (
    b"host", b"connection", b"upgrade", b"sec-websocket-key", b"sec-websocket-version", b"sec-websocket-protocol",
)  # fmt: skip


def accept_handshake(head: Head, limits: Limits) -> tuple[ServerProtocol, bytes] | Answer:
    """The protocol object of a new WebSocket and the response to its handshake, or an error response."""
    # Only imported when a client opens a WebSocket.
    from websockets.server import ServerProtocol  # noqa: PLC0415

    protocol = ServerProtocol(
        # No compression: a few bytes could expand to any number of them.
        extensions=None,
        max_size=limits.body_bytes,
        logger=_log,
        select_subprotocol=lambda _, offered: next(
            (subprotocol for subprotocol in offered if subprotocol == SUBPROTOCOL), None
        ),
    )
    if any(name in head.repeated for name in _FIELDS if name != b"connection"):
        return plain_error(400, "A field of the WebSocket handshake occurs more than once.")
    lines = [b"%b: %b" % (name, head.headers[name]) for name in _FIELDS if name in head.headers]
    protocol.receive_data(b"\r\n".join((b"GET /ws HTTP/1.1", *lines, b"", b"")))
    for request in protocol.events_received():
        response = protocol.accept(request)  # type: ignore[arg-type]  # the first event is the request
        if response.status_code == 101:
            protocol.send_response(response)
            return protocol, b"".join(protocol.data_to_send())
        return Answer(response.status_code, bytes(response.body or b""), b"text/plain; charset=utf-8", close=True)
    return plain_error(400, "This is not a WebSocket handshake.")


def take_over(
    upgrade: Upgrade, head: Head, transport: asyncio.Transport, limits: Limits, connections: Connections
) -> tuple[bytes, Callable[[], None]] | Answer:
    """The response to the handshake and the function that makes the connection a WebSocket, or an error response."""
    made = accept_handshake(head, limits)
    if isinstance(made, Answer):
        return made
    protocol, response = made
    return response, lambda: WebSocket(protocol, transport, limits, connections).begin(upgrade)


class WebSocket(LimitedConnection):
    """One WebSocket: the endpoint's Socket, and one of the server's connections."""

    __slots__ = (
        "_begun", "_heard", "_listening", "_messages", "_paused", "_pinged", "_protocol", "_socket_handler", "_unparsed",
    )  # fmt: skip

    def __init__(
        self, protocol: ServerProtocol, transport: asyncio.Transport, limits: Limits, connections: Connections
    ) -> None:
        super().__init__(limits, connections)
        self._protocol = protocol
        self._transport = transport
        self._messages = MessageAssembler()
        # When the incomplete message began.
        self._begun: float | None = None
        self._heard = connections.now
        self._pinged = False
        self._paused = False
        self._listening = True
        self._unparsed = b""
        self._socket_handler: SocketHandler

    def begin(self, upgrade: Upgrade) -> None:
        """Replace HTTP on the connection."""
        self._transport.set_protocol(self)
        self._connections.live.add(self)
        self._socket_handler = upgrade.open(self)

    # -- the endpoint's Socket ---------------------------------------------------------------------------------------

    def write(self, message: bytes) -> None:
        if self._open:
            self._protocol.send_text(message)
            self._flush()

    def write_bytes(self, message: bytes) -> None:
        if self._open:
            self._protocol.send_binary(message)
            self._flush()

    def hold(self, paused: bool) -> None:
        if paused == self._paused or not self._open:
            return
        self._paused = paused
        if paused:
            self._listen(False)
        else:
            self._heard = self._connections.now
            if self._unparsed:
                asyncio.get_running_loop().call_soon(self._read_on)
            else:
                self._listen(True)
        self.weigh()

    def close(self, code: int = GOING_AWAY, reason: str = "The server is shutting down") -> None:
        """Send a close frame; the peer's close frame ends the connection."""
        if self._open:
            self._protocol.send_close(code, reason)
            self._flush()
            self._disconnected()

    @property
    def _open(self) -> bool:
        """Whether messages can be sent: neither side has closed the WebSocket or the connection."""
        return self._protocol.state == OPEN and not self._leaving and not self._transport.is_closing()

    # -- the transport's callbacks -----------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        self._heard = self._connections.now
        self._pinged = False
        if self._unparsed:
            self._unparsed += data
        else:
            self._read(data)

    def _read_on(self) -> None:
        """Parse the bytes that were kept, then resume reading."""
        if not self._paused:
            data, self._unparsed = self._unparsed, b""
            self._read(data)
            self._listen(not self._unparsed and not self._paused)

    def _listen(self, listening: bool) -> None:
        """Resume or pause reading."""
        if listening != self._listening and not self._transport.is_closing():
            self._listening = listening
            if listening:
                self._transport.resume_reading()
            else:
                self._transport.pause_reading()

    def _read(self, data: bytes) -> None:
        protocol = self._protocol
        start, size, taken = 0, LEAST_PIECE, 0
        while start < len(data) and taken < FRAMES_A_TURN and not self._paused and not self._lost:
            protocol.receive_data(data[start : start + size])
            start += size
            frames = protocol.events_received()
            size = LEAST_PIECE if frames else min(2 * size, MOST_PIECE)
            taken += len(frames)
            for frame in frames:
                self._receive_frame(frame)  # type: ignore[arg-type]  # once it is open there are no other events
        if start < len(data) and not self._leaving:
            self._unparsed = data[start:]
            if not self._paused:
                self._listen(False)
                asyncio.get_running_loop().call_soon(self._read_on)
        self._flush()
        if protocol.close_expected():
            self._disconnected()
        elif not self._messages.begun and not protocol.reader.buffer:
            self._begun = None
        elif taken or self._begun is None:
            self._begun = self._connections.now
        if self._heavy or self._unparsed or self._begun is not None:
            self.weigh()

    def eof_received(self) -> None:
        self._disconnected()

    def connection_lost(self, error: Exception | None) -> None:
        self._lost = True
        self._disconnected()
        self.resume_writing()
        # It and its parser refer to each other, and would keep this object until the next garbage collection.
        self._protocol.reader.discard()
        self._messages.drop()
        self._unparsed = b""
        self._forget()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._socket_handler.resume_if_room()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._socket_handler.resume_if_room()

    # -- the server's connection, which is never busy: calls are counted where they run ------------------------------

    @property
    def held(self) -> int:
        """The memory of messages that are not served yet and of messages that are not sent yet."""
        if self._lost:
            return 0
        unserved = len(self._unparsed) + (self._socket_handler.held if self._paused else 0)
        buffer = sys.getsizeof(self._protocol.reader.buffer)
        return unserved + self._messages.held + buffer + unsent(self._transport, self._written)

    def _check_input(self, now: float) -> None:
        limits = self._limits
        if self._paused:
            # The silence of a peer does not count while it is not read.
            self._heard = now
            if self._begun is not None:
                self._begun = now
        elif self._begun is not None and now - self._begun > limits.body_seconds:
            self._fail(_TOO_SLOW, f"A message must arrive within {limits.body_seconds:g} seconds")
        elif now - self._heard > 2 * limits.ping_seconds:
            self._transport.abort()
        elif now - self._heard > limits.ping_seconds and not self._pinged:
            self._pinged = True
            self._protocol.send_ping(b"")
            self._flush()

    # -- messages ----------------------------------------------------------------------------------------------------

    def _receive_frame(self, frame: Frame) -> None:
        data = bytes(frame.data)
        # The parser keeps the last frame until the next one arrives.
        frame.data = b""
        message = None if self._leaving else self._messages.add(frame.opcode, data, frame.fin)
        if message is None:
            return
        if not self._messages.text:
            self._socket_handler.receive_bytes(message)
        elif message.isascii() or _is_utf8(message):
            self._socket_handler.receive_text(message)
        else:
            # 8.1: "that endpoint MUST _Fail the WebSocket Connection_"
            self._fail(_INVALID_DATA, "A text message is not UTF-8")

    def _fail(self, code: int, reason: str) -> None:
        self._protocol.fail(code, reason)
        self._flush()
        self._disconnected()

    def _flush(self) -> None:
        for data in self._protocol.data_to_send():
            if data:
                self._transport.write(data)
                self._written = len(data)
                if len(data) > LIGHT:
                    self.weigh()
            elif self._transport.can_write_eof():
                # Further input is read and dropped: closing at once could lose the close frame.
                self._transport.write_eof()
            else:
                self._transport.close()

    def _disconnected(self) -> None:
        """Stop serving."""
        if not self._leaving:
            self._leaving = True
            self._since = self._connections.now
            self._unparsed = b""
            if not self._lost:
                self._listen(True)
            self._socket_handler.leave()


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
