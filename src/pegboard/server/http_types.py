"""The interface between an HTTP server and an endpoint: Head, Answer, Sink.

An HTTP server owns bytes and connections and does not know the protocol; an endpoint knows the protocol and not the
connections. Both servers (our own HTTP/1.1 and ASGI) use the same endpoint through these types.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final, Protocol, TypeAlias
from urllib.parse import quote

from msgspec import Struct

from pegboard.limits import Limits

SUBPROTOCOL: Final = "mcp"
"""What a WebSocket that carries MCP is called in its handshake."""

Headers: TypeAlias = tuple[tuple[bytes, bytes], ...]


class Head(Struct, gc=False):
    """The start of one HTTP request; header names are lower-case, `repeated` names those that came more than once.

    `peer` and `server` are the addresses at the two ends of the connection; empty for a unix socket. `prefix` is what
    stands before the path in the client's URL, where somebody has cut it off. A door may hand the same head in again when
    the same bytes come again, so only what follows from it alone may be written on it. `verdict` is the endpoint's place
    for that.
    """

    method: bytes
    path: bytes
    query: bytes
    headers: dict[bytes, bytes]
    repeated: tuple[bytes, ...] = ()
    peer: str = ""
    server: str = ""
    secure: bool = False
    verdict: Any = None
    prefix: str = ""

    def locate(self, path: str) -> str:
        """Where the client of this request finds a path of ours."""
        # Of the client's own making it may be: two slashes would lead to another server.
        before = self.prefix.strip("/")
        return f"/{quote(before)}{path}" if before else path


class Answer(Struct, frozen=True, gc=False):
    """A whole response: the door adds content-length, date and connection headers."""

    status: int
    body: bytes = b""
    content_type: bytes = b"application/json"
    headers: Headers = ()
    close: bool = False


class Sink(Protocol):
    """Where one request's response is streamed to; `start` comes first, `end` last, both once."""

    def start(self, status: int, headers: Headers) -> None: ...

    def write(self, chunk: bytes) -> bool:
        """Send a piece soon; False where the reader lags behind or is gone: then `drain` before the next."""

    async def drain(self) -> None:
        """Wait until the reader has caught up; raises ConnectionError once it is gone or too slow for too long."""

    def end(self) -> None: ...

    def on_gone(self, callback: Callable[[], object]) -> None:
        """Call back once if the client goes away before the response has ended."""


class MessageSocket(Protocol):
    """A WebSocket as an endpoint sees it: whole messages out, in the order in which they are written."""

    @property
    def full(self) -> bool:
        """Whether the peer is behind with reading."""

    def write(self, message: bytes) -> None:
        """Send a message of text soon; nothing is sent once the peer is gone."""

    def write_bytes(self, message: bytes) -> None: ...

    async def drain(self) -> None:
        """Wait until the peer has caught up, or is gone."""

    def hold(self, paused: bool) -> None:
        """Read nothing more for now, or read on."""

    def close(self, code: int, reason: str) -> None: ...


class SocketHandler(Protocol):
    """Whoever an endpoint sets to serve a WebSocket."""

    def receive_text(self, message: bytes) -> None: ...

    def receive_bytes(self, message: bytes) -> None: ...

    @property
    def held(self) -> int:
        """How many bytes of what has come are not served yet."""

    def resume_if_room(self) -> None:
        """The peer is behind with reading, or has caught up."""

    def leave(self) -> None:
        """The peer is gone, or is about to be."""


class Upgrade(Struct, frozen=True, gc=False):
    """The answer to a request that is to become a WebSocket.

    `open` is called once it is one. `take_over` is for a server that owns the connection: with the request, the transport,
    the limits and the open connections it returns the response to send and the function that takes the transport, or an
    error response.
    """

    open: Callable[[MessageSocket], SocketHandler]
    take_over: Callable[[Upgrade, Head, asyncio.Transport, Limits, Any], tuple[bytes, Callable[[], None]] | Answer]


EndpointResult: TypeAlias = Answer | asyncio.Task[Answer | None] | Coroutine[Any, Any, Answer | None] | None
"""An answer at once, or None once it has been streamed; else a task that ends in one of these, or a coroutine to make one of."""


class Endpoint(Protocol):
    """Takes a whole request."""

    def accept(self, head: Head, body: bytes, sink: Sink) -> EndpointResult | Upgrade: ...
