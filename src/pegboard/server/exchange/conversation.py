"""One peer on a line of messages (stdio, WebSocket): both eras, many calls at a time."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from msgspec import UNSET

from pegboard.call import NO_CALLER, Call, Handler, RequestId
from pegboard.errors import InternalFailure, InvalidRequest, Refusal
from pegboard.logs.log_lines import log_failure
from pegboard.protocol import jsonrpc
from pegboard.protocol.jsonrpc import Message
from pegboard.protocol.modern_codec import RevisionCodec
from pegboard.protocol.params import Params, read_params
from pegboard.protocol.revisions import MODERN, REVISIONS
from pegboard.server import eager_task
from pegboard.server.access import NO_ACCESS, Access
from pegboard.server.exchange.admission import (
    admit,
    admit_legacy,
    cancelled_id,
    check_batches,
    initialize_call,
    is_modern,
    read_caller,
)
from pegboard.server.exchange.change_streams import LISTEN, LineSubscriptions, SharedLine
from pegboard.server.exchange.exchanges import LineExchange, run_call, shutting_down
from pegboard.server.exchange.fast_path import CallPattern, PlainCall
from pegboard.server.exchange.service import Service
from pegboard.server.exchange.session_exchange import LineQuestions
from pegboard.server.exchange.session_settings import (
    IMMEDIATE_SETTINGS,
    SUBSCRIBE,
    apply_setting,
    subscription_handler,
)
from pegboard.sessions.session import Session

_log = logging.getLogger("pegboard.server")

T = TypeVar("T")


class Conversation:
    """Serves one peer.

    Messages are served while there is room for more calls and the peer reads our responses. Otherwise they wait, and no
    further messages are read until there is room again.
    """

    def __init__(
        self, service: Service, line: SharedLine, loop: asyncio.AbstractEventLoop, access: Access = NO_ACCESS
    ) -> None:
        self._access = access
        self.pattern: CallPattern | None = None
        """Of the last plain call, kept by the fast path."""
        self.address = ""
        """The network address of the client, if it has one."""
        self._service = service
        self._handler = service.handler
        self._limits = service.limits
        self._loop = loop
        self._peer = line
        self._legacy: Session | None = None
        self._waiting: deque[bytes | memoryview] = deque()
        self._serving = False
        # The messages served since the loop last had a turn; above a limit, the next one waits for it.
        self._served = 0
        self._paused = False
        self._draining = False
        self.calls: dict[RequestId, tuple[asyncio.Task[None], LineExchange]] = {}
        self.following = LineSubscriptions(service.handler, line, service.followers)

    # -- overridden by each kind of line -----------------------------------------------------------------------------

    def _hold(self, paused: bool) -> None:
        """Stop reading, or continue."""

    def _became_idle(self) -> None:
        """Called when all received messages have been served."""

    def _run(self, exchange: LineExchange, walk: Coroutine[Any, Any, None], size: int) -> asyncio.Task[None] | None:
        """Run a call whose request has that size; returns its task, or None if it is done."""
        task = eager_task.start(walk, loop=self._loop)
        return None if task.done() else task

    # -- room --------------------------------------------------------------------------------------------------------

    @property
    def _full(self) -> bool:
        if self._peer.full or len(self.calls) < self._limits.calls_per_caller:
            return self._peer.full
        # Calls that wait for the peer's answers would wait forever if nothing more were read from it.
        asking = 0 if self._legacy is None else self._legacy.asking
        return len(self.calls) - asking >= self._limits.calls_per_caller or len(self.calls) >= self._limits.calls

    def resume_if_room(self) -> None:
        """Something ended, or the peer has read: serve the waiting messages, then continue reading."""
        if not self._serving:
            self._serve()

    def _serve(self) -> None:
        self._serving = True
        waiting = self._waiting
        most = self._limits.inline_answers
        try:
            while waiting and self._served < most and not self._full:
                self._served += 1
                if self._served == most:
                    self._loop.call_soon(self._next_turn)
                self.take(waiting.popleft())
        finally:
            self._serving = False
        paused = bool(waiting) or self._full
        if paused != self._paused:
            self._paused = paused
            self._hold(paused)
        if not waiting:
            self._became_idle()

    def _next_turn(self) -> None:
        """The loop has served others: continue."""
        self._served = 0
        self.resume_if_room()

    # -- serving -----------------------------------------------------------------------------------------------------

    def take(self, message: bytes | memoryview) -> None:
        """Serve one message; an invalid one gets an error response, and the next is read."""
        line = bytes(message).strip()
        if line:
            self._try(self._take, line)

    def _try(self, take: Callable[[T], object], message: T) -> None:
        try:
            take(message)
        except Refusal as refusal:
            self._refuse(refusal.request_id, refusal)
        except Exception as error:  # noqa: BLE001 — a message that fails must not stop the others
            error_id = log_failure(_log, "a message could not be served", error=error)
            self._refuse(None, InternalFailure(f"Internal error, error id {error_id}"))

    def _take(self, line: bytes) -> None:
        plain = self._service.read_plain(line, self)
        if plain is not None and self._start_plain(plain):
            return
        if jsonrpc.is_batch(line):
            self._receive_batch(line)
        else:
            self._receive_message(line)

    def _start_plain(self, call: PlainCall) -> bool:
        """Start a plain call; False if it needs the full path."""
        request_id, caller, session = call.id, call.caller, self._legacy
        if self._draining or request_id in self.calls or request_id in self.following:
            return False
        if caller is not NO_CALLER:
            if self._access is not NO_ACCESS:
                caller = self._access.bind(caller)
            exchange = LineExchange(self._peer, self._service.modern, request_id)
        elif session is not None:
            caller = session.caller
            exchange = self._session_exchange(session, request_id)
        else:
            return False
        call.caller, call.channel, call.address = caller, exchange, self.address
        self._start(call, exchange, request_id)
        return True

    def _receive_batch(self, line: bytes) -> None:
        check_batches(REVISIONS[MODERN if self._legacy is None else self._legacy.caller.version])
        messages = jsonrpc.read_batch(line, self._limits)
        # A nested batch would be read once more at each level, and would multiply the limit.
        for _ in filter(jsonrpc.is_batch, messages):
            self._refuse(None, InvalidRequest("A batch cannot contain another batch"))
        # Each response is a separate message on a shared line, so these messages are served next, like any others.
        self._waiting.extendleft(message for message in reversed(messages) if not jsonrpc.is_batch(message))

    def _receive_message(self, line: bytes) -> None:
        message = jsonrpc.read(line, self._limits)
        method, request_id = message.method, message.id
        if method is UNSET:
            if self._legacy is not None:
                self._legacy.answer(message)
            return
        if request_id is UNSET:
            self._receive_notification(method, message)
            return
        try:
            if self._draining:
                raise shutting_down()
            running = self.calls.get(request_id)
            if (running is not None and not running[1].ended) or request_id in self.following:
                raise InvalidRequest(f"The id {request_id!r} is already in flight: use another one")
            made = self._make_call(message, method, request_id)
        except Refusal as refusal:
            refusal.request_id = request_id
            raise
        if made is not None:
            self._start(*made, request_id)

    def _make_call(self, message: Message, method: str, request_id: RequestId) -> tuple[Call, LineExchange] | None:
        params = read_params(message)
        if not is_modern(params):
            return self._make_legacy_call(message, params, method, request_id)
        caller, token = self._service.callers.read(params, None)
        request = admit(message, params, method, request_id, self._access.bind(caller), token)
        exchange = LineExchange(self._peer, self._service.modern, request_id)
        return request.call(exchange, None, self.address), exchange

    def _make_legacy_call(
        self, message: Message, params: Params, method: str, request_id: RequestId
    ) -> tuple[Call, LineExchange] | None:
        session = self._legacy
        if method == "initialize":
            return self._initialize(message, request_id)
        if session is None and method != "ping":
            raise InvalidRequest(
                f"Send initialize first, or give params._meta the {MODERN} envelope (protocolVersion and clientCapabilities)"
            )
        if session is None or method in IMMEDIATE_SETTINGS:
            if session is not None:
                apply_setting(session, method, message, params)
            self._peer.write(jsonrpc.answer(request_id, b"{}"))
            return None
        request = admit_legacy(message, params, method, request_id, session.caller)
        exchange = self._session_exchange(session, request_id)
        return request.call(exchange, None, self.address), exchange

    def _session_exchange(self, session: Session, request_id: RequestId) -> LineExchange:
        codec = self._service.legacy[session.caller.version]
        return LineExchange(self._peer, codec, request_id, self._questions(session, codec).ask)

    def _questions(self, session: Session, codec: RevisionCodec) -> LineQuestions:
        return LineQuestions(self._peer, codec, session, self._limits, self.resume_if_room)

    def _initialize(self, message: Message, request_id: RequestId) -> tuple[Call, LineExchange]:
        # The line is the session. Its id is not sent to the client, but the state of a session is kept under it.
        caller = self._access.bind(read_caller(message, self._service.transport, secrets.token_hex(16)))
        self.end_session()
        self._legacy = Session(caller, on_end=self._service.on_session_end)
        self.following.uris = self._legacy.uris
        exchange = LineExchange(self._peer, self._service.legacy[caller.version], request_id)
        return initialize_call(request_id, caller, exchange), exchange

    def end_session(self) -> None:
        """The line has ended, or begins another session."""
        if self._legacy is not None:
            self._legacy.end()

    def _start(self, call: Call, exchange: LineExchange, request_id: RequestId, handler: Handler | None = None) -> None:
        handler = handler or self._handler
        if call.method == SUBSCRIBE and self._legacy is not None:
            handler = subscription_handler(handler, self._legacy, self._limits)
        elif call.method == LISTEN:
            handler = self.following.listen_handler(exchange, self._service.modern)
        try:
            task = self._run(exchange, run_call(handler, call, exchange), len(call.params))
        except Refusal as refusal:
            refusal.request_id = request_id
            raise
        if task is not None:
            self.calls[request_id] = task, exchange
            task.add_done_callback(lambda _: self._ended(request_id, task))

    def _ended(self, request_id: RequestId, task: asyncio.Task[None]) -> None:
        # The peer may have used the id again as soon as it had the response.
        running = self.calls.get(request_id)
        if running is not None and running[0] is task:
            del self.calls[request_id]
        self.resume_if_room()

    def _receive_notification(self, method: str, message: Message) -> None:
        if method == "notifications/cancelled":
            request_id = cancelled_id(message)
            if request_id is not None:
                self._cancel(request_id)
        elif method == "notifications/initialized" and self._legacy is not None and not self._draining:
            caller = self._legacy.caller
            self.following.begin_legacy(caller, self._service.legacy[caller.version])

    def _refuse(self, request_id: RequestId | None, refusal: Refusal) -> None:
        self._peer.write(jsonrpc.refusal(request_id, refusal))

    def _cancel(self, request_id: RequestId) -> None:
        running = self.calls.get(request_id)
        if running is not None:
            running[0].cancel()
        self.following.cancel(request_id)
