"""The deprecated endpoints, with guard and deprecation headers: `/rpc`, `POST /sse`, and the routes to HTTP+SSE."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final, TypeAlias

from msgspec import Struct

from pegboard.call import RequestId
from pegboard.errors import Refusal
from pegboard.limits import Limits
from pegboard.protocol import headers as mcp
from pegboard.protocol import jsonrpc
from pegboard.protocol.modern_codec import RevisionCodec
from pegboard.protocol.revisions import Revision, find_revision
from pegboard.server.access import Access
from pegboard.server.deprecated.event_line import EventLine
from pegboard.server.deprecated.http_sse import HttpSse
from pegboard.server.exchange.calls_in_flight import CallsInFlight
from pegboard.server.exchange.exchanges import STREAM, Ask, CollectedAnswers, LineExchange
from pegboard.server.exchange.request_head import NotAcceptable, read_post_head
from pegboard.server.exchange.service import Service
from pegboard.server.exchange.stateless import Stateless, read_bodies, sessions_unsupported
from pegboard.server.http.guard import Guard
from pegboard.server.http.responses import error_response, method_not_allowed
from pegboard.server.http_types import Answer, EndpointResult, Head, Headers, Sink
from pegboard.stores.cluster import Cluster

_log = logging.getLogger("pegboard.server")

# RFC 9745. Streamable HTTP, introduced by revision 2025-03-26, replaced all of them.
_SINCE: Final = (b"deprecation", b"@1742947200")

Serve: TypeAlias = Callable[[Head, bytes, Sink, Headers], EndpointResult]
Route: TypeAlias = Callable[[Head, bytes, Sink], EndpointResult]


class EventAnswers:
    """The responses to one HTTP request, each sent when it is ready; kept alive until the last."""

    def __init__(self, sink: Sink, account: str) -> None:
        self.account = account
        self._line = EventLine(sink, numbered=True)
        self.since = 0.0

    def exchange(self, codec: RevisionCodec, request_id: RequestId, ask: Ask) -> LineExchange:
        return LineExchange(self._line, codec, request_id, ask)

    def refuse(self, refusal: Refusal) -> None:
        name = "error" if refusal.request_id is None else "message"
        self._line.write_event(name, jsonrpc.refusal(refusal.request_id, refusal))

    def keep_alive(self) -> None:
        self._line.keep_alive()

    def end(self) -> None:
        """Nothing to do: it ends with its calls, which are being cancelled."""

    def finish(self) -> None:
        """Mark the end of the responses."""
        self._line.write_event("done", b"{}")
        self._line.close()


class SsePostEndpoint(Struct, eq=False):
    """`POST /sse`: responds with a stream of events that ends after the last response.

        id: 1
        event: message
        data: {"jsonrpc":"2.0","id":1,"result":{…}}

        id: 2
        event: done
        data: {}

    Notifications before the response are `message` events too. A message that cannot be parsed is answered by an `error`
    event, since there is no id for a response.
    """

    stateless: Stateless
    limits: Limits
    calls: CallsInFlight

    def post(self, head: Head, body: bytes, sink: Sink, extra: Headers) -> EndpointResult:
        """Serve a message, or an array of them."""
        post = read_post_head(head.headers, extra)
        if not post.accepts.stream:
            raise NotAcceptable("This endpoint returns a stream: Accept must allow text/event-stream")
        stated = None if post.version is None else find_revision(post.version)
        self.calls.check_room(len(body))
        return self._answer(body, stated, sink, extra, head.access)

    async def _answer(self, body: bytes, stated: Revision | None, sink: Sink, extra: Headers, access: Access) -> None:
        task = asyncio.current_task()
        if task is not None:
            # The responses cannot be fetched later.
            sink.on_gone(task.cancel)
        sink.start(200, STREAM + extra)
        events = EventAnswers(sink, access.account)
        try:
            self.calls.follow(events)
            await self.stateless.serve(read_bodies(body, self.limits), stated, events, access)
        except Refusal as refusal:
            events.refuse(refusal)
        finally:
            self.calls.forget(events)
        events.finish()


class RpcEndpoint(Struct, eq=False):
    """`POST /rpc`: plain JSON-RPC, one message or an array. Responds with JSON only; 204 if there is nothing to return."""

    stateless: Stateless
    limits: Limits
    calls: CallsInFlight

    def post(self, head: Head, body: bytes, sink: Sink, extra: Headers) -> EndpointResult:
        """Serve a message, or an array of them."""
        post = read_post_head(head.headers, extra)
        if not post.accepts.json:
            raise NotAcceptable("This endpoint returns JSON: Accept must allow application/json")
        stated = None if post.version is None else find_revision(post.version)
        bodies = read_bodies(body, self.limits)
        self.calls.check_room(len(body))
        return self._answer(bodies, stated, sink, extra, head.access, batch=jsonrpc.is_batch(body))

    async def _answer(
        self,
        bodies: Sequence[bytes],
        stated: Revision | None,
        sink: Sink,
        extra: Headers,
        access: Access,
        *,
        batch: bool,
    ) -> Answer:
        task = asyncio.current_task()
        if task is not None:
            # The response cannot be fetched later.
            sink.on_gone(task.cancel)
        answers = CollectedAnswers(self.limits)
        await self.stateless.serve(bodies, stated, answers, access)
        messages = answers.messages
        if not messages:
            return Answer(204, headers=extra)
        if batch:
            return Answer(200, b"[%b]" % b",".join(messages), headers=extra)
        return Answer(answers.status, messages[0], headers=extra + answers.headers)


class DeprecatedEndpoints:
    """The deprecated endpoints that are served, with the same checks as `/mcp`."""

    def __init__(
        self,
        service: Service,
        guard: Guard,
        calls: CallsInFlight,
        *,
        prefix: str,
        which: Collection[str],
        successor: str = "/mcp",
        cluster: Cluster | None = None,
        apart: bool = False,
    ) -> None:
        """Processes without a common store (`apart`) cannot share sessions.

        `successor` is the endpoint that clients should use instead.
        """
        self._guard = guard
        self._successor = prefix + successor
        self._used: set[tuple[str, bytes]] = set()
        self._routes: dict[bytes, Route] = {}
        stateless = Stateless(service, calls)
        at_sse: dict[bytes, Serve] = {}
        if "sse" in which:
            transport = HttpSse(service, calls, prefix + "/messages", cluster)
            at_sse[b"GET"] = _reject_sse if apart else transport.get
            self._open(prefix, "/messages", {b"POST": transport.post})
        if "oneshot" in which:
            at_sse[b"POST"] = SsePostEndpoint(stateless, service.limits, calls).post
        if at_sse:
            self._open(prefix, "/sse", at_sse)
        if "rpc" in which:
            stateless = Stateless(service, calls, direct_methods=service.direct_methods)
            self._open(prefix, "/rpc", {b"POST": RpcEndpoint(stateless, service.limits, calls).post})

    def accept(self, head: Head, body: bytes, sink: Sink) -> EndpointResult:
        return self._routes[head.path](head, body, sink)

    def _open(self, prefix: str, path: str, verbs: Mapping[bytes, Serve]) -> None:
        def serve(head: Head, body: bytes, sink: Sink) -> EndpointResult:
            return self._serve(path, verbs, head, body, sink)

        self._routes[(prefix + path).encode()] = self._routes[(prefix + path + "/").encode()] = serve

    def _serve(self, path: str, verbs: Mapping[bytes, Serve], head: Head, body: bytes, sink: Sink) -> EndpointResult:
        allowed = self._guard.check(head)
        if isinstance(allowed, Answer):
            return allowed
        link = f'<{head.locate(self._successor)}>; rel="successor-version"'.encode()
        extra = (*allowed, _SINCE, (b"link", link))
        if head.method == b"OPTIONS":
            return self._guard.preflight(head, allowed)
        serve = verbs.get(head.method)
        if serve is None:
            return method_not_allowed(b", ".join((*verbs, b"OPTIONS")), extra)
        self._note_use(path, head)
        try:
            return serve(head, body, sink, extra)
        except Refusal as refusal:
            return error_response(refusal, extra)

    def _note_use(self, path: str, head: Head) -> None:
        door = path, head.method
        if door not in self._used and path != "/messages":
            self._used.add(door)
            warning = (
                "%s %s is deprecated and was used by %s: its clients should use /mcp; "
                "the option legacy_endpoints selects which endpoints are served"
            )
            _log.warning(warning, head.method.decode(), path, head.peer or "a local client")


def _reject_sse(head: Head, body: bytes, sink: Sink, extra: Headers) -> EndpointResult:
    raise sessions_unsupported(mcp.read_version(head.headers))
