"""The MCP endpoint over HTTP, free of any connection: a Head and a body in, an Answer or a stream out.

The era is chosen per request, as the spec's table for dual-era servers says: a body that carries a modern `_meta`, or
a version header that is no legacy revision, is served statelessly; everything else is legacy and needs a session,
which `initialize` opens.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, TypeAlias

from msgspec import UNSET

from pegboard.call import Call, Handler, Json
from pegboard.errors import HeaderMismatch, InvalidRequest, Refusal, UnsupportedVersion
from pegboard.limits import Limits
from pegboard.protocol import headers as mcp
from pegboard.protocol import jsonrpc
from pegboard.protocol.jsonrpc import Message
from pegboard.protocol.modern import Modern
from pegboard.protocol.params import Params, read_params
from pegboard.protocol.versions import LEGACY, MODERN, SUPPORTED
from pegboard.sessions.session import Sessions
from pegboard.transports.calls import Calls
from pegboard.transports.channels import HttpExchange, conduct
from pegboard.transports.door import Answer, Head, Headers, Sink
from pegboard.transports.followers import Followers
from pegboard.transports.following import LISTEN, HttpListen
from pegboard.transports.guard import Guard
from pegboard.transports.incoming import ModernCallers, check_method, is_modern, make_call, subject
from pegboard.transports.legacy_http import LegacyHttp
from pegboard.transports.media import Accepts, check_content_type, read_accept
from pegboard.transports.refusals import not_allowed, refused, said

Served: TypeAlias = Answer | Coroutine[Any, Any, Answer | None]


class HttpEndpoint:
    """Serves one Handler at one path, in every revision we speak."""

    def __init__(
        self,
        handler: Handler,
        info: Mapping[str, Json],
        *,
        limits: Limits,
        guard: Guard,
        paths: tuple[str, ...] = ("/mcp", "/mcp/"),
        prefix: str = "",
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self._handler = handler
        self._limits = limits
        self._guard = guard
        self._modern = Modern(info)
        self.sessions = Sessions(limits)
        self._calls = Calls(limits, self.sessions.reap, loop)
        self._admit = self._calls.admit
        self.calls = self._calls.running
        self.followers = Followers(limits.followers, self._calls)
        self._legacy = LegacyHttp(handler, info, limits, self.sessions, self._calls)
        self._callers = ModernCallers("http")
        self._paths: dict[bytes, Callable[[Head, bytes, Sink], Served]] = {
            **{(prefix + path).encode(): self._mcp for path in paths},
            (prefix + "/health").encode(): self._health,
            (prefix + "/ready").encode(): self._ready,
        }
        self._where = ", ".join(prefix + path for path in paths[:1])

    def accept(self, head: Head, body: bytes, sink: Sink) -> Served:
        """Route a request by its path."""
        route = self._paths.get(head.path)
        if route is None:
            return said(404, f"Nothing is served at this path; the MCP endpoint is {self._where}")
        return route(head, body, sink)

    def _health(self, head: Head, body: bytes, sink: Sink) -> Answer:
        return Answer(200, b'{"status":"ok"}') if head.method == b"GET" else not_allowed(b"GET")

    def _ready(self, head: Head, body: bytes, sink: Sink) -> Answer:
        if head.method != b"GET":
            return not_allowed(b"GET")
        if self.draining:
            return Answer(503, b'{"status":"draining"}')
        return Answer(200, b'{"status":"ready"}')

    def _mcp(self, head: Head, body: bytes, sink: Sink) -> Served:
        allowed = self._guard.check(head)
        if isinstance(allowed, Answer):
            return allowed
        try:
            match head.method:
                case b"POST":
                    return self._post(head, body, sink, allowed)
                case b"GET":
                    return self._legacy.get(head, sink, allowed)
                case b"DELETE":
                    return self._legacy.delete(head, allowed)
                case b"OPTIONS":
                    return self._guard.preflight(head, allowed)
        except Refusal as refusal:
            return refused(refusal, allowed)
        return not_allowed(b"GET, POST, DELETE, OPTIONS", allowed)

    # -- POST ------------------------------------------------------------------------------------------------------

    def _post(self, head: Head, body: bytes, sink: Sink, extra: Headers) -> Served:
        headers = head.headers
        if headers.get(b"content-type") != b"application/json":
            check_content_type(headers.get(b"content-type"))
        accepts = read_accept(headers.get(b"accept"))
        if not accepts.json and not accepts.stream:
            return said(406, "Accept must allow application/json and text/event-stream", extra)
        if jsonrpc.is_batch(body):
            return self._legacy.batch(head, body, sink, extra, accepts)
        message = jsonrpc.read(body, self._limits)
        try:
            params = read_params(body, message)
            stated = headers.get(mcp.VERSION)
            version = None if stated is None else stated.decode("latin-1")
            if (version is not None and version not in LEGACY) or is_modern(params):
                return self._serve_modern(head, message, params, version, sink, extra, accepts)
            return self._legacy.post(head, message, params, sink, extra, accepts)
        except Refusal as refusal:
            if message.id is not UNSET:
                refusal.request_id = message.id
            raise

    def _serve_modern(
        self,
        head: Head,
        message: Message,
        params: Params,
        version: str | None,
        sink: Sink,
        extra: Headers,
        accepts: Accepts,
    ) -> Served:
        method, request_id = message.method, message.id
        if method is UNSET:
            # "The client MUST NOT send JSON-RPC responses" (Sending Messages, 4)
            raise InvalidRequest("A client of this revision sends no responses: retry the request with inputResponses")
        if request_id is UNSET:
            if version is not None and version != MODERN:
                raise UnsupportedVersion(version, SUPPORTED)
            return Answer(202, headers=extra)
        caller, token = self._callers.read(params, version)
        if version is None:
            raise HeaderMismatch(f"Header mismatch: the MCP-Protocol-Version header is missing; send {caller.version}")
        about = subject(method, params)
        mcp.check_mirror(head.headers, method, about)
        check_method(method, MODERN)
        listens = method == LISTEN
        if listens:
            if not accepts.stream:
                return said(406, f"{method} is answered by a stream: Accept must allow text/event-stream", extra)
            exchange: HttpExchange = HttpListen(sink, self._modern, request_id, extra, accepts, self.followers)
        else:
            exchange = HttpExchange(sink, self._modern, request_id, extra, accepts)
        call = make_call(method, request_id, about, message, params, caller, exchange, token, head.headers)
        self._admit(exchange)
        return self._run_listen(call, exchange) if listens else self._run_modern(call, exchange, sink)

    async def _run_modern(self, call: Call, exchange: HttpExchange, sink: Sink) -> Answer | None:
        task = self.calls[exchange] = asyncio.current_task()
        if task is not None:
            # Cancellation: "Closing the SSE response stream MUST be treated by the server as cancellation".
            sink.on_gone(task.cancel)
        try:
            return await conduct(self._handler, call, exchange)
        finally:
            del self.calls[exchange]

    async def _run_listen(self, call: Call, exchange: HttpExchange) -> Answer | None:
        """As above, but the sink is not to hold on to the task: it lives for days, and whoever follows ends with it."""
        self.calls[exchange] = asyncio.current_task()
        try:
            return await conduct(self._handler, call, exchange)
        finally:
            del self.calls[exchange]

    # -- the rest --------------------------------------------------------------------------------------------------

    @property
    def draining(self) -> bool:
        """Whether no new calls are taken, because we end."""
        return self._calls.draining

    async def drain(self, seconds: float, hurried: asyncio.Event) -> None:
        """Take no new calls; let those under way come to their answers, and cancel the rest when time is up."""
        await self._calls.drain(seconds, hurried)
