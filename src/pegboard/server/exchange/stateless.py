"""Requests of any revision that belong to no session."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final, Protocol

from msgspec import UNSET, Struct

from pegboard.call import Call, Caller, Done, EncodedResult, Handler, Json, Reply, RequestId, ask_in_result
from pegboard.errors import DuplicateRequestId, InvalidRequest, Refusal, SessionRequired, SessionsUnsupported
from pegboard.limits import Limits
from pegboard.protocol import jsonrpc
from pegboard.protocol.jsonrpc import Message
from pegboard.protocol.modern_codec import ModernCodec
from pegboard.protocol.params import Params, read_params
from pegboard.protocol.revision_codec import RevisionCodec, legacy_codecs
from pegboard.protocol.revisions import ASSUMED, MODERN, Revision
from pegboard.server.exchange.admission import (
    AdmittedRequest,
    CallerCache,
    admit,
    admit_legacy,
    is_modern,
    read_caller,
    read_token,
)
from pegboard.server.exchange.calls_in_flight import CallsInFlight
from pegboard.server.exchange.exchanges import Ask, LineExchange, reject_question, run_call
from pegboard.server.exchange.listen_exchange import LISTEN

_SESSION_METHODS: Final = frozenset({"logging/setLevel", "resources/subscribe", "resources/unsubscribe"})
_NO_SESSIONS: Final = (
    "This server runs as several processes that share no store, so that it cannot keep sessions, which revisions before "
    "2026-07-28 need. Start it with --store sqlite:PATH or --store redis://HOST, with --workers 1, or with --sessions off"
)


class ReadRequest(Struct, frozen=True):
    """A request that has been read, with the codec and the handler that answer it."""

    admitted: AdmittedRequest
    codec: RevisionCodec
    handler: Handler

    @property
    def id(self) -> RequestId:
        return self.admitted.id

    @property
    def ask(self) -> Ask:
        """A legacy client cannot be asked without a session."""
        return reject_question if self.codec.revision.asks_midway else ask_in_result


class AnswerCollector(Protocol):
    """Takes the responses to one HTTP request."""

    def exchange(self, codec: RevisionCodec, request_id: RequestId, ask: Ask) -> LineExchange: ...

    def refuse(self, refusal: Refusal) -> None:
        """Add the response to a message that could not become a call."""


class Stateless:
    """Serves one Handler to whoever sends single requests or batches of them."""

    def __init__(
        self, handler: Handler, info: Mapping[str, Json], limits: Limits, calls: CallsInFlight, callers: CallerCache
    ) -> None:
        self._handler = handler
        self._limits = limits
        self._calls = calls
        self._callers = callers
        self._modern = ModernCodec(info)
        self._codecs = legacy_codecs(info)
        self._anonymous = {version: Caller(version=version, transport="http") for version in self._codecs}

    async def serve(self, bodies: Sequence[bytes], stated: Revision | None, answers: AnswerCollector) -> None:
        """Serve all messages of one HTTP request, whose header states that revision."""
        taken: set[RequestId] = set()
        with self._calls.holding(sum(map(len, bodies))):
            if len(bodies) == 1:
                await self._serve(bodies[0], stated, answers, taken)
            else:
                await asyncio.gather(*(self._serve(body, stated, answers, taken) for body in bodies))

    async def _serve(
        self, body: bytes, stated: Revision | None, answers: AnswerCollector, taken: set[RequestId]
    ) -> None:
        try:
            wanted = self._read(body, stated)
            if wanted is None:
                return
            if wanted.id in taken:
                raise with_request_id(
                    DuplicateRequestId(f"The id {wanted.id!r} comes twice in this batch: use another one"), wanted.id
                )
            taken.add(wanted.id)
            exchange = answers.exchange(wanted.codec, wanted.id, wanted.ask)
            try:
                self._calls.admit(exchange)
            except Refusal as refusal:
                raise with_request_id(refusal, wanted.id) from None
        except Refusal as refusal:
            answers.refuse(refusal)
            return
        self._calls.running[exchange] = asyncio.current_task()
        try:
            await run_call(wanted.handler, wanted.admitted.call(exchange), exchange)
        finally:
            del self._calls.running[exchange]

    def _read(self, body: bytes, stated: Revision | None) -> ReadRequest | None:
        """The request that a message is; None where it is a notification, which concerns nobody here."""
        message = jsonrpc.read(body, self._limits)
        method, request_id = message.method, message.id
        if method is UNSET:
            raise with_request_id(
                InvalidRequest("Nothing is asked at this door, so there is nothing to answer"), request_id
            )
        if request_id is UNSET:
            return None
        try:
            return self._want(message, method, request_id, stated)
        except Refusal as refusal:
            raise with_request_id(refusal, request_id) from None

    def _want(self, message: Message, method: str, request_id: RequestId, stated: Revision | None) -> ReadRequest:
        params = read_params(message)
        if (stated is None or stated.has_sessions) and not is_modern(params):
            version = ASSUMED if stated is None else stated.name
            return self.want_legacy(message, params, method, request_id, version)
        caller, token = self._callers.read(params, None if stated is None else stated.name)
        if method == LISTEN:
            raise InvalidRequest(f"{method} is answered by a stream that stays open: use /mcp")
        admitted = admit(message, params, method, request_id, caller, token)
        return ReadRequest(admitted, self._modern, self._handler)

    def want_legacy(
        self, message: Message, params: Params, method: str, request_id: RequestId, version: str
    ) -> ReadRequest:
        """A request of one of the older revisions."""
        if method in _SESSION_METHODS:
            raise SessionRequired(f"{method} is for the rest of a session, and there is none at this door: use /mcp")
        caller, handler = self._anonymous[version], self._handler
        if method == "initialize":
            caller, handler = read_caller(message, "http", log_level=None), self._answer_initialize
            admitted = AdmittedRequest(request_id, "server/discover", "", message, params, caller, read_token(params))
        else:
            admitted = admit_legacy(message, params, method, request_id, caller)
        return ReadRequest(admitted, self._codecs[caller.version], _answer_ping if method == "ping" else handler)

    def anonymous_caller(self, version: str) -> tuple[Caller, RevisionCodec, Handler]:
        """Who sends requests of that revision, how it is answered, and by whom."""
        return self._anonymous[version], self._codecs[version], self._handler

    async def _answer_initialize(self, call: Call) -> Reply:
        """The answer to `initialize`, without the capabilities that only a session could make use of."""
        reply = await self._handler(call)
        found = reply.result.value if isinstance(reply.result, EncodedResult) else reply.result
        capabilities = {
            name: {key: value for key, value in capability.items() if key not in ("listChanged", "subscribe")}
            for name, capability in found["capabilities"].items()
            if name != "logging"
        }
        return Done({**found, "capabilities": capabilities})


def read_bodies(body: bytes, limits: Limits) -> Sequence[bytes]:
    """The messages of a body: itself, or those of the array that it is."""
    return jsonrpc.read_batch(body, limits) if jsonrpc.is_batch(body) else (body,)


def sessions_unsupported(requested: str | None) -> SessionsUnsupported:
    """The refusal of a revision that needs sessions, where there is no place to keep them."""
    return SessionsUnsupported(_NO_SESSIONS, ASSUMED if requested is None else requested, [MODERN])


def with_request_id(refusal: Refusal, request_id: object) -> Refusal:
    """The refusal of the request of that id."""
    if isinstance(request_id, str | int):
        refusal.request_id = request_id
    return refusal


async def _answer_ping(call: Call) -> Reply:
    return Done({})
