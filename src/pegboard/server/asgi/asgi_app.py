"""The endpoint as an ASGI application.

A response that does not wait is sent from the ASGI server's own task. Otherwise that task sends what the endpoint
streams, with the server's speed as back-pressure, while a second task watches for a disconnect.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Collection, Coroutine, Iterable
from functools import lru_cache
from typing import Any, Final, Protocol, Self

from msgspec import Struct
from msgspec.structs import replace

from pegboard.auth.request_credentials import WELL_KNOWN
from pegboard.errors import PegboardError, StoreDown
from pegboard.limits import Limits
from pegboard.server.access import Access
from pegboard.server.asgi.asgi_principal import PrincipalSource, find_principal, read_source, rejection
from pegboard.server.asgi.asgi_scope import AsgiScope, HeadCache, strip_root
from pegboard.server.asgi.asgi_sink import AsgiSink, Event, Send, check_headers
from pegboard.server.asgi.asgi_websocket import Receive, reject_websocket, serve_websocket
from pegboard.server.eager_task import start
from pegboard.server.http.authenticated_endpoint import AuthenticatedEndpoint, ProtectedEndpoint
from pegboard.server.http.custom_routes import CustomRoutes
from pegboard.server.http.responses import body_too_large, error_response, internal_error
from pegboard.server.http_types import Answer, Endpoint, Head, Sink, Upgrade

PAGE_SECONDS: Final = 60.0
"""How long a page may follow events before the application is asked again who its visitor is."""
NO_WEBSOCKET: Final = Answer(404, b"WebSockets are not served here.\n", b"text/plain; charset=utf-8")


class MountedApp(Protocol):
    """Where an application gets its endpoint from."""

    @property
    def endpoint(self) -> Endpoint | None:
        """None if it has to be opened first."""

    async def open(self) -> Endpoint:
        """Open it, if it is not; raises StoreDown if that is not possible now."""

    async def close(self) -> None:
        """Close it gracefully; it can be opened again."""


class UnavailableEndpoint(Struct, frozen=True):
    """Replaces an endpoint that could not be opened, and responds with the error."""

    answer: Answer

    def accept(self, head: Head, body: bytes, sink: Sink) -> Answer:
        return self.answer


class AsgiApp:
    """One endpoint as an ASGI application, and as a route of Starlette and FastAPI.

    It serves `path`, and its mount point if a framework has removed that from the path; with and without a trailing
    slash. `siblings` are further paths of the endpoint next to `path`, as are `custom` routes; `socket_path` accepts WebSockets. A framework
    that redirects to add a slash does so before a mounted application is called, so add this one to the list of routes
    instead of mounting it. As a route, `siblings` yield to other routes, and `unrouted` paths are left to them.

    `async with` opens the endpoint before the first request, and closes it. `on_first` is called with the scope of the
    first request. `principal` says who sends a request; one without a principal is rejected, unless that is `optional`
    because the endpoint authenticates it. `pages` are the first parts of further paths, next to `path`: people without a
    principal sign in there.
    """

    def __init__(
        self,
        app: MountedApp,
        limits: Limits,
        *,
        path: str = "/mcp",
        siblings: Iterable[str] = (),
        unrouted: Iterable[str] = (),
        custom: CustomRoutes | None = None,
        socket_path: str | None = None,
        pages: Collection[str] = (),
        on_first: Callable[[AsgiScope], None] | None = None,
        principal: PrincipalSource | None = None,
        optional: bool = False,
    ) -> None:
        self._app = app
        self._on_first = on_first
        self._limits = limits
        self._identify = None if principal is None else read_source(principal)
        self._optional = optional
        self.path = "/" + path.strip("/")
        base = self.path.rpartition("/")[0]
        ours = dict.fromkeys(_both(self.path), b"/mcp")
        sockets = {} if socket_path is None else dict.fromkeys(_both("/" + socket_path.strip("/")), b"/ws")
        more = {base + sibling: sibling.encode() for sibling in siblings} | sockets
        described = {WELL_KNOWN + self.path: WELL_KNOWN.encode() + b"/mcp", WELL_KNOWN: WELL_KNOWN.encode() + b"/mcp"}
        described |= {WELL_KNOWN + at: WELL_KNOWN.encode() + sibling for at, sibling in more.items()}
        places = {base + sibling: sibling.encode() for sibling in unrouted} | described | more | ours
        self._places = {"http": frozenset(ours), "websocket": frozenset(sockets)}
        self._siblings = {"http": frozenset((*more, *described))}
        mounted = {**places, "": b"/mcp", "/": b"/mcp"}
        self._custom = CustomRoutes() if custom is None else custom
        self._pages = pages
        self._base = base
        self._heads = HeadCache(places, mounted, limits, base, self._locate)

    def _locate(self, path: str) -> bytes:
        """The endpoint's path of a page or a custom route, which may have been added after the application was made."""
        if not path.startswith(self._base + "/"):
            return b""
        rest = path[len(self._base) :]
        return rest.encode("utf-8", "replace") if self._is_page(rest) else self._custom.locate(rest) or b""

    def _is_page(self, path: str) -> bool:
        return bool(self._pages) and "/" + path[1:].partition("/")[0] in self._pages

    async def __call__(  # noqa: C901 - each coroutine on the path of a call costs time
        self, scope: AsgiScope, receive: Receive, send: Send
    ) -> None:
        if self._on_first is not None:
            self._first(scope)
        if scope["type"] != "http":
            await self._handle_other(scope, receive, send)
            return
        head = self._heads.find(scope)
        endpoint = self._app.endpoint or await self._open()
        # Types of structs are compared directly: `isinstance` takes five times as long for another type.
        if type(head) is Head and (self._identify or isinstance(endpoint, AuthenticatedEndpoint)):
            head = await self._admit(endpoint, scope, head)
        if type(head) is Answer:
            await send_refusal(send, scope["method"], head)
            return
        event = await receive()
        body: Any = event.get("body", b"")
        if event.get("more_body") or event["type"] != "http.request" or len(body) > self._limits.body_bytes:
            body = await read_body(event, receive, self._limits.body_bytes)
        if not isinstance(body, bytes):
            await send_refusal(send, scope["method"], body)
            return
        sink = AsgiSink(self._limits, head.method == b"HEAD")
        try:
            answer = endpoint.accept(head, body, sink)
            if type(answer) is Answer:
                if answer.headers:
                    check_headers(answer.headers)
            elif type(answer) is Upgrade:
                raise RuntimeError("only an upgrade to WebSocket is supported")
            else:
                answer = await complete_request(answer, sink, receive, send)
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # noqa: BLE001 - whatever a call raises, SystemExit too, ends that call alone
            answer = internal_error(error)
        if answer is not None and not sink.started and not sink.gone:
            await send(write_start(answer))
            await send({"type": "http.response.body", "body": b"" if sink.bodyless else answer.body})

    def _first(self, scope: AsgiScope) -> None:
        if self._on_first is not None and scope["type"] != "lifespan":
            self._on_first(scope)
            self._on_first = None

    async def _admit(self, endpoint: Endpoint, scope: AsgiScope, head: Head) -> Head | Answer:
        """Authenticate the sender of a request, before its body is read."""
        is_page = self._is_page(head.path.decode("latin-1"))
        if self._identify is not None and (is_page or not _needs_no_principal(endpoint, head)):
            found = await find_principal(self._identify, scope)
            if isinstance(found, Answer):
                return found
            if found is not None:
                # Heads are cached, and the same head may have another principal next time. An open page asks again.
                until = time.monotonic() + PAGE_SECONDS if is_page else math.inf
                return replace(head, access=Access(found, until), verdict=None)
            if not self._optional and not is_page:
                return rejection()
        if isinstance(endpoint, AuthenticatedEndpoint) and head.access.until <= time.monotonic():
            refused = endpoint.admit(head)
            answer = refused if refused is None or isinstance(refused, Answer) else await refused
            return head if answer is None else answer
        return head

    async def _open(self) -> Endpoint:
        try:
            return await self._app.open()
        except StoreDown as refusal:
            return UnavailableEndpoint(error_response(refusal, ()))

    async def __aenter__(self) -> Self:
        await self._app.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Let running calls finish, and close what was opened; a later request opens it again."""
        await self._app.close()

    async def _handle_other(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        """Handle events that are not requests."""
        kind = scope["type"]
        if kind == "lifespan":
            await run_lifespan(receive, send, self._app)
        elif kind == "websocket":
            await self._handle_websocket(scope, receive, send)
        else:
            raise RuntimeError(f"this application supports http and WebSockets, not {kind}")

    async def _handle_websocket(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        await receive()
        answer: Answer | Upgrade = NO_WEBSOCKET
        if strip_root(scope) in self._places["websocket"]:
            head = self._heads.find(as_request(scope))
            answer = head if isinstance(head, Answer) else await self._start_request(scope, head)
        if isinstance(answer, Upgrade):
            await serve_websocket(answer, scope, receive, send, self._limits)
        else:
            await reject_websocket(scope, send, answer)

    async def _start_request(self, scope: AsgiScope, head: Head) -> Answer | Upgrade:
        endpoint = self._app.endpoint or await self._open()
        admitted = await self._admit(endpoint, scope, head)
        if isinstance(admitted, Answer):
            return admitted
        served: Any = endpoint.accept(admitted, b"", AsgiSink(self._limits))
        if isinstance(served, Coroutine | asyncio.Task):
            # The authentication waits for another server.
            served = await served
        return served if isinstance(served, Answer | Upgrade) else NO_WEBSOCKET

    # The interface of a route in Starlette.

    def matches(self, scope: AsgiScope) -> tuple[Any, AsgiScope]:
        """Whether a request is for this application, in Starlette's terms."""
        from starlette.routing import Match  # noqa: PLC0415 - only Starlette asks, and then it is there

        path, kind = strip_root(scope), scope["type"]
        if path in self._places.get(kind, ()):
            return Match.FULL, {}
        # An optional endpoint must not shadow a route of the application itself.
        beside = path in self._siblings.get(kind, ()) or (kind == "http" and self._locate(path))
        return (Match.PARTIAL if beside else Match.NONE), {}

    async def handle(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        await self(scope, receive, send)

    def url_path_for(self, name: str, /, **path_params: Any) -> Any:
        """URLs cannot be built by name."""
        from starlette.routing import NoMatchFound  # noqa: PLC0415 - only Starlette asks, and then it is there

        raise NoMatchFound(name, path_params)


def _needs_no_principal(endpoint: Endpoint, head: Head) -> bool:
    """Whether a path is public, such as that of a health probe."""
    return isinstance(endpoint, ProtectedEndpoint) and endpoint.resource(head.path) is None


def _both(path: str) -> tuple[str, str]:
    """A path with and without a trailing slash."""
    return path, path.rstrip("/") + "/"


def as_request(scope: AsgiScope) -> AsgiScope:
    """The handshake request of a WebSocket, as HTTP/1.1 has it."""
    headers = [*scope["headers"]]
    if all(name != b"upgrade" for name, _ in headers):
        headers.append((b"upgrade", b"websocket"))
    scheme = "https" if scope.get("scheme") == "wss" else "http"
    return {**scope, "method": "GET", "scheme": scheme, "headers": headers}


async def read_body(event: Event, receive: Receive, limit: int) -> bytes | Answer | None:
    """The whole body that starts with this event, an error if it is too large, None if the client disconnects."""
    # One buffer: a list of pieces of two bytes would take twenty times as much memory.
    body = bytearray(event.get("body", b""))
    while event["type"] == "http.request":
        if len(body) > limit:
            return body_too_large(limit)
        if not event.get("more_body"):
            return bytes(body)
        event = await receive()
        body += event.get("body", b"")
    return None


async def send_refusal(send: Send, method: str, answer: Answer | None) -> None:
    """Send an error response; None if the client has disconnected."""
    if answer is None:
        return
    await send(write_start(answer))
    await send({"type": "http.response.body", "body": b"" if method == "HEAD" else answer.body})


# Formatting a number costs more than finding it, and most responses are short.
@lru_cache(maxsize=1024)
def _length_field(length: int) -> tuple[bytes, bytes]:
    return b"content-length", b"%d" % length


def write_start(answer: Answer) -> Event:
    """The event that starts a whole response."""
    headers = [(b"content-type", answer.content_type), _length_field(len(answer.body)), *answer.headers]
    if answer.close:
        headers.append((b"connection", b"close"))
    return {"type": "http.response.start", "status": answer.status, "headers": headers}


async def complete_request(
    outcome: asyncio.Task[Answer | None] | Coroutine[Any, Any, Answer | None] | None,
    sink: AsgiSink,
    receive: Receive,
    send: Send,
) -> Answer | None:
    """Complete a request that was not answered at once."""
    if outcome is None:
        outcome = stream_on()
    task = outcome if isinstance(outcome, asyncio.Task) else start(outcome, loop=asyncio.get_running_loop())
    whole = task.done() and not sink.started and not task.cancelled()
    try:
        answer = task.result() if whole else await await_call(task, sink, receive, send)
    finally:
        # Drop the callback, so that no reference cycle waits for the garbage collector.
        sink.callbacks = ()
    if answer is None and not sink.started and not sink.gone:
        raise RuntimeError("a request ended without a response")
    if answer is not None:
        check_headers(answer.headers)
    return answer


async def stream_on() -> None:
    """Finish the stream of a call that has ended."""


async def await_call(task: asyncio.Task[Answer | None], sink: AsgiSink, receive: Receive, send: Send) -> Answer | None:
    """Complete a call that waits or streams; None if it has streamed, was cancelled or lost its client."""
    if not task.done():
        # Before Python 3.12, a task takes its first step here.
        await asyncio.sleep(0)
    if not task.done() or (sink.started and not sink.ended):
        await send_stream(task, sink, receive, send)
    else:
        await sink.deliver(send)
    # The call's cancellation must not be taken for that of the server's task.
    return None if task.cancelled() else task.result()


async def send_stream(task: asyncio.Task[Answer | None], sink: AsgiSink, receive: Receive, send: Send) -> None:
    """Send the endpoint's stream until it is complete or the client disconnects; returns when the task has ended."""
    watcher = start(watch(receive, sink), loop=asyncio.get_running_loop())
    task.add_done_callback(lambda _: sink.wake())
    try:
        while not sink.gone:
            await sink.deliver(send)
            if sink.ended or (task.done() and not sink.open_after(task)):
                break
            await sink.rest()
        await asyncio.wait({task})
    except asyncio.CancelledError:
        task.cancel()
        sink.leave()
        raise
    finally:
        watcher.cancel()


async def watch(receive: Receive, sink: AsgiSink) -> None:
    """Tell the sink when the client disconnects."""
    while (await receive())["type"] != "http.disconnect":
        pass
    sink.leave()


async def run_lifespan(receive: Receive, send: Send, app: MountedApp) -> None:
    """Follow the server's lifespan events."""
    while True:
        kind = (await receive())["type"]
        try:
            await (app.close() if kind == "lifespan.shutdown" else app.open())
        except PegboardError as problem:
            await send({"type": kind + ".failed", "message": str(problem.__cause__ or problem)})
            return
        await send({"type": kind + ".complete"})
        if kind == "lifespan.shutdown":
            return
