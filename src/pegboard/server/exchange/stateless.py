"""Requests of any revision that do not belong to a session."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final, Protocol

from msgspec import UNSET, Struct
from msgspec.structs import replace

from pegboard.call import Call, Caller, Done, EncodedResult, Handler, Reply, RequestId, ask_in_result
from pegboard.errors import DuplicateRequestId, InvalidRequest, Refusal, SessionRequired, SessionsUnsupported
from pegboard.limits import Limits
from pegboard.protocol import jsonrpc
from pegboard.protocol.json_values import as_object
from pegboard.protocol.jsonrpc import Message
from pegboard.protocol.modern_codec import RevisionCodec
from pegboard.protocol.params import Params, read_params
from pegboard.protocol.revisions import ASSUMED, MODERN, Revision
from pegboard.server.access import Access
from pegboard.server.exchange.admission import (
    AdmittedRequest,
    admit,
    admit_legacy,
    is_modern,
    read_caller,
    read_token,
)
from pegboard.server.exchange.calls_in_flight import CallsInFlight
from pegboard.server.exchange.change_streams import LISTEN
from pegboard.server.exchange.direct_method import answer_directly, as_tool_call, is_direct
from pegboard.server.exchange.exchanges import Ask, LineExchange, reject_question, run_call
from pegboard.server.exchange.fast_path import CALL
from pegboard.server.exchange.service import Service

_SESSION_METHODS: Final = frozenset({"logging/setLevel", "resources/subscribe", "resources/unsubscribe"})
_NO_SESSIONS: Final = (
    "This server runs as several processes without a shared store, so it cannot keep sessions, which revisions before "
    "2026-07-28 need. Start it with --store sqlite:PATH or redis://HOST, with --workers 1, or with --sessions off"
)


class ReadRequest(Struct, frozen=True):
    """A request that has been read, with its codec and handler."""

    admitted: AdmittedRequest
    codec: RevisionCodec
    handler: Handler

    @property
    def id(self) -> RequestId:
        return self.admitted.id

    @property
    def ask(self) -> Ask:
        """How the call asks its caller; a legacy client cannot be asked without a session."""
        return reject_question if self.codec.revision.asks_midway else ask_in_result


class AnswerCollector(Protocol):
    """Collects the responses to one HTTP request."""

    def exchange(self, codec: RevisionCodec, request_id: RequestId, ask: Ask) -> LineExchange: ...

    def refuse(self, refusal: Refusal) -> None:
        """Add the response to a message that could not become a call."""


class Stateless:
    """Serves one Handler to clients that send single requests or batches."""

    def __init__(self, service: Service, calls: CallsInFlight, *, direct_methods: bool = False) -> None:
        """With `direct_methods`, a method that is the name of a tool calls the tool."""
        self._direct_methods = direct_methods
        self._service = service
        self._handler = service.handler
        self._calls = calls
        self._codecs = service.legacy
        self._anonymous = {version: Caller(version=version, transport="http") for version in self._codecs}

    async def serve(
        self, bodies: Sequence[bytes], stated: Revision | None, answers: AnswerCollector, access: Access
    ) -> None:
        """Serve all messages of one HTTP request, whose header states that revision."""
        taken: set[RequestId] = set()
        with self._calls.holding(sum(map(len, bodies))):
            if len(bodies) == 1:
                await self._serve(bodies[0], stated, answers, taken, access)
            else:
                await asyncio.gather(*(self._serve(body, stated, answers, taken, access) for body in bodies))

    async def _serve(
        self, body: bytes, stated: Revision | None, answers: AnswerCollector, taken: set[RequestId], access: Access
    ) -> None:
        try:
            wanted = self._read(body, stated, access)
            if wanted is None:
                return
            if wanted.id in taken:
                raise with_request_id(
                    DuplicateRequestId(f"The id {wanted.id!r} occurs twice in this batch: use another one"), wanted.id
                )
            taken.add(wanted.id)
            exchange = answers.exchange(wanted.codec, wanted.id, wanted.ask)
            try:
                await self._calls.admit_for(access, exchange, len(body))
            except Refusal as refusal:
                raise with_request_id(refusal, wanted.id) from None
        except Refusal as refusal:
            answers.refuse(refusal)
            return
        self._calls.running[exchange] = asyncio.current_task()
        try:
            await run_call(wanted.handler, wanted.admitted.call(exchange), exchange)
        finally:
            self._calls.release_for(access, exchange)

    def _read(self, body: bytes, stated: Revision | None, access: Access) -> ReadRequest | None:
        """The request of a message; None if it is a notification, which has no effect here."""
        message = jsonrpc.read(body, self._service.limits)
        method, request_id = message.method, message.id
        if method is UNSET:
            raise with_request_id(
                InvalidRequest("This endpoint sends no questions, so it does not accept answers"), request_id
            )
        if request_id is UNSET:
            return None
        try:
            return self._want(message, method, request_id, stated, access)
        except Refusal as refusal:
            raise with_request_id(refusal, request_id) from None

    def _want(
        self, message: Message, method: str, request_id: RequestId, stated: Revision | None, access: Access
    ) -> ReadRequest:
        if self._direct_methods and is_direct(method):
            read = self._want(as_tool_call(message, method), CALL, request_id, stated, access)
            return replace(read, handler=answer_directly(read.handler))
        params = read_params(message)
        if (stated is None or stated.has_sessions) and not is_modern(params):
            version = ASSUMED if stated is None else stated.name
            return self.want_legacy(message, params, method, request_id, version, access)
        caller, token = self._service.callers.read(params, None if stated is None else stated.name)
        if method == LISTEN:
            raise InvalidRequest(f"{method} needs a stream that stays open: use /mcp")
        admitted = admit(message, params, method, request_id, access.bind(caller), token)
        return ReadRequest(admitted, self._service.modern, self._handler)

    def want_legacy(
        self, message: Message, params: Params, method: str, request_id: RequestId, version: str, access: Access
    ) -> ReadRequest:
        """A request of a legacy revision."""
        if method in _SESSION_METHODS:
            raise SessionRequired(f"{method} changes a session, and this endpoint does not have sessions: use /mcp")
        caller, handler = access.bind(self._anonymous[version]), self._handler
        if method == "initialize":
            caller = access.bind(read_caller(message, "http", log_level=None))
            handler = self._answer_initialize
            admitted = AdmittedRequest(request_id, "server/discover", "", message, params, caller, read_token(params))
        else:
            admitted = admit_legacy(message, params, method, request_id, caller)
        return ReadRequest(admitted, self._codecs[caller.version], _answer_ping if method == "ping" else handler)

    def sessionless_caller(self, version: str, access: Access) -> tuple[Caller, RevisionCodec, Handler]:
        """The caller, the codec and the handler for requests of that revision."""
        return access.bind(self._anonymous[version]), self._codecs[version], self._handler

    async def _answer_initialize(self, call: Call) -> Reply:
        """The result of `initialize`, without the capabilities that need a session."""
        reply = await self._handler(call)
        found = reply.result.value if isinstance(reply.result, EncodedResult) else reply.result
        capabilities = {
            name: {
                key: value for key, value in as_object(capability).items() if key not in ("listChanged", "subscribe")
            }
            for name, capability in as_object(found["capabilities"]).items()
            if name != "logging"
        }
        return Done({**found, "capabilities": capabilities})


def read_bodies(body: bytes, limits: Limits) -> Sequence[bytes]:
    """The messages of a body: the items of an array, or the body itself."""
    return jsonrpc.read_batch(body, limits) if jsonrpc.is_batch(body) else (body,)


def sessions_unsupported(requested: str | None) -> SessionsUnsupported:
    """The rejection of a revision that needs sessions, if the server cannot keep any."""
    return SessionsUnsupported(_NO_SESSIONS, ASSUMED if requested is None else requested, [MODERN])


def with_request_id(refusal: Refusal, request_id: object) -> Refusal:
    """The refusal, with the id of its request."""
    if isinstance(request_id, str | int):
        refusal.request_id = request_id
    return refusal


async def _answer_ping(call: Call) -> Reply:
    return Done({})
