"""A server behind a WebSocket: all messages both ways on one connection, opened again when it was lost.

The rules of RFC 6455 are `websockets`' to know, and how a connection is made is that of HTTP: the same proxies and
certificates. A redirect is not followed, as the headers of the handshake may say who we are. A handshake that is refused
for want of credentials leads to a login as a request over HTTP does, with the same address: `wss` is `https` there.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pegboard.call import Channel
from pegboard.client.address import Address, read_address
from pegboard.client.admission import Auth
from pegboard.client.duplex import Duplex
from pegboard.client.endpoint import WANTS_CREDENTIALS, read_retry
from pegboard.client.link import Identity, named
from pegboard.client.renewed import Renewed, opened
from pegboard.client.roads import Roads, Traveller
from pegboard.client.web import Web, header_lines
from pegboard.errors import Garbled, LinkLost, NotAdmitted, ServerFault, Unreachable

if TYPE_CHECKING:
    from websockets.client import ClientProtocol
    from websockets.frames import Frame
    from websockets.http11 import Response

MESSAGE_BYTES: Final = 16 * 1024 * 1024
WRITE_BYTES: Final = 1024 * 1024
PING_SECONDS: Final = 20.0
CLOSE_SECONDS: Final = 1.0
SUBPROTOCOL: Final = "mcp"
_TEXT: Final = 1
# `websockets.protocol.State`
_OPEN: Final = 1

_log = logging.getLogger("pegboard.client.websocket")
# Each opening and closing would be a line.
_log.setLevel(logging.WARNING)


class SocketPipe(Traveller):
    """Carries messages of text; what else a server may send is not for us.

    A server from which nothing comes for two pings is gone, even where its connection does not say so.
    """

    transport = "ws"

    def __init__(self, address: Address, name: str, headers: Mapping[str, str], roads: Roads, timeout: float) -> None:
        # Only who opens a WebSocket needs it.
        from websockets.client import ClientProtocol  # noqa: PLC0415
        from websockets.uri import WebSocketURI  # noqa: PLC0415

        self.name = name
        self._address = address
        self._headers = headers
        self._roads = roads
        self._timeout = timeout
        path, _, query = address.target.partition("?")
        # Nothing is compressed: a few bytes could stand for any number of them.
        self._protocol: ClientProtocol = ClientProtocol(
            WebSocketURI(address.secure, address.host, address.port, path, query, None, None),
            subprotocols=[SUBPROTOCOL],  # type: ignore[list-item]  # a NewType of str
            max_size=MESSAGE_BYTES,
            logger=_log,
        )
        self._parts: list[bytes] = []
        self._text = False
        self._pinged = False
        self._pinging: asyncio.TimerHandle | None = None
        self._may_write = asyncio.Event()
        self._may_write.set()
        self._connected = False
        self._closed = asyncio.Event()
        self._shaken: asyncio.Future[None] | None = None
        self._receive: Callable[[bytes], None] = lambda _: None
        self._lost: Callable[[ServerFault], None] | None = None

    async def open(self, receive: Callable[[bytes], None], lost: Callable[[ServerFault], None]) -> None:
        self._receive = receive
        shaken = self._shaken = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(self._timeout):
                await self._roads.connect(self._address, lambda: self, tunnels=True)
                # Not before: a loop need not say goodbye to whom it was told to leave while it connected.
                self._connected = True
                self._transport.set_write_buffer_limits(WRITE_BYTES)
                request = self._protocol.connect()
                for name, value in self._headers.items():
                    request.headers[name] = value.strip()
                self._protocol.send_request(request)
                self._flush()
                await shaken
        except TimeoutError:
            raise Unreachable(f"{self.name}: no answer to the handshake within {self._timeout:g} s") from None
        except ServerFault as fault:
            raise named(fault, self.name) from None
        self._lost = lost
        self._ping()

    async def send(self, message: bytes) -> None:
        self.send_now(message)
        await self._may_write.wait()

    def send_now(self, message: bytes) -> None:
        if self._connected and not self._transport.is_closing() and self._protocol.state == _OPEN:
            self._protocol.send_text(message)
            self._flush()

    async def close(self) -> None:
        self._lost = None
        if self._pinging is not None:
            self._pinging.cancel()
        if not self._connected:
            return
        if self._protocol.state == _OPEN:
            self._protocol.send_close(1000)
            self._flush()
            try:
                async with asyncio.timeout(CLOSE_SECONDS):
                    await self._closed.wait()
            except TimeoutError:
                _log.debug("%s: does not say goodbye", self.name)
            finally:
                # Whoever is cancelled while it says goodbye leaves all the same.
                self._transport.abort()
        self._transport.abort()
        await self._closed.wait()

    # What the loop tells.

    def data_received(self, data: bytes) -> None:
        self._pinged = False
        self._protocol.receive_data(data)
        for event in self._protocol.events_received():
            if self._shaken is not None:
                self._judge(event)  # type: ignore[arg-type]  # the first event is the answer to the handshake
            else:
                self._take(event)  # type: ignore[arg-type]  # once it is open there are no other events
        self._flush()
        if self._shaken is not None and self._protocol.handshake_exc is not None:
            self._fail(Garbled(f"{self.name}: answers the handshake of a WebSocket with something else"))
        elif self._protocol.close_expected():
            self._lose()

    def eof_received(self) -> bool:
        self._protocol.receive_eof()
        return False

    def connection_lost(self, exception: Exception | None) -> None:
        self._closed.set()
        self._may_write.set()
        self._lose()

    def pause_writing(self) -> None:
        self._may_write.clear()

    def resume_writing(self) -> None:
        self._may_write.set()

    def _judge(self, response: Response) -> None:
        refused = self._protocol.handshake_exc
        if refused is None:
            shaken, self._shaken = self._shaken, None
            if shaken is not None and not shaken.done():
                shaken.set_result(None)
            return
        status = response.status_code
        if status == 101:
            self._fail(Garbled(f"{self.name}: does not keep to the handshake of a WebSocket: {refused}"))
            return
        said = bytes(response.body or b"")[:200].decode("utf-8", "replace").strip()
        told = f"{self.name}: answered {status}" + (f", {said!r}" if said else "")
        if status in (401, 403):
            challenge = ", ".join(response.headers.get_all("WWW-Authenticate"))
            self._fail(NotAdmitted(f"{told}. {WANTS_CREDENTIALS}", status, challenge))
        else:
            wait = read_retry("".join(response.headers.get_all("Retry-After")))
            self._fail(Unreachable(f"{told}, and opens no WebSocket", retry_after=wait))

    def _take(self, frame: Frame) -> None:
        """Put together what may have come in several frames; the numbers are those of RFC 6455, 5.2."""
        if frame.opcode > 2:
            return
        if frame.opcode:
            self._text = frame.opcode == _TEXT
        if not frame.fin:
            self._parts.append(bytes(frame.data))
            return
        data = b"".join((*self._parts, frame.data))
        self._parts.clear()
        if self._text:
            self._receive(data)

    def _ping(self) -> None:
        if self._pinged:
            self._transport.abort()
            return
        self._pinged = True
        if self._protocol.state == _OPEN:
            self._protocol.send_ping(b"")
            self._flush()
        self._pinging = asyncio.get_running_loop().call_later(PING_SECONDS, self._ping)

    def _flush(self) -> None:
        for data in self._protocol.data_to_send():
            if data and not self._transport.is_closing():
                self._transport.write(data)
            elif not data:
                # We are the client: the server closes the connection first, and may take a moment.
                asyncio.get_running_loop().call_later(CLOSE_SECONDS, self._transport.abort)

    def _fail(self, fault: ServerFault) -> None:
        shaken, self._shaken = self._shaken, None
        if shaken is not None and not shaken.done():
            shaken.set_exception(fault)
        self._transport.abort()

    def _lose(self) -> None:
        if self._pinging is not None:
            self._pinging.cancel()
        if self._shaken is None and self._lost is None:
            return
        fault = self._end()
        if self._shaken is not None:
            self._fail(fault)
        lost, self._lost = self._lost, None
        if lost is not None:
            lost(fault)

    def _end(self) -> ServerFault:
        wrong, told = self._protocol.parser_exc, self._protocol.close_rcvd
        if wrong is not None and not isinstance(wrong, EOFError):
            return Garbled(f"{self.name}: sent what a WebSocket does not carry: {wrong}")
        said = "" if told is None else f" ({told.code} {told.reason}".rstrip() + ")"
        return LinkLost(f"{self.name}: closed the connection{said}")


class SocketLink(Renewed):
    """A link to a WebSocket; one that was lost is opened anew for the next request."""

    def __init__(
        self,
        url: str,
        identity: Identity,
        lobby: Channel,
        *,
        headers: Mapping[str, str] | None = None,
        version: str | None = None,
        ca: str | Path | None = None,
        connect_timeout: float = 10.0,
        auth: Auth | None = None,
    ) -> None:
        super().__init__(url, "ws", self._connect)
        # The schemes of a WebSocket are those of HTTP, with the same ports.
        self._address = read_address("http" + url.removeprefix("ws"))
        self._headers = headers or {}
        header_lines(self._headers, url)
        self._identity = identity
        self._lobby = lobby
        self._pinned = version
        self._timeout = connect_timeout
        self._roads = Roads(ca=ca, timeout=connect_timeout)
        self._web: Web | None = None
        if auth is not None:
            # With the same ways, so that a login knows where the server is.
            self._web = Web(roads=self._roads)
            self.authorizer = auth.authorizer(self._address, self._web)

    async def open(self) -> None:
        if self._web is not None:
            self._web.open()
        await super().open()

    async def close(self) -> None:
        try:
            await super().close()
        finally:
            if self._web is not None:
                await self._web.close()

    async def _connect(self, _again: bool) -> Duplex:
        headers = dict(self._headers)
        if self.authorizer is not None:
            lines = (await self.authorizer.lines()).decode("latin-1").splitlines()
            headers |= dict(line.split(": ", 1) for line in lines)
        pipe = SocketPipe(self._address, self.name, headers, self._roads, self._timeout)
        return await opened(Duplex(pipe, self._identity, self._lobby, version=self._pinned, timeout=self._timeout))
