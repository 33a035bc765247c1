"""The MCP endpoint over HTTP, free of any connection: a Head and a body in, an Answer or a stream out.

The era is chosen per request, as the spec's table for dual-era servers says: a body that carries a modern `_meta`, or
a version header that is no legacy revision, is served statelessly; everything else is legacy and needs a session,
which `initialize` opens.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from typing import Final, Literal, TypeAlias

import msgspec
from msgspec import UNSET

from pegboard.call import Call, Handler, Json
from pegboard.errors import HeaderMismatch, InvalidRequest, Refusal, UnsupportedVersion
from pegboard.limits import Limits
from pegboard.protocol import headers as mcp
from pegboard.protocol import jsonrpc
from pegboard.protocol.jsonrpc import Message
from pegboard.protocol.modern import Modern
from pegboard.protocol.params import Params, read_params
from pegboard.protocol.versions import MODERN, SUPPORTED
from pegboard.sessions.relay import Relay
from pegboard.sessions.sessions import Sessions
from pegboard.stores.crew import Shared
from pegboard.stores.store import Store
from pegboard.transports.calls import Calls
from pegboard.transports.channels import HttpExchange, conduct
from pegboard.transports.door import Answer, Head, Headers, Served, Sink, Upgrade
from pegboard.transports.followers import Followers
from pegboard.transports.following import LISTEN, HttpListen
from pegboard.transports.guard import Guard
from pegboard.transports.incoming import ModernCallers, check_method, is_modern, make_call, subject
from pegboard.transports.legacy_doors import LegacyDoors
from pegboard.transports.legacy_http import LegacyHttp
from pegboard.transports.posts import Post, read_post
from pegboard.transports.refusals import not_allowed, refused, said
from pegboard.transports.sessionless import LegacyHalf, Refused, Sessionless
from pegboard.transports.shortcut import CALL, PlainCall, Shortcut
from pegboard.transports.sockets import SocketDoor
from pegboard.transports.stateless import Stateless
from pegboard.watchdog import TALLY

# What holds now may not hold a moment later.
_FRESH: Final[Headers] = ((b"cache-control", b"no-store"),)

LegacyMode: TypeAlias = Literal["sessions", "sessionless", "refused"]
"""How clients of the older revisions are served: in sessions, without, or not at all."""


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
        store: Store | None = None,
        shared: Shared | None = None,
        legacy: LegacyMode = "sessions",
        loop: asyncio.AbstractEventLoop | None = None,
        legacy_doors: Collection[str] = (),
        successor: str = "/mcp",
        websocket: bool = True,
    ) -> None:
        self._handler = handler
        self._limits = limits
        self._guard = guard
        self._modern = Modern(info)
        self.sessions = Sessions(limits, logs=None if store is None else store.logs)
        self._calls = Calls(limits, self.sessions.reap, loop, self.sessions.__len__)
        self.calls = self._calls.running
        self.followers = Followers(limits.followers, self._calls, limits.all_followed_uri_bytes)
        self._callers = ModernCallers("http")
        self._read_plain = Shortcut(limits, self._callers).read
        self._legacy = self._make_legacy(legacy, info, shared)
        doors = LegacyDoors(
            handler,
            info,
            limits,
            guard,
            self._calls,
            self.followers,
            self._callers,
            prefix=prefix,
            which=legacy_doors,
            successor=successor,
            crew=None if shared is None else shared.crew,
            apart=legacy == "refused",
        )
        sockets = SocketDoor(handler, info, limits, guard, self._calls, self.followers)
        self._paths: dict[bytes, Callable[[Head, bytes, Sink], Served | Upgrade]] = {
            **doors.routes,
            **({(prefix + path).encode(): sockets.accept for path in ("/ws", "/ws/")} if websocket else {}),
            **{(prefix + path).encode(): self._mcp for path in paths},
            (prefix + "/health").encode(): self._health,
            (prefix + "/ready").encode(): self._ready,
        }
        self._where = ", ".join(prefix + path for path in paths[:1])

    def _make_legacy(self, mode: LegacyMode, info: Mapping[str, Json], shared: Shared | None) -> LegacyHalf:
        handler, limits, calls = self._handler, self._limits, self._calls
        if mode == "refused":
            return Refused()
        if mode == "sessionless":
            return Sessionless(Stateless(handler, info, limits, calls, self._callers), limits, calls)
        relay: Relay | None = None
        if shared is not None:
            self.sessions.share(shared)
            relay = Relay(shared.crew, self.sessions, self.followers.wake)
        return LegacyHttp(handler, info, limits, self.sessions, calls, self.followers, relay)

    def accept(self, head: Head, body: bytes, sink: Sink) -> Served | Upgrade:
        """Route a request by its path; one whose head is known goes straight to its message."""
        post: Post | None = head.verdict
        if post is not None:
            return self._call(post, head, body, sink) if post.plain else self._post(post, head, body, sink)
        route = self._paths.get(head.path)
        if route is None:
            return said(404, f"Nothing is served at this path; the MCP endpoint is {self._where}")
        return route(head, body, sink)

    def _health(self, head: Head, body: bytes, sink: Sink) -> Answer:
        if head.method != b"GET":
            return not_allowed(b"GET")
        told: dict[str, Json] = {"status": "ok"}
        if TALLY.watchers:
            told["stalls"] = {"count": TALLY.count, "longest_seconds": round(TALLY.longest, 3)}
        return Answer(200, msgspec.json.encode(told), headers=_FRESH)

    def _ready(self, head: Head, body: bytes, sink: Sink) -> Answer:
        if head.method != b"GET":
            return not_allowed(b"GET")
        if self.draining:
            return Answer(503, b'{"status":"draining"}', headers=_FRESH)
        return Answer(200, b'{"status":"ready"}', headers=_FRESH)

    def _mcp(self, head: Head, body: bytes, sink: Sink) -> Served:
        allowed = self._guard.check(head)
        if isinstance(allowed, Answer):
            return allowed
        try:
            match head.method:
                case b"POST":
                    post = head.verdict = read_post(head.headers, allowed)
                    return self._call(post, head, body, sink) if post.plain else self._post(post, head, body, sink)
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

    def _call(self, post: Post, head: Head, body: bytes, sink: Sink) -> Served:
        """What is most likely a plain call."""
        plain: PlainCall | None = None
        try:
            plain = self._read_plain(body)
            if plain is None:
                return self._post(post, head, body, sink)
            caller = plain.caller
            if caller is None or not post.stateless or plain.name != post.about:
                if caller is None and not post.stateless:
                    return self._legacy.call(post, plain, sink)
                return self._post(post, head, body, sink)
            exchange = HttpExchange(sink, self._modern, plain.id, post.extra, post.accepts)
            call = Call(
                method=CALL,
                caller=caller,
                channel=exchange,
                id=plain.id,
                name=plain.name,
                raw=plain.arguments,
                params=plain.params,
                headers=head.headers,
            )
            served = self._calls.run(exchange, conduct(self._handler, call, exchange))
        except Refusal as refusal:
            if plain is not None:
                refusal.request_id = plain.id
            return self._refuse(refusal, post)
        if isinstance(served, asyncio.Task):
            sink.on_gone(served.cancel)
        return served

    def _post(self, post: Post, head: Head, body: bytes, sink: Sink) -> Served:
        message: Message | None = None
        try:
            if jsonrpc.is_batch(body):
                return self._legacy.batch(head, body, sink, post.extra, post.accepts)
            message = jsonrpc.read(body, self._limits)
            params = read_params(message)
            if post.stateless or is_modern(params):
                return self._serve_modern(post, head, message, params, sink)
            return self._legacy.post(head, message, params, sink, post.extra, post.accepts)
        except Refusal as refusal:
            if message is not None and message.id is not UNSET:
                refusal.request_id = message.id
            return self._refuse(refusal, post)

    def _refuse(self, refusal: Refusal, post: Post) -> Answer:
        """A message that could not become a call; in a session the answer to it names that, as all there do."""
        within = post.session and not post.stateless and self.sessions.has(post.session, "")
        return refused(refusal, post.within if within else post.extra)

    def _serve_modern(self, post: Post, head: Head, message: Message, params: Params, sink: Sink) -> Served:
        method, request_id, version = message.method, message.id, post.version
        if method is UNSET:
            # "The client MUST NOT send JSON-RPC responses" (Sending Messages, 4)
            raise InvalidRequest("A client of this revision sends no responses: retry the request with inputResponses")
        if request_id is UNSET:
            if version is not None and version != MODERN:
                raise UnsupportedVersion(version, SUPPORTED)
            return Answer(202, headers=post.extra)
        caller, token = self._callers.read(params, version)
        if version is None:
            raise HeaderMismatch(f"Header mismatch: the MCP-Protocol-Version header is missing; send {caller.version}")
        about = subject(method, params)
        if method != post.method or about != post.about:
            mcp.check_mirror(head.headers, method, about)
        check_method(method, MODERN)
        listens = method == LISTEN
        if not listens:
            exchange = HttpExchange(sink, self._modern, request_id, post.extra, post.accepts)
        elif post.accepts.stream:
            exchange = HttpListen(sink, self._modern, request_id, post.extra, post.accepts, followers=self.followers)
        else:
            return said(406, f"{method} is answered by a stream: Accept must allow text/event-stream", post.extra)
        call = make_call(method, request_id, about, message, params, caller, exchange, token, head.headers)
        served = self._calls.run(exchange, conduct(self._handler, call, exchange))
        # Cancellation: "Closing the SSE response stream MUST be treated by the server as cancellation". Who listens has
        # come to its answer, the stream, and is told by it.
        if isinstance(served, asyncio.Task) and not listens:
            sink.on_gone(served.cancel)
        return served

    # -- the rest --------------------------------------------------------------------------------------------------

    @property
    def draining(self) -> bool:
        """Whether no new calls are taken, because we end."""
        return self._calls.draining

    async def drain(self, seconds: float, hurried: asyncio.Event) -> None:
        """Take no new calls; let those under way come to their answers, and cancel the rest when time is up."""
        await self._calls.drain(seconds, hurried)
