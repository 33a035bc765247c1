"""Posts messages to an MCP endpoint and reads JSON or event streams."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from typing import Any, Final, TypeAlias

import msgspec
from msgspec import Raw

from pegboard import __version__
from pegboard.call import Json, RequestId
from pegboard.client.http.address import Address, Zone
from pegboard.client.http.http_connection import Response
from pegboard.client.http.http_pool import HttpPool, PooledRequest, header_lines
from pegboard.client.links.link import Authorizer, OutgoingRequest, credential_lines
from pegboard.client.links.server_messages import (
    Read,
    ServerMessage,
    WireError,
    read_server_message,
    read_values,
    refusal_of,
)
from pegboard.errors import MalformedMessage, PegboardError, Unauthorized, Unreachable, UnsupportedVersion
from pegboard.limits import Limits
from pegboard.protocol.framing.sse import Event, EventReader
from pegboard.protocol.jsonrpc import is_batch

_WANTS_CREDENTIALS: Final = (
    "The server requires credentials: send them as a header (on the command line: --header 'Authorization: Bearer …'), "
    "or log in with auth=OAuth()."
)
_REJECTS_CREDENTIALS: Final = (
    "The server rejected the credentials that were sent: check them, or ask its operator for others "
    "(`pegboard keys add NAME` makes a key, if it is a Pegboard server)."
)
_ERROR_BYTES: Final = 256 * 1024
_BUSY: Final = frozenset({408, 429, 502, 503, 504})
_EVENTS: Final = b"text/event-stream"
_JSON: Final = b"application/json"

Handle = Callable[[ServerMessage], Awaitable[None]]

_split = msgspec.json.Decoder(list[Raw]).decode


class EndpointClient:
    """The endpoint of one server; `headers` and the authorizer's credentials are only sent to its origin.

    `within` is the zone of the server that named the address, None if a person configured it.
    """

    def __init__(
        self,
        pool: HttpPool,
        address: Address,
        headers: Mapping[str, str],
        authorizer: Authorizer | None = None,
        within: Zone | None = None,
    ) -> None:
        self.address = address
        self._within = within
        self._pool = pool
        self._headers = headers
        self._authorizer = authorizer
        self._own = header_lines(headers, str(address))
        agent = (
            {} if any(name.lower() == "user-agent" for name in headers) else {"User-Agent": f"pegboard/{__version__}"}
        )
        # Compression on the same machine would only cost time.
        packed = {} if address.is_loopback else {"Accept-Encoding": "gzip, deflate"}
        common = header_lines({**agent, **packed}, "")
        self._post = common + (b"Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\n")
        self._get = common + b"Accept: text/event-stream\r\n"

    def at(self, address: Address, within: Zone) -> EndpointClient:
        """The same server at another address, which it named itself from this zone."""
        return EndpointClient(self._pool, address, self._headers, self._authorizer, within)

    def post(
        self, message: bytes, fields: bytes = b"", secrets: bytes = b"", *, urgent: bool = False
    ) -> Coroutine[Any, Any, Response]:
        """Send a message."""
        lines = b"" if self._authorizer is None else self._authorizer.lines()
        if not isinstance(lines, bytes):
            return self._post_later(lines, message, fields, secrets, urgent=urgent)
        secrets += self._own + lines
        request = PooledRequest("POST", self.address, self._post + fields, secrets, message, within=self._within)
        return self._pool.send(request, urgent=urgent)

    async def _post_later(
        self, lines: Awaitable[bytes], message: bytes, fields: bytes, secrets: bytes, *, urgent: bool
    ) -> Response:
        secrets += self._own + await lines
        request = PooledRequest("POST", self.address, self._post + fields, secrets, message, within=self._within)
        return await self._pool.send(request, urgent=urgent)

    async def get(self, fields: bytes = b"", secrets: bytes = b"") -> Response:
        """Request a stream; it stays open, so it does not count towards the limit of connections."""
        secrets += self._own + await credential_lines(self._authorizer)
        request = PooledRequest("GET", self.address, self._get + fields, secrets, within=self._within)
        return await self._pool.send(request, urgent=True)

    async def delete(self, fields: bytes, secrets: bytes) -> None:
        """End a session; the response is ignored."""
        secrets += self._own + await credential_lines(self._authorizer)
        request = PooledRequest("DELETE", self.address, fields, secrets, within=self._within)
        response = await self._pool.send(request, urgent=True)
        response.close()


class HttpRejection(Exception):
    """An HTTP error response, or an MCP error with an HTTP error status; `error` is the MCP error in the body."""

    def __init__(self, response: Response, error: WireError | None, request_id: RequestId | None, text: str) -> None:
        super().__init__(f"status {response.status}")
        self.status = response.status
        self.error = error
        self.request_id = request_id
        self._text = text
        self._retry_after = response.header(b"retry-after")
        self._challenge = response.header(b"www-authenticate")

    def explain(self, name: object) -> PegboardError:
        """The exception for the caller."""
        text = self.error.message if self.error is not None else self._text
        message = f"{name}: answered {self.status}" + (f", {text[:200]!r}" if text else "")
        if self.status in (401, 403):
            return Unauthorized(f"{message}. {advise_on_credentials(self._challenge)}", self.status, self._challenge)
        wait = parse_retry_after(self._retry_after)
        if self.error is not None:
            refusal = refusal_of(self.error)
            refusal.retry_after = None if wait is None else int(wait)
            return refusal
        if self.status in _BUSY:
            return Unreachable(f"{message}. It is unavailable.", retry_after=wait)
        return MalformedMessage(f"{message} without an MCP message")


Reject: TypeAlias = Callable[
    [OutgoingRequest, Any, UnsupportedVersion | HttpRejection], Coroutine[Any, Any, Mapping[str, Json]]
]
"""Handles a request that its transport, the second argument, could not send: HTTP or its revision was rejected."""


def advise_on_credentials(challenge: str) -> str:
    """What to do about a 401 or 403. RFC 6750, 3.1: a challenge has an error only if the request had credentials."""
    return _REJECTS_CREDENTIALS if "error=" in challenge else _WANTS_CREDENTIALS


def parse_retry_after(header: str) -> float | None:
    """The seconds of a Retry-After field; None if it is missing, or a date."""
    return float(header) if header.isascii() and header.isdecimal() and len(header) < 6 else None


async def read_rejection(response: Response, limits: Limits) -> HttpRejection:
    """Read the body of an HTTP error response."""
    body = await response.read_all(_ERROR_BYTES)
    try:
        message = read_server_message(body, limits)
    except MalformedMessage:
        text = (
            body[:200].decode("utf-8", "replace") if response.media_type in (b"text/plain", b"application/json") else ""
        )
        return HttpRejection(response, None, None, text.strip())
    return HttpRejection(response, message.error, message.id, "")


class EventStream:
    """Reads event streams, and keeps the position at which to resume; `read_result` decodes the result of the request."""

    __slots__ = ("has_events", "last_id", "limits", "read_result", "retry")

    def __init__(self, limits: Limits, read_result: Read = read_values) -> None:
        self.limits = limits
        self.read_result = read_result
        self.last_id: str | None = None
        self.retry = 1.0
        self.has_events = 0

    async def read(self, response: Response, request_id: RequestId | None, handle: Handle) -> ServerMessage | None:
        """Pass messages to `handle` until the response arrives; None if the stream ends without it."""
        reader = EventReader(self.limits.server_message_bytes)
        while chunk := await response.read():
            for event in _events(reader, chunk):
                self.has_events += 1
                if event.id is not None:
                    self.last_id = event.id
                if event.retry is not None:
                    self.retry = event.retry / 1000
                if not event.data or event.name != "message":
                    continue
                for message in read_messages(event.data.encode(), self.limits, self.read_result):
                    if message.is_answer and message.id == request_id and request_id is not None:
                        return message
                    await handle(message)
        return None


def _events(reader: EventReader, chunk: bytes) -> Iterator[Event]:
    """Yield one event at a time, so that those of a chunk are not all in memory at once."""
    try:
        yield from reader.feed(chunk)
    except ValueError as problem:
        raise MalformedMessage(str(problem)) from None


def read_whole(response: Response, request_id: RequestId, limits: Limits, read: Read) -> ServerMessage | None:
    """The response to a request if it is all that the server has sent, as JSON; otherwise None: use `read_answer`."""
    if response.status != 200 or not response.headers.get(b"content-type", b"").startswith(_JSON):
        return None
    body = response.peek()
    if body is None or not body.startswith(b"{") or len(body) > limits.server_message_bytes:
        return None
    message = read_server_message(body, limits, read)
    return message if message.method is None and message.id == request_id else None


async def read_answer(
    response: Response, request_id: RequestId, handle: Handle, stream: EventStream
) -> ServerMessage | None:
    """The response to a request; raises HttpRejection for an error; None if a stream ended before it."""
    if not response.is_success:
        raise await read_rejection(response, stream.limits)
    if response.media_type == _EVENTS:
        return await stream.read(response, request_id, handle)
    body = await response.read_all(stream.limits.server_message_bytes)
    if response.status == 202 and not body:
        raise MalformedMessage("answered 202 to a request, without an MCP message")
    found = None
    for message in read_messages(body, stream.limits, stream.read_result):
        if not message.is_answer:
            await handle(message)
        elif message.id == request_id or (message.id is None and message.error is not None):
            found = message
        else:
            raise MalformedMessage(f"responded to another request (id {message.id!r} instead of {request_id!r})")
    if found is None:
        raise MalformedMessage("no MCP message in the response")
    return found


def read_messages(body: bytes, limits: Limits, read: Read) -> list[ServerMessage]:
    """The messages of a body or an event: one, or in 2025-03-26 an array of them."""
    if not is_batch(body):
        return [read_server_message(body, limits, read)]
    try:
        return [read_server_message(bytes(message), limits, read) for message in _split(body)]
    except msgspec.DecodeError:
        raise MalformedMessage("invalid MCP message") from None


def is_stream(response: Response) -> bool:
    return response.status == 200 and response.media_type == _EVENTS
