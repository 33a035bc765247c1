"""The legacy half of the MCP endpoint where there are no sessions: switched off, or with nowhere to be kept."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final, NoReturn, Protocol

from msgspec import UNSET

from pegboard.call import Call, Handler, Question
from pegboard.errors import InvalidRequest, NoSessions, Refusal
from pegboard.limits import Limits
from pegboard.protocol import headers as mcp
from pegboard.protocol import jsonrpc
from pegboard.protocol.jsonrpc import Message
from pegboard.protocol.legacy import read_handshake
from pegboard.protocol.params import Params
from pegboard.protocol.versions import BATCHES, MODERN, UNSTATED
from pegboard.transports.calls import Calls
from pegboard.transports.channels import HttpExchange, conduct, stream
from pegboard.transports.door import Answer, Head, Headers, Served, Sink
from pegboard.transports.incoming import make_call
from pegboard.transports.media import Accepts
from pegboard.transports.posts import Post
from pegboard.transports.refusals import not_allowed, refused, said
from pegboard.transports.rpc import RpcAnswers
from pegboard.transports.shortcut import PlainCall
from pegboard.transports.stateless import Stateless, ask_nobody, check_stated


class LegacyHalf(Protocol):
    """What the endpoint does with requests of the older revisions."""

    def post(
        self, head: Head, message: Message, params: Params, sink: Sink, extra: Headers, accepts: Accepts
    ) -> Served: ...

    def call(self, post: Post, plain: PlainCall, sink: Sink) -> Served: ...

    def batch(self, head: Head, body: bytes, sink: Sink, extra: Headers, accepts: Accepts) -> Served: ...

    def get(self, head: Head, sink: Sink, extra: Headers) -> Served: ...

    def delete(self, head: Head, extra: Headers) -> Served: ...


class SessionlessExchange(HttpExchange, eq=False):
    """One request of a client that cannot be asked, nor come back for anything."""

    async def ask(self, asks: Mapping[str, Question]) -> NoReturn:
        await ask_nobody(asks)


class Sessionless:
    """Serves each request by itself, as it states its revision; nothing is remembered of who sent it."""

    def __init__(self, stateless: Stateless, limits: Limits, calls: Calls) -> None:
        self._stateless = stateless
        self._limits = limits
        self._calls = calls

    def post(
        self, head: Head, message: Message, params: Params, sink: Sink, extra: Headers, accepts: Accepts
    ) -> Served:
        version = _stated(head)
        method, request_id = message.method, message.id
        if method is UNSET or request_id is UNSET:
            return Answer(202, headers=extra)
        wanted = self._stateless.want_legacy(message, params, method, request_id, version)
        exchange = SessionlessExchange(sink, wanted.tongue, request_id, extra, accepts)
        call = make_call(
            wanted.method, request_id, wanted.about, message, params, wanted.caller, exchange, wanted.token
        )
        return self._run(wanted.handler, call, exchange, sink)

    def call(self, post: Post, plain: PlainCall, sink: Sink) -> Served:
        """The session that it names is none of ours, and is not asked for."""
        caller, tongue, handler = self._stateless.stranger(UNSTATED if post.version is None else post.version)
        exchange = SessionlessExchange(sink, tongue, plain.id, post.extra, post.accepts)
        call = Call(
            method="tools/call",
            caller=caller,
            channel=exchange,
            id=plain.id,
            name=plain.name,
            raw=plain.arguments,
            params=plain.params,
        )
        return self._run(handler, call, exchange, sink)

    def _run(self, handler: Handler, call: Call, exchange: SessionlessExchange, sink: Sink) -> Served:
        served = self._calls.run(exchange, conduct(handler, call, exchange))
        if isinstance(served, asyncio.Task):
            # Nobody can come back for the answer.
            sink.on_gone(served.cancel)
        return served

    def batch(self, head: Head, body: bytes, sink: Sink, extra: Headers, accepts: Accepts) -> Served:
        version = _stated(head)
        if version not in BATCHES:
            raise InvalidRequest(f"Revision {version} has no batches: send one message per request")
        self._calls.check_room()
        return self._run_batch(jsonrpc.read_batch(body, self._limits), version, sink, extra, accepts)

    async def _run_batch(
        self, bodies: Sequence[bytes], version: str, sink: Sink, extra: Headers, accepts: Accepts
    ) -> Answer | None:
        answers = RpcAnswers()
        await self._stateless.serve(bodies, version, answers)
        if not answers.told:
            return Answer(202, headers=extra)
        body = b"[%b]" % b",".join(answers.told)
        if accepts.json:
            return Answer(200, body, headers=extra)
        stream(sink, body, extra)
        return None

    def get(self, head: Head, sink: Sink, extra: Headers) -> Served:
        check_stated(_version(head))
        return not_allowed(b"POST, OPTIONS", extra)

    def delete(self, head: Head, extra: Headers) -> Served:
        version = _version(head)
        check_stated(version)
        if version == MODERN:
            return not_allowed(b"POST, OPTIONS", extra)
        return said(501, "There are no sessions here, so there is none to end", extra)


_APART: Final = (
    "This server runs as several processes that share no store, so that it cannot keep sessions, which revisions before "
    "2026-07-28 need. Start it with --store sqlite:PATH or --store redis://HOST, with --workers 1, or with --sessions off"
)


class Refused:
    """Turns them away with the reason."""

    def post(
        self, head: Head, message: Message, params: Params, sink: Sink, extra: Headers, accepts: Accepts
    ) -> Served:
        hello = message.method == "initialize"
        raise _refusal(read_handshake(bytes(message.params)).version if hello else _version(head))

    def call(self, post: Post, plain: PlainCall, sink: Sink) -> Served:
        raise _refusal(post.version)

    def batch(self, head: Head, body: bytes, sink: Sink, extra: Headers, accepts: Accepts) -> Served:
        raise _refusal(_version(head))

    def get(self, head: Head, sink: Sink, extra: Headers) -> Served:
        return self._without_body(head, extra)

    def delete(self, head: Head, extra: Headers) -> Served:
        return self._without_body(head, extra)

    def _without_body(self, head: Head, extra: Headers) -> Answer:
        version = _version(head)
        check_stated(version)
        if version == MODERN:
            return not_allowed(b"POST, OPTIONS", extra)
        return refused(_refusal(version), extra)


def refuse_apart(head: Head, body: bytes, sink: Sink, extra: Headers) -> Served:
    """The same at another door."""
    raise _refusal(_version(head))


def _refusal(requested: str | None) -> Refusal:
    return NoSessions(_APART, UNSTATED if requested is None else requested, [MODERN])


def _version(head: Head) -> str | None:
    stated = head.headers.get(mcp.VERSION)
    return None if stated is None else stated.decode("latin-1")


def _stated(head: Head) -> str:
    version = _version(head)
    check_stated(version)
    return UNSTATED if version is None else version
