"""One HTTP/1.1 connection: one request at a time."""

from __future__ import annotations

import asyncio
import re
import zlib
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec
from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser
from msgspec import Struct, field

from pegboard.client.http.address import Zone
from pegboard.client.http.dialer import ConnectionProtocol
from pegboard.errors import ConnectionLost, MalformedMessage, MessageTooLong, ServerFault

HEAD_BYTES: Final = 64 * 1024
HEAD_LINES: Final = 200
IDLE_SECONDS: Final = 4.0
"""A connection is not reused after this long: common servers close theirs after five seconds."""
FRESH_SECONDS: Final = 0.5
"""For this long, the end of an idle connection need not be awaited before it is reused."""
BUFFER: Final = 256 * 1024
PIECE: Final = 64 * 1024
"""How much of a compressed body is decompressed before the event loop gets its turn."""

KNOWN_BYTES: Final = 2048
"""A larger head is not kept for the next response: its connection may be idle for a while."""

_LENGTH: Final = re.compile(rb"\r\ncontent-length: ?([0-9]{1,9})\r\n", re.IGNORECASE)
_FRAMING: Final = frozenset({b"content-encoding", b"transfer-encoding", b"upgrade", b"trailer"})

# For a number, a third of the time of formatting.
_encode: Final = msgspec.json.Encoder().encode
_CODINGS: Final = {b"gzip": 47, b"x-gzip": 47, b"deflate": 47}


class Response(Struct, eq=False):
    """A response whose head has arrived; its body comes in chunks, or as a `_whole` with the head."""

    _connection: HttpConnection
    status: int
    headers: Mapping[bytes, bytes]
    _whole: bytes = b""
    ended: bool = False
    _decompress: Any = None
    # One buffer: small chunks would each take ten times their size.
    _unread: bytearray = field(default_factory=bytearray)
    # How much may wait here; more than usual if all of it is read at once.
    _room: int = BUFFER
    _fault: ServerFault | None = None
    _waiter: asyncio.Future[None] | None = None

    @property
    def is_success(self) -> bool:
        return 200 <= self.status < 300

    @property
    def media_type(self) -> bytes:
        return self.headers.get(b"content-type", b"").partition(b";")[0].strip().lower()

    def header(self, name: bytes) -> str:
        return self.headers.get(name, b"").decode("latin-1").strip()

    @property
    def zone(self) -> Zone:
        """The zone of the server that responded."""
        return self._connection.zone

    def peek(self) -> bytes | None:
        """The whole body if it has arrived, as it does for most responses; None if it has to be read."""
        return (self._whole or bytes(self._unread)) if self.ended and self._decompress is None else None

    async def read(self) -> bytes:
        """The next chunk of the body; empty at its end."""
        if self._whole:
            whole, self._whole = self._whole, b""
            return whole
        while True:
            if self._unread:
                if self._decompress is not None:
                    # A few kilobytes can stand for megabytes, which are read without a wait in between.
                    await asyncio.sleep(0)
                chunk = self._take()
                if chunk:
                    return chunk
            elif self.ended:
                return b""
            elif self._fault is not None:
                raise self._fault
            else:
                await self._wait()

    async def read_all(self, limit: int) -> bytes:
        """The whole body; rejected once it is longer than the limit."""
        if self._decompress is None and not self.ended and self._fault is None and len(self._unread) <= limit:
            # It continues once all of the body is there, or more than the limit.
            self._room = limit + 1
            self._connection.resume()
            await self._wait()
        body = bytearray()
        while chunk := await self.read():
            if len(body) + len(chunk) > limit:
                self.close()
                raise MessageTooLong(f"a response of more than {limit} bytes")
            if self.ended and not body and not self._unread:
                return chunk
            body += chunk
        return bytes(body)

    def close(self) -> None:
        """Stop reading: unless the body has ended, the connection cannot be reused."""
        if not self.ended:
            self._connection.abort()

    async def _wait(self) -> None:
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _take(self) -> bytes:
        chunk = bytes(self._unread)
        self._unread.clear()
        if self._decompress is not None:
            try:
                chunk = self._decompress.decompress(chunk, PIECE)
            except zlib.error:
                raise MalformedMessage("a response with invalid compression") from None
            self._unread += self._decompress.unconsumed_tail
        if len(self._unread) < BUFFER:
            self._connection.resume()
        return chunk

    # Events of the connection.

    def feed(self, chunk: bytes) -> None:
        self._unread += chunk
        if len(self._unread) >= self._room:
            self._connection.pause()
        elif self._room != BUFFER:
            return
        self._wake()

    def end(self) -> None:
        self.ended = True
        self._wake()

    def fail(self, fault: ServerFault) -> None:
        self._fault = fault
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class HttpConnection(ConnectionProtocol):
    """A connection; `freed` is called when it can be reused or is closed, whichever comes first.

    A server sends the same head again and again. A head is known once it has arrived in one piece with its body, whose
    length it states: if the same bytes come again, except for the digits of that length, they mean the same, and only the
    body is new. The parser, which is between two responses, does not get them.
    """

    __slots__ = (
        "_freed", "_known", "_lines", "_loop", "_parser", "_paused", "_response", "_unread", "_waiter", "closed", "good_until",
        "idle_since", "origin",
    )  # fmt: skip

    def __init__(
        self, origin: tuple[str, str, int], loop: asyncio.AbstractEventLoop, freed: Callable[[HttpConnection], None]
    ) -> None:
        self.origin = origin
        self.closed = False
        self.idle_since = 0.0
        self.good_until = 0.0
        self._freed = freed
        self._loop = loop
        self._parser = HttpResponseParser(self)
        self._waiter: asyncio.Future[Response] | None = None
        self._response: Response | None = None
        self._lines: list[tuple[bytes, bytes]] = []
        self._unread = 0
        self._paused = False
        # The head before and after the digits of the length, its fields, and how long the connection can be reused.
        self._known: tuple[bytes, bytes, Mapping[bytes, bytes], float] | None = None

    def send(self, request: bytes) -> asyncio.Future[Response]:
        """Send a request; the response is there once its head has arrived. One that waits for it in vain must `leave`."""
        waiter = self._waiter = self._loop.create_future()
        self._transport.write(request)
        return waiter

    def leave(self, waiter: asyncio.Future[Response]) -> None:
        """The response is not waited for any more: close the connection, unless it can be reused."""
        # The whole response may have come before its reader was cancelled.
        if self._waiter is waiter:
            self.abort()

    def is_fresh(self, within: Zone | None) -> bool:
        """Whether it was used a moment ago, and may be used for an address that a server in that zone named."""
        now = self._loop.time()
        usable = not self.closed and now < self.good_until and now <= self.idle_since + FRESH_SECONDS
        return usable and (within is None or self.zone <= within)

    def abort(self) -> None:
        """Close at once, discarding unsent and unread data."""
        self._transport.abort()
        self._fail_response(ConnectionLost("the connection was closed"))

    def pause(self) -> None:
        if not self._paused and not self.closed:
            self._paused = True
            self._transport.pause_reading()

    def resume(self) -> None:
        if self._paused and not self.closed:
            self._paused = False
            self._transport.resume_reading()

    # Events of the loop.

    def data_received(self, data: bytes) -> None:
        known, waiter = self._known, self._waiter
        if known is not None and waiter is not None and not self._unread and data.startswith(known[0]):
            start, rest, headers, seconds = known
            end = data.find(b"\r\n", len(start))
            body = data[end + len(rest) :]
            length = _encode(len(body))
            if data[len(start) : end] == length and data.startswith(rest, end) and not waiter.done():
                self._waiter = None
                self.idle_since = now = self._loop.time()
                self.good_until = now + seconds
                self._freed(self)
                waiter.set_result(Response(self, 200, {**headers, b"content-length": length}, body, True))
                return
        begins = self._response is None and not self._unread
        self._unread += len(data)
        try:
            self._parser.feed_data(data)
        except (HttpParserError, HttpParserUpgrade) as error:
            cause = error.__context__
            self._break(cause if isinstance(cause, ServerFault) else MalformedMessage("not an HTTP/1.1 response"))
            return
        if self._unread > HEAD_BYTES and self._waiter is not None:
            # The parser buffers incomplete parts: a head, the extension of a chunk, a trailer.
            part = "head" if self._response is None else "trailer"
            self._break(MalformedMessage(f"the {part} of a response of more than {HEAD_BYTES} bytes"))
        elif begins and waiter is not None and self._waiter is None and not self.closed:
            self._remember_head(data, waiter)

    def _remember_head(self, data: bytes, waiter: asyncio.Future[Response]) -> None:
        """Keep the head of a response that these bytes are the whole of."""
        end = data.find(b"\r\n\r\n") + 4
        length = _LENGTH.search(data, 0, end) if end <= KNOWN_BYTES else None
        if length is None or int(length[1]) != len(data) - end or waiter.cancelled():
            return
        response = waiter.result()
        headers = response.headers
        # A field that is repeated has all its values; a length with leading zeros is not repeated as such.
        plain = headers[b"content-length"] == length[1] == b"%d" % (len(data) - end)
        if response.status == 200 and plain and _FRAMING.isdisjoint(headers):
            start, rest = data[: length.start(1)], data[length.end(1) : end]
            self._known = start, rest, headers, _keep_alive_seconds(headers)

    def eof_received(self) -> bool:
        response = self._response
        if response is not None and b"content-length" not in response.headers and not self._is_chunked(response):
            # Without a length, the end of the connection is the end of the body.
            self._response = self._waiter = None
            response.end()
            self.closed = True
            self._freed(self)
        return False

    def connection_lost(self, exception: Exception | None) -> None:
        self._fail_response(
            ConnectionLost(
                "the connection was closed before the response" + (" was complete" if self._response else "")
            )
        )

    # Events of the parser.

    def on_message_begin(self) -> None:
        self._lines = []

    def on_header(self, name: bytes, value: bytes) -> None:
        self._lines.append((name, value))
        if len(self._lines) > HEAD_LINES:
            raise MalformedMessage(f"the head of a response of more than {HEAD_LINES} lines")

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if self._waiter is None or self._waiter.done():
            raise MalformedMessage("a response without a request")
        if self._unread > HEAD_BYTES and sum(len(name) + len(value) for name, value in self._lines) > HEAD_BYTES:
            raise MalformedMessage(f"the head of a response of more than {HEAD_BYTES} bytes")
        if status < 200:
            return
        fields: dict[bytes, bytes] = {}
        for written, value in self._lines:
            name = written.lower()
            fields[name] = fields[name] + b", " + value if name in fields else value
        self._unread = 0
        self._response = Response(self, status, fields, _decompress=_decompressor(fields))
        self._waiter.set_result(self._response)

    def on_body(self, chunk: bytes) -> None:
        self._unread = 0
        if self._response is not None:
            self._response.feed(chunk)

    def on_message_complete(self) -> None:
        response = self._response
        if response is None:
            return
        self._response = self._waiter = None
        self._unread = 0
        if self._paused:
            self.resume()
        response.end()
        if not self._parser.should_keep_alive():
            self.closed = True
            self._transport.close()
        self.idle_since = now = self._loop.time()
        self.good_until = now + _keep_alive_seconds(response.headers)
        self._freed(self)

    @staticmethod
    def _is_chunked(response: Response) -> bool:
        return b"chunked" in response.headers.get(b"transfer-encoding", b"").lower()

    def _break(self, fault: ServerFault) -> None:
        self._transport.abort()
        self._fail_response(fault)

    def _fail_response(self, fault: ServerFault) -> None:
        if self.closed:
            return
        self.closed = True
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(fault)
        self._waiter = None
        if self._response is not None:
            self._response.fail(fault)
            self._response = None
        self._freed(self)


def _decompressor(headers: Mapping[bytes, bytes]) -> Any:
    """What decompresses a body; None if it is not compressed."""
    coding = headers.get(b"content-encoding", b"").strip().lower()
    if coding in _CODINGS:
        return zlib.decompressobj(_CODINGS[coding])
    if coding and coding != b"identity":
        raise MalformedMessage(
            f"the response has a content coding that was not requested: {coding.decode('latin-1')[:40]!r}"
        )
    return None


def _keep_alive_seconds(headers: Mapping[bytes, bytes]) -> float:
    """How long a connection can be reused; one second less than the server's keep-alive, if it states one."""
    if b"keep-alive" in headers:
        timeout = headers[b"keep-alive"].partition(b"timeout=")[2].partition(b",")[0].strip()
        if timeout.isdigit():
            return min(IDLE_SECONDS, float(timeout[:6]) - 1)
    return IDLE_SECONDS
