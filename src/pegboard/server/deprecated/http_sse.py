"""The HTTP+SSE transport of revision 2024-11-05.

Theory of operation. `GET /sse` opens the stream and a session, which ends with the stream; the first event names the
URL to POST to. A POST is answered with 202 as soon as it is read, and its response goes to the stream that all calls
share. So do errors if the id of the request could be read: a client of this transport reads only the stream, and some
stop sending after the first POST that fails.

A client that has lost its stream may open another and continue without a second handshake, since it does not know about
sessions; its revision is the one its POSTs state.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final

from msgspec import UNSET, Struct, structs

from pegboard.auth.principal import Principal
from pegboard.call import Call, Caller, RequestId
from pegboard.errors import (
    Busy,
    DuplicateRequestId,
    InvalidRequest,
    Refusal,
    SessionNotFound,
    SessionRequired,
    UnsupportedVersion,
)
from pegboard.protocol import headers as mcp
from pegboard.protocol import jsonrpc
from pegboard.protocol.jsonrpc import Message
from pegboard.protocol.params import Params, read_params
from pegboard.protocol.revisions import MODERN, REVISIONS, SUPPORTED
from pegboard.server.access import NO_ACCESS, Access
from pegboard.server.deprecated.event_line import EventLine
from pegboard.server.deprecated.post_forwarding import PostForwarding
from pegboard.server.exchange.admission import (
    admit_legacy,
    cancelled_id,
    check_batches,
    duplicate_id,
    initialize_call,
    is_modern,
    read_caller,
)
from pegboard.server.exchange.calls_in_flight import CallsInFlight
from pegboard.server.exchange.change_streams import LineSubscriptions
from pegboard.server.exchange.exchanges import STREAM, LineExchange, run_call
from pegboard.server.exchange.request_head import NotAcceptable
from pegboard.server.exchange.service import Service
from pegboard.server.exchange.session_exchange import LineQuestions
from pegboard.server.exchange.session_settings import (
    IMMEDIATE_SETTINGS,
    SUBSCRIBE,
    apply_setting,
    subscription_handler,
)
from pegboard.server.exchange.stateless import read_bodies, with_request_id
from pegboard.server.http.head_rules import check_content_type, read_accept
from pegboard.server.http.responses import error_response
from pegboard.server.http_types import Answer, EndpointResult, Head, Headers, Sink
from pegboard.sessions.session import Session
from pegboard.stores.cluster import Cluster
from pegboard.stores.store import digest

_ASSUMED_VERSION: Final = SUPPORTED[-1]
_SESSION: Final = b"sessionId"
_SPOKEN: Final = tuple(name for name in SUPPORTED if REVISIONS[name].has_sessions)


class SseClient(Struct, eq=False):
    """One client: its stream, its session, and its subscriptions; `left` is called at its end."""

    line: EventLine
    session: Session
    subscriptions: LineSubscriptions
    left: Callable[[SseClient], object]
    since: float = 0.0
    # Whether it has initialized, and whether it receives changes.
    greeted: bool = False
    joined: bool = False
    # POSTs that wait until it has read enough.
    waiting: int = 0
    _ending: bool = False

    def __post_init__(self) -> None:
        self.subscriptions.uris = self.session.uris

    @property
    def version(self) -> str:
        return self.session.caller.version

    @property
    def account(self) -> str:
        return self.session.caller.account

    @property
    def reads(self) -> bool:
        """Whether it is connected and reads its stream."""
        return self.line.open and not self.line.full

    def keep_alive(self) -> None:
        self.line.keep_alive()

    def end(self) -> None:
        """End the stream gracefully: after the running calls have been answered."""
        self._ending = True
        if not self.session.calls:
            self.line.close()
            self.leave()

    def run(self, request_id: RequestId, task: asyncio.Task[None]) -> None:
        """A call continues; it can be cancelled."""
        self.session.calls[request_id] = task
        task.add_done_callback(lambda _: self._ended(request_id))

    def leave(self) -> None:
        """The client has disconnected, and cannot get its responses: cancel its calls."""
        self.line.leave()
        self.left(self)
        self.subscriptions.leave()
        self.session.end()

    def _ended(self, request_id: RequestId) -> None:
        del self.session.calls[request_id]
        if self._ending:
            self.end()


class HttpSse:
    """Serves one Handler to clients of this transport; `place` is the URL of their POSTs.

    In a cluster, any process accepts their POSTs.
    """

    def __init__(self, service: Service, calls: CallsInFlight, place: str, cluster: Cluster | None = None) -> None:
        self._forwarding = None if cluster is None else PostForwarding(cluster, self._receive_forwarded)
        self._service = service
        self._limits = service.limits
        self._calls = calls
        self._place = place
        self._codecs = service.legacy
        self._clients: dict[str, SseClient] = {}

    def __len__(self) -> int:
        return len(self._clients)

    def get(self, head: Head, body: bytes, sink: Sink, extra: Headers) -> EndpointResult:
        """Open a stream, and the session that ends with it."""
        if not read_accept(head.headers.get(b"accept")).stream:
            raise NotAcceptable("Accept must allow text/event-stream")
        version = _stated(head)
        if len(self._clients) >= self._limits.sessions:
            raise Busy(f"{self._limits.sessions} clients are already connected; try again later", retry_after=30)
        session_id = secrets.token_hex(16)
        if self._forwarding is not None:
            session_id = self._forwarding.name(session_id)
        line = EventLine(sink)
        caller = head.access.bind(Caller(version=version or _ASSUMED_VERSION, transport="http", session=session_id))
        subscriptions = LineSubscriptions(self._service.handler, line, self._service.followers)
        session = Session(caller, on_end=self._service.on_session_end)
        client = SseClient(line, session, subscriptions, self._forget)
        self._calls.follow(client)
        self._clients[session_id] = client
        sink.on_gone(client.leave)
        sink.start(200, STREAM + extra)
        line.write_event("endpoint", f"{head.locate(self._place)}?{_SESSION.decode()}={session_id}".encode())
        return None

    def post(self, head: Head, body: bytes, sink: Sink, extra: Headers) -> EndpointResult:
        """Handle a message of a client."""
        check_content_type(head.headers.get(b"content-type"))
        session_id, version = _named_session(head), _stated(head)
        if self._forwarding is not None and self._forwarding.is_foreign(session_id):
            return self._forward(self._forwarding, session_id, head.access, version, body, extra)
        return self._start_receiving(self._find(session_id, head.access), head.access, version, body, extra)

    async def _forward(
        self,
        forwarding: PostForwarding,
        session_id: str,
        access: Access,
        version: str | None,
        body: bytes,
        extra: Headers,
    ) -> Answer:
        try:
            return await forwarding.forward(session_id, access.principal, version, body, extra)
        except Refusal as refusal:
            return error_response(refusal, extra)

    async def _receive_forwarded(self, hidden: str, principal: Principal, version: str | None, body: bytes) -> Answer:
        access = Access(principal) if principal else NO_ACCESS
        session_id = next((client for client in self._clients if digest(client) == hidden), "")
        try:
            return await self._start_receiving(self._find(session_id, access), access, version, body, ())
        except Refusal as refusal:
            return error_response(refusal, ())

    def _start_receiving(
        self, client: SseClient, access: Access, version: str | None, body: bytes, extra: Headers
    ) -> Coroutine[Any, Any, Answer]:
        if version is not None and not client.greeted:
            client.session.caller = structs.replace(client.session.caller, version=version)
        if jsonrpc.is_batch(body):
            check_batches(REVISIONS[client.version])
        return self._receive(client, access, read_bodies(body, self._limits), extra)

    def _find(self, session_id: str, access: Access) -> SseClient:
        client = self._clients.get(session_id)
        if client is None or not client.line.open or client.session.caller.principal != access.principal:
            raise _not_found()
        return client

    def _forget(self, client: SseClient) -> None:
        self._clients.pop(client.session.caller.session, None)
        self._calls.forget(client)

    # -- what a client says ------------------------------------------------------------------------------------------

    async def _receive(self, client: SseClient, access: Access, bodies: Sequence[bytes], extra: Headers) -> Answer:
        for body in bodies:
            try:
                await self._receive_message(client, access, body)
            except Refusal as refusal:
                # A message with the id of a running request would be taken for its response.
                request_id = None if isinstance(refusal, DuplicateRequestId) else refusal.request_id
                if not client.reads or (request_id is None and len(bodies) == 1):
                    return error_response(refusal, extra)
                client.line.write(jsonrpc.refusal(request_id, refusal, self._codecs[client.version].code(refusal)))
        return Answer(202, headers=extra)

    async def _receive_message(self, client: SseClient, access: Access, body: bytes) -> None:
        message = jsonrpc.read(body, self._limits)
        method, request_id, session = message.method, message.id, client.session
        if method is UNSET:
            session.answer(message)
        elif request_id is not UNSET:
            try:
                await self._receive_request(client, access, message, method, request_id)
            except Refusal as refusal:
                raise with_request_id(refusal, request_id) from None
        elif method == "notifications/cancelled":
            session.cancel(cancelled_id(message))
        elif method == "notifications/initialized":
            await self._join(client)

    async def _receive_request(
        self, client: SseClient, access: Access, message: Message, method: str, request_id: RequestId
    ) -> None:
        if client.line.full:
            self._calls.check_room(len(message.params))
            with self._calls.holding(len(message.params)):
                await self._wait(client)
        params = read_params(message)
        if is_modern(params):
            raise UnsupportedVersion(MODERN, _SPOKEN)
        session = client.session
        if request_id in session.calls:
            raise duplicate_id(request_id)
        if method == "initialize":
            self._initialize(client, access, message, request_id)
            return
        if method in IMMEDIATE_SETTINGS:
            apply_setting(session, method, message, params)
            client.line.write(jsonrpc.answer(request_id, b"{}"))
            return
        if not client.greeted:
            await self._join(client)
        self._call(client, access, message, method, request_id, params)

    def _initialize(self, client: SseClient, access: Access, message: Message, request_id: RequestId) -> None:
        if client.greeted:
            raise InvalidRequest("initialize must come first, and once per session")
        caller = access.bind(read_caller(message, "http", client.session.caller.session))
        client.session.caller = caller
        client.greeted = True
        exchange = LineExchange(client.line, self._codecs[caller.version], request_id)
        self._run(client, request_id, initialize_call(request_id, caller, exchange), exchange)

    def _call(
        self,
        client: SseClient,
        access: Access,
        message: Message,
        method: str,
        request_id: RequestId,
        params: Params,
    ) -> None:
        session, limits = client.session, self._limits
        if len(session.calls) >= limits.calls_per_caller:
            raise Busy(f"{limits.calls_per_caller} calls of this client are already running", retry_after=1)
        request = admit_legacy(message, params, method, request_id, access.bind(session.caller))
        codec = self._codecs[client.version]
        exchange = LineExchange(client.line, codec, request_id, LineQuestions(client.line, codec, session, limits).ask)
        self._run(client, request_id, request.call(exchange), exchange)

    def _run(self, client: SseClient, request_id: RequestId, call: Call, exchange: LineExchange) -> None:
        handler = self._service.handler
        if call.method == SUBSCRIBE:
            handler = subscription_handler(handler, client.session, self._limits)
        served = self._calls.run(exchange, run_call(handler, call, exchange), len(call.params), call.caller)
        if isinstance(served, asyncio.Task):
            client.run(request_id, served)

    async def _wait(self, client: SseClient) -> None:
        """Stop serving a client that does not read its stream."""
        if client.waiting >= self._limits.calls_per_caller:
            raise Busy("The stream is not read; read the responses that have been sent first", retry_after=1)
        client.waiting += 1
        try:
            await client.line.drain()
        finally:
            client.waiting -= 1
        if not client.line.open:
            raise _not_found()

    async def _join(self, client: SseClient) -> None:
        """Send a client the changes of every list, and of the resources it subscribes to."""
        if not client.joined:
            client.joined = True
            await client.subscriptions.join(client.session.caller, self._codecs[client.version])
            if not client.line.open:
                raise _not_found()


def _named_session(head: Head) -> str:
    fields = (field.partition(b"=") for field in head.query.split(b"&"))
    sent = [value for name, _, value in fields if name == _SESSION]
    if len(sent) != 1:
        raise SessionRequired("The request must name one session; POST to the URL that the `endpoint` event sent")
    return sent[0].decode("latin-1")


def _not_found() -> SessionNotFound:
    return SessionNotFound("Session not found: it ended with its stream; open another with GET /sse")


def _stated(head: Head) -> str | None:
    """The revision that a request states."""
    version = mcp.read_version(head.headers)
    if version is not None and version not in _SPOKEN:
        raise UnsupportedVersion(version, _SPOKEN)
    return version
