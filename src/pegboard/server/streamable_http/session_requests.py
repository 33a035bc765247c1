"""The requests of legacy clients, in a session."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from msgspec import UNSET, structs

from pegboard.accounts.account import Account
from pegboard.call import Call, Caller, Handler, Reply, RequestId
from pegboard.errors import InvalidRequest, Refusal, SessionRequired
from pegboard.protocol import headers as mcp
from pegboard.protocol import jsonrpc
from pegboard.protocol.jsonrpc import Message
from pegboard.protocol.params import Params, read_params
from pegboard.protocol.revisions import REVISIONS
from pegboard.server.access import NO_ACCESS, Access
from pegboard.server.exchange.admission import (
    admit_legacy,
    cancelled_id,
    check_batches,
    duplicate_id,
    initialize_call,
    read_caller,
)
from pegboard.server.exchange.calls_in_flight import CallsInFlight
from pegboard.server.exchange.change_streams import subscribe_lists, subscribe_session
from pegboard.server.exchange.exchanges import CollectedAnswers, reject_question_in_batch, run_call
from pegboard.server.exchange.fast_path import PlainCall
from pegboard.server.exchange.request_head import PostHead
from pegboard.server.exchange.service import Service
from pegboard.server.exchange.session_exchange import SessionExchange
from pegboard.server.exchange.session_settings import (
    IMMEDIATE_SETTINGS,
    SUBSCRIBE,
    SessionSetting,
    read_setting,
    subscription_handler,
)
from pegboard.server.exchange.stateless import with_request_id
from pegboard.server.http.head_rules import read_accept
from pegboard.server.http.responses import error_response, method_not_allowed, text_response
from pegboard.server.http_types import Accepts, Answer, EndpointResult, Head, Headers, Sink
from pegboard.server.streamable_http.resumed_stream import ResumedStream
from pegboard.sessions.relay import Relay
from pegboard.sessions.resumable_streams import read_event_id
from pegboard.sessions.session import Session
from pegboard.sessions.sessions import Sessions

_LAST_EVENT: Final = b"last-event-id"
_SESSION: Final = mcp.SESSION


class SessionRequests:
    """Serves one Handler to legacy clients, each in its session."""

    def __init__(self, service: Service, sessions: Sessions, calls: CallsInFlight, relay: Relay | None = None) -> None:
        self._relay = relay
        self._handler = service.handler
        self._limits = service.limits
        self._sessions = sessions
        self._calls = calls
        self._running = calls.running
        self._followers = service.followers
        self._codecs = service.legacy

    def post(self, post: PostHead, head: Head, message: Message, params: Params, sink: Sink) -> EndpointResult:
        request_id = None if message.id is UNSET else message.id
        if message.method == "initialize" and request_id is not None:
            return self._initialize(post, message, request_id, sink)
        serve = partial(self._serve, post=post, message=message, params=params, sink=sink)
        return self._in_session(head, post.extra, serve, request_id)

    def _serve(self, session: Session, post: PostHead, message: Message, params: Params, sink: Sink) -> EndpointResult:
        method, request_id = message.method, message.id
        if method is UNSET or request_id is UNSET:
            return self._receive_notification(session, message, Answer(202, headers=(*post.extra, session.header)))
        exchange = self._exchange(session, request_id, sink, (*post.extra, session.header), post.accepts)
        try:
            _check_request(session, method, request_id)
            if method in IMMEDIATE_SETTINGS:
                setting = read_setting(method, message, params)
                return exchange.answer(b"{}") if setting is None else self._apply_setting(session, setting, exchange)
            request = admit_legacy(message, params, method, request_id, post.access.bind(session.caller))
            return self._run(request.call(exchange, None, post.address), request_id, exchange, sink, session)
        except Refusal as refusal:
            return exchange.refuse(refusal)

    def call(
        self, post: PostHead, head: Head, call: PlainCall, sink: Sink, session: Session | None = None
    ) -> EndpointResult:
        """As `post`, for a tool call that is already decoded; `session` is one that was read from the store."""
        access, extra, request_id = post.access, post.extra, call.id
        if session is None:
            session_id, principal = head.headers[_SESSION].decode("latin-1"), access.principal.id
            session = self._sessions.find(session_id, principal)
            if session is None:
                serve = partial(self.call, post, head, call, sink)
                return self._look_up(session_id, principal, extra, serve, request_id)
        headers = (*extra, session.header) if extra else session.headers
        caller = session.caller
        if access is not NO_ACCESS:
            # Each request has credentials of its own: the scopes of the session's first ones may have changed since.
            caller = access.bind(caller)
        codec = self._codecs[caller.version]
        exchange = SessionExchange(sink, codec, request_id, headers, post.accepts, session=session, limits=self._limits)
        try:
            if request_id in session.calls:
                raise duplicate_id(request_id)
            call.caller, call.channel, call.address = caller, exchange, post.address
            walk = run_call(self._handler, call, exchange, exchange.finish_stream)
            served = self._calls.run(exchange, walk, len(call.params), caller)
        except Refusal as refusal:
            return exchange.refuse(refusal)
        if isinstance(served, asyncio.Task):
            self._keep_call(session, request_id, served, exchange, sink)
        return served

    def _exchange(
        self, session: Session, request_id: RequestId, sink: Sink, headers: Headers, accepts: Accepts
    ) -> SessionExchange:
        codec = self._codecs[session.caller.version]
        return SessionExchange(sink, codec, request_id, headers, accepts, session=session, limits=self._limits)

    def _initialize(self, post: PostHead, message: Message, request_id: RequestId, sink: Sink) -> EndpointResult:
        caller = post.access.bind(read_caller(message, "http"))
        self._calls.check_room()
        # Charged before there is a session.
        pending = self._calls.charge(caller, len(message.params))
        if pending is None:
            return self._open(post, caller, request_id, sink)
        return self._open_later(pending, post, caller, request_id, sink)

    async def _open_later(
        self, pending: Awaitable[None], post: PostHead, caller: Caller, request_id: RequestId, sink: Sink
    ) -> Answer | None:
        try:
            await pending
            served = self._open(post, caller, request_id, sink)
        except Refusal as refusal:
            refusal.request_id = request_id
            return error_response(refusal, post.extra)
        return await served if isinstance(served, asyncio.Task) else served

    def _open(
        self, post: PostHead, caller: Caller, request_id: RequestId, sink: Sink
    ) -> Answer | asyncio.Task[Answer | None] | None:
        session = self._sessions.open(lambda session_id: structs.replace(caller, session=session_id))
        self._calls.schedule_sweep()
        exchange = self._exchange(session, request_id, sink, (*post.extra, session.header), post.accepts)
        call = initialize_call(request_id, session.caller, exchange)
        handler, account = partial(self._open_session, exchange), self._calls.accounts.of(caller)
        return self._run(call, request_id, exchange, sink, session, handler, account)

    async def _open_session(self, exchange: SessionExchange, call: Call) -> Reply:
        """The response to `initialize`; the session is stored before its client learns its id."""
        session = self._sessions.find(call.caller.session, call.caller.principal.id)
        try:
            if session is not None:
                await self._sessions.enter(session)
            return await self._handler(call)
        except BaseException:
            # A rejected `initialize` has opened no session for its client.
            exchange.omit_header(b"mcp-session-id")
            raise

    def _run(
        self,
        call: Call,
        request_id: RequestId,
        exchange: SessionExchange,
        sink: Sink,
        session: Session,
        handler: Handler | None = None,
        account: Account | None = None,
    ) -> Answer | asyncio.Task[Answer | None] | None:
        """Run a call; while it waits, its session can cancel it. `account` is one that it was charged to already."""
        walk = run_call(handler or self._handler_of(call, session), call, exchange, exchange.finish_stream)
        served = self._calls.run(exchange, walk, len(call.params), call.caller, account)
        if isinstance(served, asyncio.Task):
            self._keep_call(session, request_id, served, exchange, sink)
        return served

    def _keep_call(
        self,
        session: Session,
        request_id: RequestId,
        task: asyncio.Task[Answer | None],
        exchange: SessionExchange,
        sink: Sink,
    ) -> None:
        """The call waits: until it is done, its session can cancel it."""
        session.calls[request_id] = task
        task.add_done_callback(lambda _: session.calls.pop(request_id))
        # "Disconnection … SHOULD NOT be interpreted as the client cancelling its request" (2025-11-25, Sending 6)
        sink.on_gone(exchange.leave)

    def _handler_of(self, call: Call, session: Session) -> Handler:
        if call.method != SUBSCRIBE:
            return self._handler
        return subscription_handler(self._handler, session, self._limits, self._sessions.change)

    async def _apply_setting(
        self, session: Session, setting: SessionSetting, exchange: SessionExchange
    ) -> Answer | None:
        """Apply a setting of a client to the rest of its session."""
        try:
            await self._sessions.change(session, setting)
        except Refusal as refusal:
            return exchange.refuse(refusal)
        return exchange.answer(b"{}")

    def _receive_notification(self, session: Session, message: Message, answer: Answer) -> EndpointResult:
        """A notification or an answer from a legacy client; unknown ones are ignored."""
        bringing = self._deliver(session, message)
        return answer if bringing is None else _once(bringing, answer)

    def _deliver(self, session: Session, message: Message) -> Awaitable[object] | None:
        """Deliver a message to the call that it is for; None once that is done."""
        if message.method is UNSET:
            if self._relay is not None:
                return self._relay.answer(session, message)
            session.answer(message)
        elif message.method == "notifications/cancelled":
            if self._relay is not None:
                return self._relay.cancel(session, cancelled_id(message))
            session.cancel(cancelled_id(message))
        return None

    # -- sessions --------------------------------------------------------------------------------------------------

    def _in_session(
        self,
        head: Head,
        extra: Headers,
        serve: Callable[[Session], EndpointResult],
        request_id: RequestId | None = None,
    ) -> EndpointResult:
        """Serve a request in its session: at once if that is known here, else after reading the store."""
        session_id, principal = _session_id(head), head.access.principal.id
        session = self._sessions.find(session_id, principal)
        return self._look_up(session_id, principal, extra, serve, request_id) if session is None else serve(session)

    async def _look_up(
        self,
        session_id: str,
        principal: str,
        extra: Headers,
        serve: Callable[[Session], EndpointResult],
        request_id: RequestId | None,
    ) -> Answer | None:
        try:
            served = serve(await self._sessions.load(session_id, principal))
        except Refusal as refusal:
            if refusal.request_id is None:
                refusal.request_id = request_id
            return error_response(refusal, extra)
        return served if served is None or isinstance(served, Answer) else await served

    # -- batches ---------------------------------------------------------------------------------------------------

    def batch(self, post: PostHead, head: Head, body: bytes, sink: Sink) -> EndpointResult:
        bodies = jsonrpc.read_batch(body, self._limits)
        stated = mcp.stated_revision(head.headers)
        if not stated.has_sessions or mcp.SESSION not in head.headers:
            check_batches(stated)
        return self._in_session(head, post.extra, lambda session: self._begin_batch(session, post, bodies, sink))

    def _begin_batch(self, session: Session, post: PostHead, bodies: list[bytes], sink: Sink) -> EndpointResult:
        check_batches(REVISIONS[session.caller.version])
        self._calls.check_room(sum(map(len, bodies)))
        return self._run_batch(session, post, bodies, sink)

    async def _run_batch(self, session: Session, post: PostHead, bodies: list[bytes], sink: Sink) -> Answer | None:
        answers = CollectedAnswers(self._limits)
        with self._calls.holding(sum(map(len, bodies))):
            await asyncio.gather(*(self._run_item(session, post.access, body, answers) for body in bodies))
        return answers.answer_batch(sink, (*post.extra, session.header), post.accepts)

    async def _run_item(self, session: Session, access: Access, body: bytes, answers: CollectedAnswers) -> None:
        request_id: RequestId | None = None
        try:
            message = jsonrpc.read(body, self._limits)
            if message.id is not UNSET:
                request_id = message.id
            params = read_params(message)
            if message.method is UNSET or request_id is None:
                bringing = self._deliver(session, message)
                if bringing is not None:
                    await bringing
                return
            _check_request(session, message.method, request_id)
            if message.method in IMMEDIATE_SETTINGS:
                setting = read_setting(message.method, message, params)
                line = answers.line()
                if setting is not None:
                    await self._sessions.change(session, setting)
                line.write(jsonrpc.answer(request_id, b"{}"))
                return
            exchange = answers.exchange(self._codecs[session.caller.version], request_id, reject_question_in_batch)
            caller = access.bind(session.caller)
            call = admit_legacy(message, params, message.method, request_id, caller).call(exchange)
            await self._calls.admit_for(caller, exchange, len(body))
        except Refusal as refusal:
            answers.refuse(with_request_id(refusal, request_id))
            return
        session.calls[request_id] = self._running[exchange] = asyncio.current_task()
        try:
            await run_call(self._handler_of(call, session), call, exchange)
        finally:
            self._calls.release_for(caller, exchange)
            del session.calls[request_id]

    # -- GET and DELETE --------------------------------------------------------------------------------------------

    def get(self, head: Head, sink: Sink, extra: Headers) -> EndpointResult:
        """A stream for a GET: that of a call, resumed after the id of its last event, or the board's changes."""
        if not mcp.stated_revision(head.headers).has_sessions:
            return method_not_allowed(b"POST, OPTIONS", extra)
        if not read_accept(head.headers.get(b"accept")).stream:
            return text_response(406, "Accept must allow text/event-stream", extra)
        last = head.headers.get(_LAST_EVENT, b"").decode("latin-1")
        return self._in_session(head, extra, lambda session: self._listen(session, head.access, last, sink, extra))

    def _listen(self, session: Session, access: Access, last: str, sink: Sink, extra: Headers) -> EndpointResult:
        extra = (*extra, session.header)
        if read_event_id(last) is None:
            return self._follow(session, access, last if last.startswith("g-") else "", sink, extra)
        resumed = ResumedStream(sink, extra)
        self._calls.admit(resumed)
        return self._resume(session, access, last, sink, resumed, extra)

    async def _follow(self, session: Session, access: Access, last: str, sink: Sink, extra: Headers) -> Answer | None:
        follow = await subscribe_lists(self._handler, access.bind(session.caller))
        if follow is None:
            return method_not_allowed(b"POST, DELETE, OPTIONS", extra)
        codec, left = self._codecs[session.caller.version], session.end_listening
        try:
            if self._relay is not None:
                await self._relay.take_over(session)
                left = partial(self._relay.end_listening, session)
            subscribe_session(follow, codec, sink, extra, session, last, self._followers, left)
        except Refusal as refusal:
            return error_response(refusal, extra)
        return None

    async def _resume(
        self, session: Session, access: Access, last: str, sink: Sink, resumed: ResumedStream, extra: Headers
    ) -> Answer | None:
        self._running[resumed] = asyncio.current_task()
        try:
            found = await resumed.run(session.streams, last)
        finally:
            del self._running[resumed]
        # A stream that ended at once would make the client resume it again and again.
        return None if found else await self._follow(session, access, "", sink, extra)

    def delete(self, head: Head, extra: Headers) -> EndpointResult:
        """End a session."""
        if not mcp.stated_revision(head.headers).has_sessions:
            return method_not_allowed(b"POST, OPTIONS", extra)
        return self._in_session(head, extra, lambda session: self._end(session, extra))

    async def _end(self, session: Session, extra: Headers) -> Answer:
        try:
            await self._sessions.end(session)
        except Refusal as refusal:
            return error_response(refusal, extra)
        return Answer(204, headers=extra)


async def _once(awaited: Awaitable[object], answer: Answer) -> Answer:
    """The response, once something is done."""
    try:
        await awaited
    except Refusal as refusal:
        return error_response(refusal, answer.headers)
    return answer


def _session_id(head: Head) -> str:
    sent = head.headers.get(mcp.SESSION)
    if sent is None:
        raise SessionRequired(
            "Missing MCP-Session-Id header; send initialize first and repeat the id from its response"
        )
    return sent.decode("latin-1")


def _check_request(session: Session, method: str, request_id: RequestId) -> None:
    if method == "initialize":
        raise InvalidRequest("initialize must come first, once, and not in a batch")
    if request_id in session.calls:
        raise duplicate_id(request_id)
