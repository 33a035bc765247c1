"""The interface between an HTTP server and an endpoint: Head, Answer, Sink.

An HTTP server owns bytes and connections and does not know the protocol; an endpoint knows the protocol and not the
connections. Both servers (our own HTTP/1.1 and ASGI) use the same endpoint through these types.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final, Protocol, TypeAlias, final
from urllib.parse import quote

from msgspec import Struct

from pegboard.auth.request_credentials import RequestCredentials
from pegboard.limits import Limits
from pegboard.server.access import NO_ACCESS, Access

Headers: TypeAlias = tuple[tuple[bytes, bytes], ...]

LIGHT: Final = 4096
"""Fewer bytes are not counted: nearly every request is smaller, and ten thousand of them do no harm."""


class Accepts(Struct, frozen=True):
    """The forms of a response that a client accepts."""

    json: bool = True
    stream: bool = True


@final
class Head(Struct, gc=False):
    """The head of one HTTP request; header names are lower-case, `repeated` names those that occur more than once.

    `peer` and `server` are the addresses of the connection; empty for a unix socket. `prefix` is the part before the
    path in the client's URL, if a framework or proxy has removed it. The same head object may be passed again for the
    same bytes, so only data derived from it alone may be stored on it. `verdict` is the endpoint's field for that, `access`
    and `credentials` are those of the authentication, `screened` says that it has just admitted the request. `mount` is the part of `prefix` that a framework has removed, `via`
    the address of the trusted proxy that forwarded the request.
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
    mount: str = ""
    via: str = ""
    access: Access = NO_ACCESS
    credentials: RequestCredentials | None = None
    screened: bool = False

    @property
    def origin(self) -> str:
        """The scheme and host that the client sent the request to."""
        host = self.headers.get(b"host", b"").decode("latin-1")
        return f"{'https' if self.secure else 'http'}://{host}"

    def locate(self, path: str) -> str:
        """The URL of one of our paths, as the client of this request sees it."""
        # The client may control it: two slashes would lead to another server.
        before = self.prefix.strip("/")
        return f"/{quote(before)}{path}" if before else path


@final
class Answer(Struct, frozen=True, gc=False):
    """A whole response: the connection adds content-length, date and connection headers."""

    status: int
    body: bytes = b""
    content_type: bytes = b"application/json"
    headers: Headers = ()
    close: bool = False


class Sink(Protocol):
    """The stream of one request's response; `start` comes first, `end` last, both once."""

    def start(self, status: int, headers: Headers) -> None: ...

    def write(self, chunk: bytes) -> bool:
        """Send a chunk soon; False if the reader lags behind or has disconnected: then `drain` before the next."""

    def flush(self) -> None:
        """Send what was written now, if the server can."""

    async def drain(self) -> None:
        """Wait until the reader has caught up; raises ConnectionError once it has disconnected or is too slow for too
        long."""

    def end(self) -> None: ...

    def on_gone(self, callback: Callable[[], object]) -> None:
        """Call back once if the client disconnects before the response has ended."""

    @property
    def is_open(self) -> bool:
        """Whether the response has begun, has not ended, and the client is still there."""

    def cut(self) -> None:
        """End the connection at once: the client may not receive more."""


class MessageSocket(Protocol):
    """A WebSocket as an endpoint sees it: whole messages, sent in the order in which they are written."""

    @property
    def full(self) -> bool:
        """Whether the peer is behind with reading."""

    def write(self, message: bytes) -> None:
        """Send a text message soon; dropped once the peer has disconnected."""

    def write_bytes(self, message: bytes) -> None: ...

    async def drain(self) -> None:
        """Wait until the peer has caught up, or has disconnected."""

    def hold(self, paused: bool) -> None:
        """Pause or resume reading."""

    def close(self, code: int, reason: str) -> None: ...


class SocketHandler(Protocol):
    """What an endpoint provides to serve a WebSocket."""

    def receive_text(self, message: bytes) -> None: ...

    def receive_bytes(self, message: bytes) -> None: ...

    @property
    def held(self) -> int:
        """How many received bytes have not been processed yet."""

    def resume_if_room(self) -> None:
        """The peer lags behind with reading, or has caught up."""

    def leave(self) -> None:
        """The peer has disconnected, or is about to."""

    @property
    def gone(self) -> bool:
        """Whether the peer has disconnected."""


@final
class Upgrade(Struct, frozen=True, gc=False):
    """The response to a request that is to become a WebSocket.

    `open` is called once it is one. `take_over` is for a server that owns the connection: with the request, the
    transport, the limits and the open connections it returns the response to send and the function that takes the
    transport, or an error response.
    """

    open: Callable[[MessageSocket], SocketHandler]
    take_over: Callable[[Upgrade, Head, asyncio.Transport, Limits, Any], tuple[bytes, Callable[[], None]] | Answer]


EndpointResult: TypeAlias = Answer | asyncio.Task[Answer | None] | Coroutine[Any, Any, Answer | None] | None
"""A response at once, or None once it has been streamed; else a task or coroutine that ends in one of these."""


Route: TypeAlias = Callable[[Head, bytes, Sink], EndpointResult]
"""Answers the requests for one path beside the MCP endpoint, and for everything below it."""


class Endpoint(Protocol):
    """Handles a whole request."""

    def accept(self, head: Head, body: bytes, sink: Sink) -> EndpointResult | Upgrade: ...
