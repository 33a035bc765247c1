"""A server behind a WebSocket.

`websockets` implements RFC 6455; connections are opened as for HTTP, with the same proxies and certificates. Redirects
are not followed, since the headers of the handshake may hold credentials. A handshake that is rejected for missing
credentials leads to a login as an HTTP request does, with the same address: `wss` counts as `https`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from pegboard.call import Channel
from pegboard.client.http.address import Address, read_address
from pegboard.client.http.dialer import ConnectionProtocol, Dialer
from pegboard.client.http.http_pool import HttpPool, header_lines
from pegboard.client.links.duplex_link import DuplexLink
from pegboard.client.links.link import Identity, LinkOptions, credential_lines, with_server_name
from pegboard.client.transports.http_endpoint import advise_on_credentials, parse_retry_after
from pegboard.errors import ConnectionLost, MalformedMessage, ServerFault, Unauthorized, Unreachable
from pegboard.protocol.framing.websocket_messages import OPEN, SUBPROTOCOL, MessageAssembler

if TYPE_CHECKING:
    from websockets.client import ClientProtocol
    from websockets.frames import Frame
    from websockets.http11 import Response

WRITE_BYTES: Final = 1024 * 1024
PARSED_BYTES: Final = 1024
PARSE_SECONDS: Final = 0.01
"""How long frames are parsed in one turn of the event loop: a frame of two bytes costs as much as a large one."""
PING_SECONDS: Final = 20.0
CLOSE_SECONDS: Final = 1.0

_log = logging.getLogger("pegboard.client.websocket")
# The library logs every opening and closing.
_log.setLevel(logging.WARNING)


class WebSocketPipe(ConnectionProtocol):
    """Carries text messages; binary ones are ignored.

    A server that sends nothing for two pings is considered lost, even if its connection stays open.
    """

    transport = "ws"

    def __init__(
        self, address: Address, name: str, headers: Mapping[str, str], dialer: Dialer, timeout: float, max_size: int
    ) -> None:
        # Only imported when a WebSocket is opened.
        from websockets.client import ClientProtocol  # noqa: PLC0415
        from websockets.uri import WebSocketURI  # noqa: PLC0415

        self.name = name
        self._address = address
        self._headers = headers
        self._dialer = dialer
        self._timeout = timeout
        path, _, query = address.target.partition("?")
        # No compression: a few bytes could expand to any number of them.
        self._protocol: ClientProtocol = ClientProtocol(
            WebSocketURI(address.secure, address.host, address.port, path, query, None, None),
            subprotocols=[SUBPROTOCOL],  # type: ignore[list-item]  # a NewType of str
            max_size=max_size,
            logger=_log,
        )
        self._messages = MessageAssembler()
        self._unparsed = bytearray()
        self._parsing: asyncio.Handle | None = None
        self._paused = False
        self._pinged = False
        self._pinging: asyncio.TimerHandle | None = None
        self._may_write = asyncio.Event()
        self._may_write.set()
        self._connected = False
        self._closed = asyncio.Event()
        self._handshake_done: asyncio.Future[None] | None = None
        self._receive: Callable[[bytes], None] = lambda _: None
        self._lost: Callable[[ServerFault], None] | None = None

    async def open(self, receive: Callable[[bytes], None], lost: Callable[[ServerFault], None]) -> None:
        self._receive = receive
        shaken = self._handshake_done = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(self._timeout):
                await self._dialer.connect(self._address, lambda: self, tunnels=True)
                # Not before: a loop need not report the loss of a connection that was cancelled while it connected.
                self._connected = True
                self._transport.set_write_buffer_limits(WRITE_BYTES)
                request = self._protocol.connect()
                for name, value in self._headers.items():
                    request.headers[name] = value.strip()
                self._protocol.send_request(request)
                self._flush()
                await shaken
        except TimeoutError:
            raise Unreachable(f"{self.name}: no response to the handshake within {self._timeout:g} s") from None
        except ServerFault as fault:
            raise with_server_name(fault, self.name) from None
        self._lost = lost
        self._ping()

    async def send(self, message: bytes) -> None:
        self.send_now(message)
        await self._may_write.wait()

    def send_now(self, message: bytes) -> None:
        if self._connected and not self._transport.is_closing() and self._protocol.state == OPEN:
            self._protocol.send_text(message)
            self._flush()

    async def close(self) -> None:
        self._lost = None
        if self._pinging is not None:
            self._pinging.cancel()
        if not self._connected:
            return
        if self._protocol.state == OPEN:
            self._protocol.send_close(1000)
            self._flush()
            try:
                async with asyncio.timeout(CLOSE_SECONDS):
                    await self._closed.wait()
            except TimeoutError:
                _log.debug("%s: did not send a close frame", self.name)
            finally:
                # Also if it is cancelled while it waits for the close frame.
                self._transport.abort()
        self._transport.abort()
        await self._closed.wait()

    # The callbacks of the loop.

    def data_received(self, data: bytes) -> None:
        self._pinged = False
        self._unparsed += data
        if not self._paused:
            self._parse()

    def _parse(self) -> None:
        """Parse the received data; pauses reading if that takes long, or while the server does not read."""
        self._parsing = None
        loop = asyncio.get_running_loop()
        until = loop.time() + PARSE_SECONDS
        while self._unparsed and not self._transport.is_closing():
            if not self._may_write.is_set():
                # Each ping needs a response: do not read from a server that does not read.
                self._pause()
                return
            if loop.time() >= until:
                self._pause()
                self._parsing = loop.call_soon(self._parse)
                return
            self._receive_bytes(bytes(self._unparsed[:PARSED_BYTES]))
            del self._unparsed[:PARSED_BYTES]
        if self._paused and not self._transport.is_closing():
            self._paused = False
            self._transport.resume_reading()

    def _pause(self) -> None:
        if not self._paused:
            self._paused = True
            self._transport.pause_reading()

    def _receive_bytes(self, data: bytes) -> None:
        self._protocol.receive_data(data)
        for event in self._protocol.events_received():
            if self._handshake_done is not None:
                self._check_response(event)  # type: ignore[arg-type]  # the first event is the response
            else:
                self._receive_frame(event)  # type: ignore[arg-type]  # once it is open there are no other events
        self._flush()
        if self._handshake_done is not None and self._protocol.handshake_exc is not None:
            self._fail(MalformedMessage(f"{self.name}: its response to the WebSocket handshake is invalid"))
        elif self._protocol.close_expected():
            self._report_lost()

    def eof_received(self) -> bool:
        if self._unparsed:
            self._receive_bytes(bytes(self._unparsed))
            self._unparsed.clear()
        self._protocol.receive_eof()
        return False

    def connection_lost(self, exception: Exception | None) -> None:
        if self._parsing is not None:
            self._parsing.cancel()
        self._closed.set()
        self._may_write.set()
        self._report_lost()

    def pause_writing(self) -> None:
        self._may_write.clear()

    def resume_writing(self) -> None:
        self._may_write.set()
        if self._paused and self._parsing is None:
            self._parse()

    def _check_response(self, response: Response) -> None:
        refused = self._protocol.handshake_exc
        if refused is None:
            shaken, self._handshake_done = self._handshake_done, None
            if shaken is not None and not shaken.done():
                shaken.set_result(None)
            return
        status = response.status_code
        if status == 101:
            self._fail(MalformedMessage(f"{self.name}: its response to the WebSocket handshake is invalid: {refused}"))
            return
        body = bytes(response.body or b"")[:200].decode("utf-8", "replace").strip()
        message = f"{self.name}: answered {status}" + (f", {body!r}" if body else "")
        if status in (401, 403):
            challenge = ", ".join(response.headers.get_all("WWW-Authenticate"))
            self._fail(Unauthorized(f"{message}. {advise_on_credentials(challenge)}", status, challenge))
        else:
            wait = parse_retry_after("".join(response.headers.get_all("Retry-After")))
            self._fail(Unreachable(f"{message}, and did not open a WebSocket", retry_after=wait))

    def _receive_frame(self, frame: Frame) -> None:
        message = self._messages.add(frame.opcode, bytes(frame.data), frame.fin)
        if message is not None and self._messages.text:
            self._receive(message)

    def _ping(self) -> None:
        if self._pinged:
            self._transport.abort()
            return
        self._pinged = True
        if self._protocol.state == OPEN:
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
        shaken, self._handshake_done = self._handshake_done, None
        if shaken is not None and not shaken.done():
            shaken.set_exception(fault)
        self._transport.abort()

    def _report_lost(self) -> None:
        if self._pinging is not None:
            self._pinging.cancel()
        if self._handshake_done is None and self._lost is None:
            return
        fault = self._end()
        if self._handshake_done is not None:
            self._fail(fault)
        lost, self._lost = self._lost, None
        if lost is not None:
            lost(fault)

    def _end(self) -> ServerFault:
        wrong, close_frame = self._protocol.parser_exc, self._protocol.close_rcvd
        if wrong is not None and not isinstance(wrong, EOFError):
            return MalformedMessage(f"{self.name}: sent an invalid WebSocket frame: {wrong}")
        reason = "" if close_frame is None else f" ({close_frame.code} {close_frame.reason}".rstrip() + ")"
        return ConnectionLost(f"{self.name}: closed the connection{reason}")


class WebSocketLink(DuplexLink):
    """A link to a WebSocket; a lost one is opened again for the next request."""

    def __init__(
        self,
        url: str,
        identity: Identity,
        unattributed: Channel,
        options: LinkOptions,
    ) -> None:
        super().__init__(url, "ws", identity, unattributed, options)
        # The schemes of WebSockets correspond to those of HTTP, with the same ports.
        self._address = read_address("http" + url.removeprefix("ws"))
        self._headers = options.headers or {}
        header_lines(self._headers, url)
        self._dialer = Dialer(ca=options.ca, timeout=options.connect_timeout)
        self._pool: HttpPool | None = None
        if options.auth is not None:
            # With the same dialer, so that a login uses the same connections and knows the zone of the server.
            self._pool = HttpPool(dialer=self._dialer)
            self.authorizer = options.auth.authorizer(self._address, self._pool)

    async def open(self) -> None:
        if self._pool is not None:
            self._pool.open()
        await super().open()

    async def close(self) -> None:
        try:
            await super().close()
        finally:
            if self._pool is not None:
                await self._pool.close()

    async def _connect(self, again: bool, version: str | None) -> None:
        headers = dict(self._headers)
        lines = (await credential_lines(self.authorizer)).decode("latin-1").splitlines()
        headers |= dict(line.split(": ", 1) for line in lines)
        largest = self._identity.limits.server_message_bytes
        pipe = WebSocketPipe(self._address, self.name, headers, self._dialer, self._timeout, largest)
        await self._speak(pipe, version)
