"""The MCP endpoint: a Head and a body in, an Answer or a stream out.

The era is chosen per request, following the specification's table for dual-era servers: a body with a modern `_meta`,
or a version header that names no legacy revision, is served statelessly; everything else is legacy and needs a session,
which `initialize` opens.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Mapping
from importlib import import_module
from typing import Any, Final, Literal, TypeAlias

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from pegboard.accounts.accounts import Accounts
from pegboard.call import NO_CALLER, Handler, Json
from pegboard.errors import HeaderMismatch, InvalidRequest, Refusal, UnsupportedVersion
from pegboard.limits import Limits
from pegboard.logs.watchdog import TALLY
from pegboard.middleware.observability.metric_families import CONTENT_TYPE
from pegboard.protocol import headers as mcp
from pegboard.protocol import jsonrpc
from pegboard.protocol.jsonrpc import Message
from pegboard.protocol.params import Params, read_params
from pegboard.protocol.revisions import SUPPORTED, find_revision
from pegboard.server.access import NO_ACCESS
from pegboard.server.endpoint_names import endpoint_paths
from pegboard.server.exchange.admission import admit, is_modern
from pegboard.server.exchange.calls_in_flight import CallsInFlight
from pegboard.server.exchange.change_streams import LISTEN, listen_handler
from pegboard.server.exchange.exchanges import HttpExchange, run_call
from pegboard.server.exchange.fast_path import PlainCall
from pegboard.server.exchange.request_head import PostHead, read_post_head
from pegboard.server.exchange.service import Service
from pegboard.server.exchange.stateless import Stateless
from pegboard.server.exchange.subscribers import Subscribers
from pegboard.server.http.custom_routes import CustomRoutes, RouteExchange
from pegboard.server.http.guard import Guard
from pegboard.server.http.responses import error_response, method_not_allowed, text_response
from pegboard.server.http_types import Answer, Endpoint, EndpointResult, Head, Headers, Route, Sink, Upgrade
from pegboard.server.streamable_http.readiness import FRESH, Parts, Readiness, always_ready
from pegboard.server.streamable_http.session_requests import SessionRequests
from pegboard.server.streamable_http.sessionless import RejectedLegacy, Sessionless
from pegboard.sessions.relay import Relay
from pegboard.sessions.session import OnSessionEnd
from pegboard.sessions.sessions import Sessions
from pegboard.stores.cluster import SharedStore
from pegboard.stores.store import Store

LegacyMode: TypeAlias = Literal["sessions", "sessionless", "refused"]
"""How legacy clients are served: with sessions, without, or not at all."""

_CONSOLE: Final = "/console"
_STREAM: Final = b"text/event-stream"

LegacyRequests: TypeAlias = SessionRequests | Sessionless | RejectedLegacy
"""What the endpoint does with requests of the older revisions."""


class DeferredEndpoint:
    """The endpoint of that class, given as `module:name`."""

    def __init__(self, target: str, *arguments: Any, **options: Any) -> None:
        self._target = target
        self._arguments = arguments
        self._options = options
        self._endpoint: Endpoint | None = None

    def accept(self, head: Head, body: bytes, sink: Sink) -> EndpointResult | Upgrade:
        if self._endpoint is None:
            module, _, name = self._target.partition(":")
            self._endpoint = getattr(import_module(module), name)(*self._arguments, **self._options)
        return self._endpoint.accept(head, body, sink)


class HttpEndpoint:
    """Serves one Handler at one path, in all supported revisions."""

    def __init__(
        self,
        handler: Handler,
        info: Mapping[str, Json],
        *,
        limits: Limits,
        guard: Guard,
        paths: tuple[str, ...] = ("/mcp", "/mcp/"),
        prefix: str = "",
        store: Store | None = None,
        shared: SharedStore | None = None,
        legacy: LegacyMode = "sessions",
        loop: asyncio.AbstractEventLoop | None = None,
        legacy_endpoints: Collection[str] = (),
        successor: str = "/mcp",
        websocket: bool = True,
        direct_methods: bool = False,
        parts: Parts = always_ready,
        metrics: Callable[[], str | None] | None = None,
        routes: Mapping[str, Route] | None = None,
        custom_routes: CustomRoutes | None = None,
        on_session_end: OnSessionEnd | None = None,
        accounts: Accounts | None = None,
    ) -> None:
        accounts = Accounts(limits) if accounts is None else accounts
        self._authenticates = False
        self._readiness = Readiness(shared, parts)
        self._metrics = metrics
        self._version = info.get("version")
        self._started = time.monotonic()
        self._handler = handler
        self._limits = limits
        self._guard = guard
        self.sessions = Sessions(
            limits, logs=None if store is None else store.logs, on_end=on_session_end, accounts=accounts
        )
        self._calls = CallsInFlight(limits, self.sessions.reap, loop, self.sessions.__len__, accounts)
        self.calls = self._calls.running
        self.followers = Subscribers(limits.subscribers, self._calls, limits.all_subscribed_uri_bytes)
        service = Service(
            handler, info, limits, self.followers, "http", direct_methods=direct_methods, on_session_end=on_session_end
        )
        self._modern, self._callers, self._read_plain = service.modern, service.callers, service.read_plain
        self._legacy = self._make_legacy(legacy, service, shared)
        deprecated = DeferredEndpoint(
            "pegboard.server.deprecated.deprecated_endpoints:DeprecatedEndpoints",
            service,
            guard,
            self._calls,
            prefix=prefix,
            which=legacy_endpoints,
            successor=successor,
            cluster=None if shared is None else shared.cluster,
            apart=legacy == "refused",
        )
        sockets = DeferredEndpoint(
            "pegboard.server.websocket.websocket_endpoint:WebSocketEndpoint", service, guard, self._calls
        )
        self._paths: dict[bytes, Callable[[Head, bytes, Sink], EndpointResult | Upgrade]] = {
            **{(prefix + path).encode(): deprecated.accept for path in endpoint_paths(legacy_endpoints)},
            **({(prefix + path).encode(): sockets.accept for path in ("/ws", "/ws/")} if websocket else {}),
            **{(prefix + path).encode(): self._mcp for path in paths},
            (prefix + "/health").encode(): self._health,
            (prefix + "/ready").encode(): self._ready,
            **({} if metrics is None else {(prefix + "/metrics").encode(): self._scrape}),
        }
        self._resources = {path: path.decode().rstrip("/") for path in self._paths}
        for path in ("/health", "/ready"):
            del self._resources[(prefix + path).encode()]
        for path in ("/messages", "/messages/"):
            # The stream and the POSTs of HTTP+SSE are one resource.
            if (prefix + path).encode() in self._resources:
                self._resources[(prefix + path).encode()] = prefix + "/sse"
        if metrics is not None:
            # The same credentials as for calls.
            self._resources[(prefix + "/metrics").encode()] = prefix + successor
        for path in ("/mcp", "/mcp/"):
            if path in paths:
                self._resources[(prefix + path).encode()] = prefix + successor
        # Read for each request: routes may be added later.
        self._routes = {} if routes is None else routes
        self._custom = CustomRoutes() if custom_routes is None else custom_routes
        self._prefix = prefix
        self._successor = successor
        self._where = ", ".join(prefix + path for path in paths[:1])

    def _make_legacy(self, mode: LegacyMode, service: Service, shared: SharedStore | None) -> LegacyRequests:
        if mode == "refused":
            return RejectedLegacy()
        if mode == "sessionless":
            return Sessionless(Stateless(service, self._calls), service.limits, self._calls)
        relay: Relay | None = None
        if shared is not None:
            self.sessions.share(shared)
            relay = Relay(shared.cluster, self.sessions, self.followers.wake)
        return SessionRequests(service, self.sessions, self._calls, relay)

    def accept(self, head: Head, body: bytes, sink: Sink) -> EndpointResult | Upgrade:
        """Route a request by its path; a known head leads directly to its message."""
        post: PostHead | None = head.verdict
        if post is None:
            route = self._paths.get(head.path)
            return self._beside(head, body, sink) if route is None else route(head, body, sink)
        if not post.plain:
            return self._post(post, head, body, sink)
        # Probably a plain call.
        call: PlainCall | None = None
        try:
            call = self._read_plain(body, post)
            if call is None:
                return self._post(post, head, body, sink)
            caller = call.caller
            if caller is NO_CALLER or not post.stateless or call.name != post.about:
                if caller is NO_CALLER and not post.stateless:
                    return self._legacy.call(post, head, call, sink)
                return self._post(post, head, body, sink)
            call.channel = exchange = HttpExchange(sink, self._modern, call.id, post.extra, post.accepts)
            if post.access is not NO_ACCESS:
                call.caller = caller = post.access.bind(caller)
            call.headers, call.address = head.headers, post.address
            walk = run_call(self._handler, call, exchange)
            served = self._calls.run(exchange, walk, len(body), caller)
        except Refusal as refusal:
            if call is not None:
                refusal.request_id = call.id
            return self._refuse(refusal, post, head)
        if isinstance(served, asyncio.Task):
            sink.on_gone(served.cancel)
        return served

    def _beside(self, head: Head, body: bytes, sink: Sink) -> EndpointResult:
        """Answer a request for a route beside the MCP endpoint: one of the server, then one of the author."""
        path = self._below_prefix(head.path)
        route = None if path is None else self._routes.get("/" + path[1:].partition("/")[0])
        if path is None or (route is None and self._custom.find(path) is None):
            # A legacy client that was given this URL looks for a stream here, and has to find none.
            if path == "/" and head.method in (b"GET", b"HEAD") and _STREAM not in head.headers.get(b"accept", b""):
                return self._describe(head)
            return text_response(404, f"Not found; the MCP endpoint is {self._where}")
        allowed = self._guard.check(head)
        if isinstance(allowed, Answer):
            return allowed
        return self._answer_custom(path, head, body, sink, allowed) if route is None else route(head, body, sink)

    def _describe(self, head: Head) -> Answer:
        """The response to the URL of the server without a path: for browsers the console, for programs the public paths."""
        allowed = self._guard.check(head)
        if isinstance(allowed, Answer):
            return allowed
        if _CONSOLE in self._routes and b"text/html" in head.headers.get(b"accept", b""):
            # Relative, since a proxy may serve us below a path of its own.
            return Answer(303, content_type=b"text/plain", headers=((b"location", b".%b/" % _CONSOLE.encode()), *FRESH))
        public = {"mcp": self._where, "health": f"{self._prefix}/health", "ready": f"{self._prefix}/ready"}
        return Answer(200, msgspec.json.encode(public), headers=(*allowed, *FRESH))

    def _below_prefix(self, path: bytes) -> str | None:
        """The path below our prefix; None for one that is elsewhere."""
        before, found, below = path.decode("latin-1").partition(self._prefix + "/")
        return "/" + below if found and not before else None

    def _answer_custom(self, path: str, head: Head, body: bytes, sink: Sink, allowed: Headers) -> EndpointResult:
        found = self._custom.find(path)
        if found is None:
            return text_response(404, f"Not found; the MCP endpoint is {self._where}")
        if head.method == b"OPTIONS":
            return self._guard.preflight(head, allowed)
        exchange = RouteExchange()
        # The head may be passed again for the next request, whose principal may be another one.
        answering = self._custom.answer(*found, path, replace(head, headers=dict(head.headers)), body)
        try:
            served = self._calls.run(exchange, exchange.run(answering, allowed), len(body), head.access)
        except Refusal as refusal:
            answering.close()
            return error_response(refusal, allowed)
        if isinstance(served, asyncio.Task):
            sink.on_gone(served.cancel)
        return served

    @property
    def rejected(self) -> int:
        """How many calls were rejected because too many were running."""
        return self._calls.rejected

    def _health(self, head: Head, body: bytes, sink: Sink) -> Answer:
        if head.method != b"GET":
            return method_not_allowed(b"GET")
        uptime = round(time.monotonic() - self._started, 3)
        health: dict[str, Json] = {"status": "ok", "version": self._version, "uptime_seconds": uptime}
        if TALLY.watchers:
            health["stalls"] = {"count": TALLY.count, "longest_seconds": round(TALLY.longest, 3)}
        return Answer(200, msgspec.json.encode(health), headers=FRESH)

    def _ready(self, head: Head, body: bytes, sink: Sink) -> EndpointResult:
        if head.method != b"GET":
            return method_not_allowed(b"GET")
        if self.draining:
            return Answer(503, b'{"status":"draining"}', headers=FRESH)
        # Probes need neither an allowed host nor credentials, so they do not learn which servers there are.
        return self._readiness.check(
            detailed=not self._authenticates and not isinstance(self._guard.check(head), Answer)
        )

    def _scrape(self, head: Head, body: bytes, sink: Sink) -> Answer:
        allowed = self._guard.check(head)
        if isinstance(allowed, Answer):
            return allowed
        if head.method != b"GET":
            return method_not_allowed(b"GET")
        text = None if self._metrics is None else self._metrics()
        if text is None:
            return text_response(404, "Not found; this path is for the middleware Metrics")
        return Answer(200, text.encode(), content_type=CONTENT_TYPE.encode(), headers=FRESH)

    def _mcp(self, head: Head, body: bytes, sink: Sink) -> EndpointResult | Upgrade:
        allowed = self._guard.check(head)
        if isinstance(allowed, Answer):
            return allowed
        try:
            match head.method:
                case b"POST":
                    head.verdict = read_post_head(head.headers, allowed, head.access, head.peer)
                    return self.accept(head, body, sink)
                case b"GET":
                    return self._legacy.get(head, sink, allowed)
                case b"DELETE":
                    return self._legacy.delete(head, allowed)
                case b"OPTIONS":
                    return self._guard.preflight(head, allowed)
        except Refusal as refusal:
            return error_response(refusal, allowed)
        return method_not_allowed(b"GET, POST, DELETE, OPTIONS", allowed)

    # -- POST ------------------------------------------------------------------------------------------------------

    def _post(self, post: PostHead, head: Head, body: bytes, sink: Sink) -> EndpointResult:
        message: Message | None = None
        try:
            if jsonrpc.is_batch(body):
                return self._legacy.batch(post, head, body, sink)
            message = jsonrpc.read(body, self._limits)
            params = read_params(message)
            if post.stateless or is_modern(params):
                return self._serve_modern(post, head, message, params, sink)
            return self._legacy.post(post, head, message, params, sink)
        except Refusal as refusal:
            if message is not None and message.id is not UNSET:
                refusal.request_id = message.id
            return self._refuse(refusal, post, head)

    def _refuse(self, refusal: Refusal, post: PostHead, head: Head) -> Answer:
        """The error for a message that could not become a call; in a session it names that session, as all responses do."""
        session = head.headers.get(mcp.SESSION, b"")
        within = not post.stateless and self.sessions.has(session.decode("latin-1"), post.access.principal.id)
        return error_response(refusal, (*post.extra, (mcp.SESSION, session)) if within else post.extra)

    def _serve_modern(self, post: PostHead, head: Head, message: Message, params: Params, sink: Sink) -> EndpointResult:
        method, request_id, version = message.method, message.id, post.version
        if method is UNSET:
            # "The client MUST NOT send JSON-RPC responses" (Sending Messages, 4)
            raise InvalidRequest(
                "A client of this revision must not send responses; retry the request with inputResponses"
            )
        if request_id is UNSET:
            if version is not None and find_revision(version).has_sessions:
                raise UnsupportedVersion(version, SUPPORTED)
            return Answer(202, headers=post.extra)
        caller, token = self._callers.read(params, version)
        if version is None:
            raise HeaderMismatch(f"Header mismatch: the MCP-Protocol-Version header is missing; send {caller.version}")
        if post.access is not NO_ACCESS:
            caller = post.access.bind(caller)
        request = admit(message, params, method, request_id, caller, token)
        if method != post.method or request.about != post.about:
            mcp.check_mirror(head.headers, method, request.about)
        listens = method == LISTEN
        if listens and not post.accepts.stream:
            return text_response(406, f"{method} returns a stream: Accept must allow text/event-stream", post.extra)
        exchange = HttpExchange(sink, self._modern, request_id, post.extra, post.accepts)
        handler = listen_handler(self._handler, exchange, self._modern, self.followers) if listens else self._handler
        call = request.call(exchange, head.headers, head.peer)
        served = self._calls.run(exchange, run_call(handler, call, exchange), len(call.params), caller)
        # Cancellation: "Closing the SSE response stream MUST be treated by the server as cancellation". A subscription
        # has got its response, the stream, which ends it.
        if isinstance(served, asyncio.Task) and not listens:
            sink.on_gone(served.cancel)
        return served

    # -- authentication --------------------------------------------------------------------------------------------

    def require_authentication(self) -> None:
        """Requests are authenticated in front of the endpoint: show nothing at the paths that need no credentials."""
        self._authenticates = True

    def resource(self, path: bytes) -> str | None:
        """The path of the resource that a path belongs to; None if it needs no authentication."""
        known = self._resources.get(path)
        if known is not None or not len(self._custom) or path in self._paths:
            return known
        below = self._below_prefix(path)
        found = None if below is None else self._custom.find(below)
        # The same credentials as for calls.
        return None if found is None or found[0].public else self._prefix + self._successor

    def end_sessions(self, principal: str) -> None:
        """End the sessions of a principal whose credentials were revoked."""
        self.sessions.end_all_of(principal)

    # -- the rest --------------------------------------------------------------------------------------------------

    @property
    def draining(self) -> bool:
        """Whether new calls are rejected, because the server shuts down."""
        return self._calls.draining

    async def drain(self, seconds: float, hurried: asyncio.Event, *, replaced: bool = False) -> None:
        """Reject new calls; let running ones finish, and cancel the rest when the time is up."""
        await self._calls.drain(seconds, hurried, replaced=replaced)
