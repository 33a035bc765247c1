"""The legacy half of the MCP endpoint: requests that belong to a session, which `initialize` opens."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from typing import Any, TypeAlias, TypeVar

from msgspec import UNSET

from pegboard.call import Call, Caller, Handler, Json, RequestId
from pegboard.errors import IdInFlight, InvalidRequest, Refusal, SessionRequired, UnsupportedVersion
from pegboard.limits import Limits
from pegboard.protocol import headers as mcp
from pegboard.protocol import jsonrpc
from pegboard.protocol.jsonrpc import Message
from pegboard.protocol.legacy import Legacy, read_handshake
from pegboard.protocol.params import Params, read_params
from pegboard.protocol.versions import BATCHES, LEGACY, MODERN, SUPPORTED, UNSTATED
from pegboard.sessions.session import Session, Sessions
from pegboard.transports.calls import Calls
from pegboard.transports.channels import Admitted, Batched, HttpExchange, conduct, stream
from pegboard.transports.door import Answer, Head, Headers, Sink
from pegboard.transports.incoming import cancelled_id, check_method, make_call, read_token, subject
from pegboard.transports.media import Accepts
from pegboard.transports.refusals import not_allowed

T = TypeVar("T")
Served: TypeAlias = Answer | Coroutine[Any, Any, Answer | None]


class LegacyHttp:
    """Serves one Handler to clients of the older revisions, each in its session."""

    def __init__(
        self, handler: Handler, info: Mapping[str, Json], limits: Limits, sessions: Sessions, calls: Calls
    ) -> None:
        self._handler = handler
        self._limits = limits
        self._sessions = sessions
        self._calls = calls
        self._running = calls.running
        self._tongues = {version: Legacy(version, info) for version in LEGACY}

    def post(
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
            self._calls.admit(exchange)
        except Refusal as refusal:
            return _say(exchange, refusal)
        session.calls[request_id] = None
        return self._run_legacy(call, request_id, exchange, sink, session)

    def _initialize(
        self, message: Message, request_id: RequestId, sink: Sink, extra: Headers, accepts: Accepts
    ) -> Served:
        handshake = read_handshake(bytes(message.params))
        self._calls.check_room()
        session = self._sessions.open(
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
        self._calls.admit(exchange)
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
        session.calls[request_id] = self._running[exchange] = asyncio.current_task()
        try:
            return await conduct(self._handler, call, exchange)
        finally:
            del self._running[exchange], session.calls[request_id]

    def _session(self, head: Head) -> Session:
        sent = head.headers.get(mcp.SESSION)
        if sent is None:
            raise SessionRequired(
                "Missing MCP-Session-Id header: send initialize first and repeat the id it answers with"
            )
        return self._sessions.find(sent.decode("latin-1"), "")

    # -- batches ---------------------------------------------------------------------------------------------------

    def batch(self, head: Head, body: bytes, sink: Sink, extra: Headers, accepts: Accepts) -> Served:
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
        self._calls.check_room()
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
            self._calls.admit(exchange)
        except Refusal as refusal:
            return jsonrpc.refusal(refusal.request_id if request_id is None else request_id, refusal)
        return await self._conduct(call, request_id, exchange, session)

    def delete(self, head: Head, extra: Headers) -> Answer:
        stated = head.headers.get(mcp.VERSION)
        version = UNSTATED if stated is None else stated.decode("latin-1")
        if version == MODERN:
            return not_allowed(b"POST, OPTIONS", extra)
        if version not in LEGACY:
            raise UnsupportedVersion(version, SUPPORTED)
        self._sessions.close(self._session(head))
        return Answer(204, headers=extra)


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
