"""Requests of any revision that belong to no session: nothing is remembered of who sent them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, NoReturn, Protocol

from msgspec import UNSET, Struct

from pegboard.call import (
    Call,
    Caller,
    Done,
    Handler,
    Json,
    Kept,
    ProgressToken,
    Question,
    Reply,
    RequestId,
    ask_by_answer,
)
from pegboard.errors import AskFailed, IdInFlight, InvalidRequest, Refusal, SessionRequired, UnsupportedVersion
from pegboard.limits import Limits
from pegboard.protocol import jsonrpc
from pegboard.protocol.jsonrpc import Message
from pegboard.protocol.legacy import read_handshake
from pegboard.protocol.modern import Modern
from pegboard.protocol.params import Params, read_params
from pegboard.protocol.tongue import Tongue, legacy_tongues
from pegboard.protocol.versions import LEGACY, MODERN, SUPPORTED, UNSTATED
from pegboard.transports.calls import Calls
from pegboard.transports.channels import Line, LineExchange, conduct
from pegboard.transports.following import LISTEN
from pegboard.transports.incoming import ModernCallers, check_method, is_modern, make_call, read_token, subject

_OF_A_SESSION: Final = frozenset({"logging/setLevel", "resources/subscribe", "resources/unsubscribe"})


class Wanted(Struct, frozen=True):
    """A request that has been read: what it asks for, of whom, and how its sender is answered."""

    id: RequestId
    method: str
    about: str
    message: Message
    params: Params
    caller: Caller
    token: ProgressToken | None
    tongue: Tongue
    handler: Handler

    def call(self, channel: StatelessExchange) -> Call:
        return make_call(self.method, self.id, self.about, self.message, self.params, self.caller, channel, self.token)


class StatelessExchange(LineExchange):
    """One request whose answer is written to a line; a client of the older revisions cannot be asked by it."""

    __slots__ = ("_ask",)

    def __init__(self, line: Line, wanted: Wanted) -> None:
        super().__init__(line, wanted.tongue, wanted.id)
        self._ask: Callable[[Mapping[str, Question]], Awaitable[NoReturn]] = (
            ask_by_answer if wanted.tongue.version == MODERN else ask_nobody
        )

    async def ask(self, asks: Mapping[str, Question]) -> NoReturn:
        await self._ask(asks)


class Answers(Protocol):
    """Where the answers to one HTTP request are put."""

    def exchange(self, wanted: Wanted) -> StatelessExchange: ...

    def refuse(self, refusal: Refusal) -> None:
        """Put down the answer to a message that could not become a call."""


class Stateless:
    """Serves one Handler to whoever sends single requests or batches of them."""

    def __init__(
        self, handler: Handler, info: Mapping[str, Json], limits: Limits, calls: Calls, callers: ModernCallers
    ) -> None:
        self._handler = handler
        self._limits = limits
        self._calls = calls
        self._callers = callers
        self._modern = Modern(info)
        self._tongues = legacy_tongues(info)
        self._strangers = {version: Caller(version=version, transport="http") for version in LEGACY}

    async def serve(self, bodies: Sequence[bytes], stated: str | None, answers: Answers) -> None:
        """Serve all messages of one HTTP request, which states that version."""
        taken: set[RequestId] = set()
        if len(bodies) == 1:
            await self._serve(bodies[0], stated, answers, taken)
        else:
            await asyncio.gather(*(self._serve(body, stated, answers, taken) for body in bodies))

    async def _serve(self, body: bytes, stated: str | None, answers: Answers, taken: set[RequestId]) -> None:
        try:
            wanted = self._read(body, stated)
            if wanted is None:
                return
            if wanted.id in taken:
                raise named(IdInFlight(f"The id {wanted.id!r} comes twice in this batch: use another one"), wanted.id)
            taken.add(wanted.id)
            exchange = answers.exchange(wanted)
            try:
                self._calls.admit(exchange)
            except Refusal as refusal:
                raise named(refusal, wanted.id) from None
        except Refusal as refusal:
            answers.refuse(refusal)
            return
        self._calls.running[exchange] = asyncio.current_task()
        try:
            await conduct(wanted.handler, wanted.call(exchange), exchange)
        finally:
            del self._calls.running[exchange]

    def _read(self, body: bytes, stated: str | None) -> Wanted | None:
        """The request that a message is; None where it is a notification, which concerns nobody here."""
        message = jsonrpc.read(body, self._limits)
        method, request_id = message.method, message.id
        if method is UNSET:
            raise named(InvalidRequest("Nothing is asked at this door, so there is nothing to answer"), request_id)
        if request_id is UNSET:
            return None
        try:
            return self._want(message, method, request_id, stated)
        except Refusal as refusal:
            raise named(refusal, request_id) from None

    def _want(self, message: Message, method: str, request_id: RequestId, stated: str | None) -> Wanted:
        params = read_params(message)
        if stated != MODERN and not is_modern(params):
            return self.want_legacy(message, params, method, request_id, UNSTATED if stated is None else stated)
        caller, token = self._callers.read(params, stated)
        check_method(method, MODERN)
        if method == LISTEN:
            raise InvalidRequest(f"{method} is answered by a stream that stays open: use /mcp")
        about = subject(method, params)
        return Wanted(request_id, method, about, message, params, caller, token, self._modern, self._handler)

    def want_legacy(self, message: Message, params: Params, method: str, request_id: RequestId, version: str) -> Wanted:
        """A request of one of the older revisions."""
        caller, about, handler = self._strangers[version], "", self._handler
        if method == "initialize":
            handshake = read_handshake(bytes(message.params))
            caller = Caller(
                version=handshake.version,
                transport="http",
                client=handshake.client,
                capabilities=handshake.capabilities,
            )
            method, handler = "server/discover", self._introduce
        elif method == "ping":
            handler = _pong
        elif method in _OF_A_SESSION:
            raise SessionRequired(f"{method} is for the rest of a session, and there is none at this door: use /mcp")
        else:
            check_method(method, version)
            about = subject(method, params)
        tongue = self._tongues[caller.version]
        return Wanted(request_id, method, about, message, params, caller, read_token(params), tongue, handler)

    def stranger(self, version: str) -> tuple[Caller, Tongue, Handler]:
        """Who sends requests of that revision, how it is answered, and by whom."""
        return self._strangers[version], self._tongues[version], self._handler

    async def _introduce(self, call: Call) -> Reply:
        """The answer to `initialize`, without the capabilities that only a session could make use of."""
        reply = await self._handler(call)
        found = reply.result.value if isinstance(reply.result, Kept) else reply.result
        capabilities = {
            name: {key: value for key, value in capability.items() if key not in ("listChanged", "subscribe")}
            for name, capability in found["capabilities"].items()
            if name != "logging"
        }
        return Done({**found, "capabilities": capabilities})


def read_bodies(body: bytes, limits: Limits) -> Sequence[bytes]:
    """The messages of a body: itself, or those of the array that it is."""
    return jsonrpc.read_batch(body, limits) if jsonrpc.is_batch(body) else (body,)


def check_stated(version: str | None) -> None:
    """Refuse a version header that names no revision of ours."""
    if version is not None and version not in LEGACY and version != MODERN:
        raise UnsupportedVersion(version, SUPPORTED)


def named(refusal: Refusal, request_id: object) -> Refusal:
    """The refusal of the request of that id."""
    if isinstance(request_id, str | int):
        refusal.request_id = request_id
    return refusal


async def _pong(call: Call) -> Reply:
    return Done({})


async def ask_nobody(asks: Mapping[str, Question]) -> NoReturn:
    """What becomes of a question to a client that has no session to answer in."""
    raise AskFailed("The client cannot be asked: the door it came by carries no questions, /mcp does")
