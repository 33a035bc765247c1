"""The MCP endpoint over HTTP, free of any connection: a Head and a body in, an Answer or a stream out.

The era is chosen per request, as the spec's table for dual-era servers says: a body that carries a modern `_meta`, or
a version header that is no legacy revision, is served statelessly; everything else is legacy and needs a session,
which `initialize` opens.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final, TypeAlias, TypeVar

from msgspec import UNSET

from pegboard.call import Call, Caller, Handler, Json, RequestId
from pegboard.errors import (
    Busy,
    HeaderMismatch,
    IdInFlight,
    InvalidRequest,
    Refusal,
    SessionRequired,
    UnsupportedVersion,
)
from pegboard.limits import Limits
from pegboard.protocol import headers as mcp
from pegboard.protocol import jsonrpc
from pegboard.protocol.jsonrpc import Message
from pegboard.protocol.legacy import read_handshake
from pegboard.protocol.params import Params, read_params
from pegboard.protocol.tongue import tongues
from pegboard.protocol.versions import BATCHES, LEGACY, MODERN, SUPPORTED, UNSTATED
from pegboard.sessions.session import Session, Sessions
from pegboard.transports.channels import Admitted, Batched, HttpExchange, conduct, shutting_down, stream
from pegboard.transports.door import Answer, Head, Headers, Sink
from pegboard.transports.guard import Guard
from pegboard.transports.incoming import (
    ModernCallers,
    cancelled_id,
    check_method,
    is_modern,
    make_call,
    read_token,
    subject,
)
from pegboard.transports.media import Accepts, check_content_type, read_accept

T = TypeVar("T")
Served: TypeAlias = Answer | Coroutine[Any, Any, Answer | None]

_KEEP_ALIVE_SECONDS: Final = 15.0
_LAST_WORDS_SECONDS: Final = 1.0


class HttpEndpoint:
    """Serves one Handler at one path, in every revision we speak."""

    def __init__(
        self,
        handler: Handler,
        info: Mapping[str, Json],
        *,
        limits: Limits,
        guard: Guard,
        paths: tuple[str, ...] = ("/mcp", "/mcp/"),
        prefix: str = "",
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self._handler = handler
        self._limits = limits
        self._guard = guard
        self._given_loop = self._loop = loop
        self._tongues = tongues(info)
        self._modern = self._tongues[MODERN]
        self.sessions = Sessions(limits)
        # None: let in, but not begun.
        self.calls: dict[Admitted[Any], asyncio.Task[Any] | None] = {}
        self.draining = False
        self._sweeping = False
        self._callers = ModernCallers("http")
        self._paths: dict[bytes, Callable[[Head, bytes, Sink], Served]] = {
            **{(prefix + path).encode(): self._mcp for path in paths},
            (prefix + "/health").encode(): self._health,
            (prefix + "/ready").encode(): self._ready,
        }
        self._where = ", ".join(prefix + path for path in paths[:1])

    def accept(self, head: Head, body: bytes, sink: Sink) -> Served:
        """Route a request by its path."""
        route = self._paths.get(head.path)
        if route is None:
            return _text(404, f"Nothing is served at this path; the MCP endpoint is {self._where}")
        return route(head, body, sink)

    def _health(self, head: Head, body: bytes, sink: Sink) -> Answer:
        return Answer(200, b'{"status":"ok"}') if head.method == b"GET" else _not_allowed(b"GET")

    def _ready(self, head: Head, body: bytes, sink: Sink) -> Answer:
        if head.method != b"GET":
            return _not_allowed(b"GET")
        if self.draining:
            return Answer(503, b'{"status":"draining"}')
        return Answer(200, b'{"status":"ready"}')

    def _mcp(self, head: Head, body: bytes, sink: Sink) -> Served:
        allowed = self._guard.check(head)
        if isinstance(allowed, Answer):
            return allowed
        try:
            match head.method:
                case b"POST":
                    return self._post(head, body, sink, allowed)
                case b"DELETE":
                    return self._delete(head, allowed)
                case b"OPTIONS":
                    return self._guard.preflight(head, allowed)
        except Refusal as refusal:
            return _refused(refusal, allowed)
        return _not_allowed(b"POST, DELETE, OPTIONS", allowed)

    # -- POST ------------------------------------------------------------------------------------------------------

    def _post(self, head: Head, body: bytes, sink: Sink, extra: Headers) -> Served:
        headers = head.headers
        if headers.get(b"content-type") != b"application/json":
            check_content_type(headers.get(b"content-type"))
        accepts = read_accept(headers.get(b"accept"))
        if not accepts.json and not accepts.stream:
            return _text(406, "Accept must allow application/json and text/event-stream", extra)
        if jsonrpc.is_batch(body):
            return self._batch(head, body, sink, extra, accepts)
        message = jsonrpc.read(body, self._limits)
        try:
            params = read_params(body, message)
            stated = headers.get(mcp.VERSION)
            version = None if stated is None else stated.decode("latin-1")
            if (version is not None and version not in LEGACY) or is_modern(params):
                return self._serve_modern(head, message, params, version, sink, extra, accepts)
            return self._serve_legacy(head, message, params, sink, extra, accepts)
        except Refusal as refusal:
            if message.id is not UNSET:
                refusal.request_id = message.id
            raise

    def _serve_modern(
        self,
        head: Head,
        message: Message,
        params: Params,
        version: str | None,
        sink: Sink,
        extra: Headers,
        accepts: Accepts,
    ) -> Served:
        method, request_id = message.method, message.id
        if method is UNSET:
            # "The client MUST NOT send JSON-RPC responses" (Sending Messages, 4)
            raise InvalidRequest("A client of this revision sends no responses: retry the request with inputResponses")
        if request_id is UNSET:
            if version is not None and version != MODERN:
                raise UnsupportedVersion(version, SUPPORTED)
            return Answer(202, headers=extra)
        caller, token = self._callers.read(params, version)
        if version is None:
            raise HeaderMismatch(f"Header mismatch: the MCP-Protocol-Version header is missing; send {caller.version}")
        about = subject(method, params)
        mcp.check_mirror(head.headers, method, about)
        check_method(method, MODERN)
        exchange = HttpExchange(sink, self._modern, request_id, extra, accepts)
        call = make_call(method, request_id, about, message, params, caller, exchange, token, head.headers)
        self._admit(exchange)
        return self._run_modern(call, exchange, sink)

    async def _run_modern(self, call: Call, exchange: HttpExchange, sink: Sink) -> Answer | None:
        task = self.calls[exchange] = asyncio.current_task()
        if task is not None:
            # Cancellation: "Closing the SSE response stream MUST be treated by the server as cancellation".
            sink.on_gone(task.cancel)
        try:
            return await conduct(self._handler, call, exchange)
        finally:
            del self.calls[exchange]

    # -- legacy ----------------------------------------------------------------------------------------------------

    def _serve_legacy(
        self, head: Head, message: Message, params: Params, sink: Sink, extra: Headers, accepts: Accepts
    ) -> Served:
        if message.method == "initialize" and message.id is not UNSET:
            return self._initialize(message, message.id, sink, extra, accepts)
        session = self._session(head)
        extra = (*extra, session.header)
        method, request_id = message.method, message.id
        if method is UNSET or request_id is UNSET:
            _take_notice(session, message)
            return Answer(202, headers=extra)
        exchange = HttpExchange(sink, self._tongues[session.caller.version], request_id, extra, accepts)
        try:
            _check_request(session, method, request_id)
            if method == "ping":
                return _pong(exchange)
            call = _legacy_call(session, message, method, request_id, params, exchange)
            self._admit(exchange)
        except Refusal as refusal:
            return _say(exchange, refusal)
        session.calls[request_id] = None
        return self._run_legacy(call, request_id, exchange, sink, session)

    def _initialize(
        self, message: Message, request_id: RequestId, sink: Sink, extra: Headers, accepts: Accepts
    ) -> Served:
        handshake = read_handshake(bytes(message.params))
        self._check_room()
        session = self.sessions.open(
            lambda session_id: Caller(
                version=handshake.version,
                transport="http",
                session=session_id,
                client=handshake.client,
                capabilities=handshake.capabilities,
            )
        )
        tongue = self._tongues[handshake.version]
        exchange = HttpExchange(sink, tongue, request_id, (*extra, session.header), accepts)
        self._admit(exchange)
        call = Call(method="server/discover", caller=session.caller, channel=exchange, id=request_id)
        return self._run_legacy(call, request_id, exchange, sink, session)

    def _run_legacy(
        self, call: Call, request_id: RequestId, exchange: HttpExchange, sink: Sink, session: Session
    ) -> Coroutine[Any, Any, Answer | None]:
        # "Disconnection … SHOULD NOT be interpreted as the client cancelling its request" (2025-11-25, Sending 6)
        sink.on_gone(exchange.leave)
        return self._conduct(call, request_id, exchange, session)

    async def _conduct(self, call: Call, request_id: RequestId, exchange: Admitted[T], session: Session) -> T | None:
        """Walk a call that its session can cancel."""
        session.calls[request_id] = self.calls[exchange] = asyncio.current_task()
        try:
            return await conduct(self._handler, call, exchange)
        finally:
            del self.calls[exchange], session.calls[request_id]

    def _session(self, head: Head) -> Session:
        sent = head.headers.get(mcp.SESSION)
        if sent is None:
            raise SessionRequired(
                "Missing MCP-Session-Id header: send initialize first and repeat the id it answers with"
            )
        return self.sessions.find(sent.decode("latin-1"), "")

    # -- batches ---------------------------------------------------------------------------------------------------

    def _batch(self, head: Head, body: bytes, sink: Sink, extra: Headers, accepts: Accepts) -> Served:
        bodies = jsonrpc.read_batch(body, self._limits)
        stated = head.headers.get(mcp.VERSION)
        version = UNSTATED if stated is None else stated.decode("latin-1")
        if version in LEGACY and mcp.SESSION in head.headers:
            version = self._session(head).caller.version
        if version not in LEGACY and version != MODERN:
            raise UnsupportedVersion(version, SUPPORTED)
        if version not in BATCHES:
            raise InvalidRequest(f"Revision {version} has no batches: send one message per request")
        session = self._session(head)
        self._check_room()
        return self._run_batch(session, bodies, sink, (*extra, session.header), accepts)

    async def _run_batch(
        self, session: Session, bodies: list[bytes], sink: Sink, extra: Headers, accepts: Accepts
    ) -> Answer | None:
        answers = await asyncio.gather(*(self._run_item(session, body) for body in bodies))
        told = b",".join([answer for answer in answers if answer is not None])
        if not told:
            return Answer(202, headers=extra)
        if accepts.json:
            return Answer(200, b"[%b]" % told, headers=extra)
        stream(sink, b"[%b]" % told, extra)
        return None

    async def _run_item(self, session: Session, body: bytes) -> bytes | None:
        request_id: RequestId | None = None
        try:
            message = jsonrpc.read(body, self._limits)
            if message.id is not UNSET:
                request_id = message.id
            params = read_params(body, message)
            if message.method is UNSET or request_id is None:
                _take_notice(session, message)
                return None
            _check_request(session, message.method, request_id)
            if message.method == "ping":
                return jsonrpc.answer(request_id, b"{}")
            exchange = Batched(self._tongues[session.caller.version], request_id)
            call = _legacy_call(session, message, message.method, request_id, params, exchange)
            self._admit(exchange)
        except Refusal as refusal:
            return jsonrpc.refusal(refusal.request_id if request_id is None else request_id, refusal)
        return await self._conduct(call, request_id, exchange, session)

    # -- the rest --------------------------------------------------------------------------------------------------

    def _delete(self, head: Head, extra: Headers) -> Answer:
        stated = head.headers.get(mcp.VERSION)
        version = UNSTATED if stated is None else stated.decode("latin-1")
        if version == MODERN:
            return _not_allowed(b"POST, OPTIONS", extra)
        if version not in LEGACY:
            raise UnsupportedVersion(version, SUPPORTED)
        self.sessions.close(self._session(head))
        return Answer(204, headers=extra)

    async def drain(self, seconds: float, hurried: asyncio.Event) -> None:
        """Take no new calls; let those under way come to their answers, and cancel the rest when time is up."""
        self.draining = True
        hurry = asyncio.ensure_future(hurried.wait())
        await asyncio.wait({hurry, asyncio.ensure_future(self._wait(seconds))}, return_when=asyncio.FIRST_COMPLETED)
        hurry.cancel()
        for exchange, task in list(self.calls.items()):
            if task is not None:
                exchange.closing = True
                task.cancel()
        await self._wait(_LAST_WORDS_SECONDS)

    async def _wait(self, seconds: float) -> None:
        running = [task for task in self.calls.values() if task is not None]
        if running:
            await asyncio.wait(running, timeout=seconds)

    def _check_room(self) -> None:
        if self.draining:
            raise shutting_down()
        if len(self.calls) >= self._limits.calls:
            raise Busy(f"{self._limits.calls} calls are already under way; try again later", retry_after=1)

    def _admit(self, exchange: Admitted[Any]) -> None:
        """Let a call in, if there is room for one more; who is let in must be run, for that is what lets it out."""
        if self.draining or len(self.calls) >= self._limits.calls:
            self._check_room()
        loop = self._given_loop or asyncio.get_running_loop()
        if loop is not self._loop:
            # One loop may follow another, as in tests; the sweep of the last one ended with it.
            self._loop, self._sweeping = loop, False
        exchange.since = loop.time()
        self.calls[exchange] = None
        if not self._sweeping:
            self._sweeping = True
            loop.call_later(1.0, self._sweep, loop)

    def _sweep(self, loop: asyncio.AbstractEventLoop) -> None:
        """One timer for all calls: open the streams of those that have been silent, keep the open ones alive."""
        now = loop.time()
        self.sessions.reap()
        for exchange in list(self.calls):
            if now - exchange.since >= (_KEEP_ALIVE_SECONDS if exchange.streaming else self._limits.quiet_seconds):
                exchange.since = now
                exchange.keep_alive()
        self._sweeping = bool(self.calls)
        if self._sweeping:
            loop.call_later(1.0, self._sweep, loop)


async def _pong(exchange: HttpExchange) -> Answer | None:
    return exchange.answer(b"{}")


async def _say(exchange: HttpExchange, refusal: Refusal) -> Answer | None:
    return exchange.refuse(refusal)


def _legacy_call(
    session: Session,
    message: Message,
    method: str,
    request_id: RequestId,
    params: Params,
    exchange: HttpExchange | Batched,
) -> Call:
    about, token = subject(method, params), read_token(params)
    return make_call(method, request_id, about, message, params, session.caller, exchange, token)


def _take_notice(session: Session, message: Message) -> None:
    """A notification or a response from a legacy client; those we do not know are ignored."""
    if message.method == "notifications/cancelled":
        request_id = cancelled_id(message)
        task = None if request_id is None else session.calls.get(request_id)
        if task is not None:
            task.cancel()


def _check_request(session: Session, method: str, request_id: RequestId) -> None:
    if method == "initialize":
        raise InvalidRequest("initialize comes first and once; it cannot be part of a batch")
    check_method(method, session.caller.version)
    if request_id in session.calls:
        raise IdInFlight(f"The id {request_id!r} is already in flight in this session: use another one")


def _refused(refusal: Refusal, extra: Headers) -> Answer:
    if refusal.retry_after is not None:
        extra = (*extra, (b"retry-after", b"%d" % refusal.retry_after))
    return Answer(refusal.status, jsonrpc.refusal(refusal.request_id, refusal), headers=extra)


def _text(status: int, message: str, extra: Headers = ()) -> Answer:
    return Answer(status, jsonrpc.refusal(None, InvalidRequest(message)), headers=extra)


def _not_allowed(allow: bytes, extra: Headers = ()) -> Answer:
    return _text(405, f"Method not allowed here; use {allow.decode()}", (*extra, (b"allow", allow)))
