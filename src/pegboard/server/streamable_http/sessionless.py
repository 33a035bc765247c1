"""The requests of legacy clients where sessions are off."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from msgspec import UNSET, Struct

from pegboard.call import Call, Handler
from pegboard.limits import Limits
from pegboard.protocol import headers as mcp
from pegboard.protocol import jsonrpc
from pegboard.protocol.jsonrpc import Message
from pegboard.protocol.params import Params
from pegboard.protocol.revisions import ASSUMED, Revision
from pegboard.server.exchange.admission import check_batches, read_caller
from pegboard.server.exchange.calls_in_flight import CallsInFlight
from pegboard.server.exchange.exchanges import CollectedAnswers, HttpExchange, reject_question, run_call
from pegboard.server.exchange.fast_path import PlainCall
from pegboard.server.exchange.request_head import PostHead
from pegboard.server.exchange.stateless import Stateless, sessions_unsupported
from pegboard.server.http.responses import error_response, method_not_allowed, text_response
from pegboard.server.http_types import Answer, EndpointResult, Head, Headers, Sink


class Sessionless(Struct, eq=False):
    """Serves each request by itself, with the revision that it states; no state is kept about its sender."""

    stateless: Stateless
    limits: Limits
    calls: CallsInFlight

    def post(self, post: PostHead, head: Head, message: Message, params: Params, sink: Sink) -> EndpointResult:
        version = mcp.stated_revision(head.headers).name
        method, request_id = message.method, message.id
        if method is UNSET or request_id is UNSET:
            return Answer(202, headers=post.extra)
        wanted = self.stateless.want_legacy(message, params, method, request_id, version, post.access)
        exchange = HttpExchange(sink, wanted.codec, request_id, post.extra, post.accepts, reject_question)
        return self._run(wanted.handler, wanted.admitted.call(exchange, None, post.address), exchange, sink)

    def call(self, post: PostHead, head: Head, call: PlainCall, sink: Sink) -> EndpointResult:
        """The session that it names is not ours, and is ignored."""
        version = ASSUMED if post.version is None else post.version
        caller, codec, handler = self.stateless.sessionless_caller(version, post.access)
        exchange = HttpExchange(sink, codec, call.id, post.extra, post.accepts, reject_question)
        call.caller, call.channel, call.address = caller, exchange, post.address
        return self._run(handler, call, exchange, sink)

    def _run(self, handler: Handler, call: Call, exchange: HttpExchange, sink: Sink) -> EndpointResult:
        served = self.calls.run(exchange, run_call(handler, call, exchange), len(call.params), call.caller)
        if isinstance(served, asyncio.Task):
            # The response cannot be resumed.
            sink.on_gone(served.cancel)
        return served

    def batch(self, post: PostHead, head: Head, body: bytes, sink: Sink) -> EndpointResult:
        revision = mcp.stated_revision(head.headers)
        check_batches(revision)
        self.calls.check_room(len(body))
        bodies = jsonrpc.read_batch(body, self.limits)
        return self._run_batch(post, bodies, revision, sink)

    async def _run_batch(
        self, post: PostHead, bodies: Sequence[bytes], revision: Revision, sink: Sink
    ) -> Answer | None:
        answers = CollectedAnswers(self.limits)
        await self.stateless.serve(bodies, revision, answers, post.access)
        return answers.answer_batch(sink, post.extra, post.accepts)

    def get(self, head: Head, sink: Sink, extra: Headers) -> EndpointResult:
        mcp.stated_revision(head.headers)
        return method_not_allowed(b"POST, OPTIONS", extra)

    def delete(self, head: Head, extra: Headers) -> EndpointResult:
        if not mcp.stated_revision(head.headers).has_sessions:
            return method_not_allowed(b"POST, OPTIONS", extra)
        return text_response(501, "This server has no sessions", extra)


class RejectedLegacy:
    """Rejects them with the reason."""

    def post(self, post: PostHead, head: Head, message: Message, params: Params, sink: Sink) -> EndpointResult:
        hello = message.method == "initialize"
        raise sessions_unsupported(read_caller(message, "http").version if hello else mcp.read_version(head.headers))

    def call(self, post: PostHead, head: Head, call: PlainCall, sink: Sink) -> EndpointResult:
        raise sessions_unsupported(post.version)

    def batch(self, post: PostHead, head: Head, body: bytes, sink: Sink) -> EndpointResult:
        raise sessions_unsupported(mcp.read_version(head.headers))

    def get(self, head: Head, sink: Sink, extra: Headers) -> EndpointResult:
        return self._without_body(head, extra)

    def delete(self, head: Head, extra: Headers) -> EndpointResult:
        return self._without_body(head, extra)

    def _without_body(self, head: Head, extra: Headers) -> Answer:
        revision = mcp.stated_revision(head.headers)
        if not revision.has_sessions:
            return method_not_allowed(b"POST, OPTIONS", extra)
        return error_response(sessions_unsupported(revision.name), extra)
