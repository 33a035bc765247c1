"""What a door and an endpoint say to each other: a Head comes in, an Answer or a stream through a Sink goes out.

A door owns bytes and connections and knows nothing of the protocol; an endpoint knows the protocol and nothing of
connections. Both HTTP doors (our own HTTP/1.1 and ASGI) speak to the same endpoint through these four types.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Protocol, TypeAlias

from msgspec import Struct

Headers: TypeAlias = tuple[tuple[bytes, bytes], ...]


class Head(Struct, gc=False):
    """The start of one HTTP request; header names are lower-case, `repeated` names those that came more than once.

    `peer` and `server` are the addresses at the two ends of the connection; empty for a unix socket.
    """

    method: bytes
    path: bytes
    query: bytes
    headers: dict[bytes, bytes]
    repeated: tuple[bytes, ...] = ()
    peer: str = ""
    server: str = ""
    secure: bool = False


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


class Endpoint(Protocol):
    """Takes a whole request; answers at once, or by a coroutine that ends in an Answer or has streamed (None)."""

    def accept(self, head: Head, body: bytes, sink: Sink) -> Answer | Coroutine[Any, Any, Answer | None]: ...
