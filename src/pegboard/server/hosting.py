"""What a board and a gateway share: `run()` and `asgi()`."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from contextvars import ContextVar
from functools import cached_property
from importlib import import_module
from typing import Any, Final, TypeVar, Unpack

from pegboard import server
from pegboard.approvals.approval_store import Approvals
from pegboard.call import Handler, Json
from pegboard.errors import SetupError
from pegboard.limits import Limits
from pegboard.logs.log_lines import announce_lines, report_setup_error, set_up_logging
from pegboard.server.endpoint_names import APPROVALS, SIGN_IN
from pegboard.server.exchange.conversation import Conversation
from pegboard.server.exchange.service import Service
from pegboard.server.exchange.subscribers import Subscribers
from pegboard.server.serve import run, serve
from pegboard.server.serving_options import (
    MountOptions,
    ServingOptions,
    Transport,
    resolve_mount_options,
    resolve_options,
)
from pegboard.server.shared_store import ServedApp
from pegboard.stores.cluster import SharedStore

loading: Final[ContextVar[bool]] = ContextVar("loading", default=False)
"""Set while a target is imported: the program that imports it serves it, so a `run()` in the file does nothing."""

_log = logging.getLogger("pegboard")

_CLEANUP_SECONDS: Final = 1.0
MIN_TOKEN: Final = 16
"""The characters of a token that an author chooses for a link."""
_URL_SAFE: Final = re.compile(r"[A-Za-z0-9_-]+")

RouteFunction = TypeVar("RouteFunction", bound=Callable[..., Any])


class MemoryLine:
    """Serves one client; each message reaches the other end in a later turn of the event loop, in order."""

    full = False

    def __init__(
        self, handler: Handler, info: Mapping[str, Json], limits: Limits, receive: Callable[[bytes], None]
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._receive = receive
        self._is_open = True
        service = Service(handler, info, limits, Subscribers(limits.subscribers), "memory")
        self._server = _MemoryConversation(service, self, self._loop)

    def send(self, message: bytes) -> None:
        """Send a message of the client to the server."""
        self._deliver(self._server.receive, message)

    def write(self, message: bytes) -> None:
        """Send a message of the server to the client."""
        self._deliver(self._receive, message)

    async def drain(self) -> None:
        """Return at once: messages are delivered in memory."""

    async def close(self) -> None:
        """End the subscriptions and the running calls of the client."""
        self._is_open = False
        self._server.following.end()
        running = [task for task, _ in self._server.calls.values()]
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running, timeout=_CLEANUP_SECONDS)

    def _deliver(self, receive: Callable[[bytes], None], message: bytes) -> None:
        self._loop.call_soon(lambda: receive(message) if self._is_open else None)


class _MemoryConversation(Conversation):
    def receive(self, message: bytes) -> None:
        self._waiting.append(message)
        self.resume_if_room()


class Hosted(ServedApp):
    """A board or a gateway, with the methods that serve it."""

    approvals: Approvals
    shared_store: SharedStore | None = None
    _url = ""

    @cached_property
    def sign_in(self) -> server.SignIn:
        """Who uses the pages of this server; its own pages are served once a page asks for it, before `start`."""
        sign_in = server.SignIn(str(self.info["name"]), self.auth, self.routes)
        self.routes[SIGN_IN] = sign_in.accept
        return sign_in

    def serve_approvals(self) -> None:
        """Serve the pages where people approve calls: for rules that need them, before `start`."""
        if APPROVALS not in self.routes:
            self.routes[APPROVALS] = server.ApprovalPages(self.approvals, self.sign_in).accept
            if self.auth is None:
                # Made before workers are forked, so that all of them accept it.
                self.sign_in.link_token()
            self.listens_at(self._url)

    def listens_at(self, url: str) -> None:
        """It is served over HTTP at this URL: links to its pages begin with it, or with the public one."""
        self._url = url
        if APPROVALS in self.routes and self.pages_url:
            self.approvals.url = self.pages_url + APPROVALS

    @property
    def pages_url(self) -> str:
        """The URL that links to pages begin with: the public one, or where it listens; empty without HTTP."""
        if not self._url.startswith("http"):
            return ""
        public = "" if self.auth is None else self.auth.public_url
        return (public or self._url.removesuffix("/mcp")).rstrip("/")

    def approvals_link(self) -> str:
        """The link for the operator; without authentication, it signs in the user who started the server."""
        link = self.approvals.url
        return link if not link or self.auth is not None else f"{link}?token={self.sign_in.link_token()}"

    async def start_pages(self, shared: SharedStore | None) -> None:
        """Share what pages need with other processes."""
        self.shared_store = shared
        if "sign_in" in vars(self):
            await self.sign_in.start(shared)

    def route(
        self, path: str, *, methods: Iterable[str] = ("GET",), public: bool = False
    ) -> Callable[[RouteFunction], RouteFunction]:
        """Answer HTTP requests for a path with a function: `@board.route("/webhook", methods=["POST"])`.

        It takes an `HttpRequest` and returns text, bytes, a value that is sent as JSON, an `HttpResponse`, or None for 204.
        The checks of Host and Origin, the authentication and the limits are those of the MCP endpoint (docs/serving.md).

        path: the path, such as `/orders/{number}`; a part in braces is one of `request.path_params`.
        methods: the methods that it answers, of GET, POST, PUT, PATCH and DELETE.
        public: answer without authentication, on a server that authenticates callers.
        """

        def register(function: RouteFunction) -> RouteFunction:
            self.custom_routes.add(path, function, methods, public=public)
            return function

        return register

    def open_line(self, receive: Callable[[bytes], None]) -> MemoryLine:
        """Serve a client in this process over messages; `receive` is called with each message for it."""
        return MemoryLine(self.handler, self.info, self.limits, receive)

    def run(self, transport: Transport | None = None, /, **options: Unpack[ServingOptions]) -> None:
        """Serve until stopped: over stdio if stdin is a pipe, as when a client starts us, else over HTTP.

        `ServingOptions` lists the options, which are those of `pegboard run`. An option that is not given is read from
        its environment variable, such as `PEGBOARD_PORT`.
        """
        if self._is_ignored("run()"):
            return
        if asyncio._get_running_loop() is not None:
            raise RuntimeError(
                "run() starts an event loop of its own, but one is already running here; "
                f"write `await {type(self).__name__.lower()}.serve()`"
            )
        try:
            run(self, _resolve(transport, options))
        except SetupError as error:
            # The operator has to act on this message; a traceback would only hide it.
            report_setup_error(f"{self.info['name']}: {error}")
            sys.exit(2)

    async def serve(self, transport: Transport | None = None, /, **options: Unpack[ServingOptions]) -> None:
        """As `run()`, in the running event loop: `await board.serve("http", port=8000)`.

        It returns after SIGTERM, Ctrl+C or the end of stdin. Cancelling it stops the server gracefully, too.
        """
        if not self._is_ignored("serve()"):
            await serve(self, _resolve(transport, options))

    def _is_ignored(self, function: str) -> bool:
        """Whether another program imports the file that calls this, to serve it itself."""
        if loading.get():
            _log.warning(
                '%s: %s is ignored while the file is imported; put it under `if __name__ == "__main__":`',
                self.info["name"],
                function,
            )
        return loading.get()

    def asgi(
        self,
        *,
        path: str = "/mcp",
        ws: str | None = None,
        principal: server.PrincipalSource | None = None,
        console: bool | str = False,
        **options: Unpack[MountOptions],
    ) -> server.AsgiApp:
        """An ASGI application: `app.routes.append(board.asgi())`, or mounted, or served by itself.

        It serves `path` alone. `ws` is a path for WebSockets; `legacy_endpoints` adds deprecated endpoints next to `path`.
        `principal` says how the application around it has authenticated a request: "user" for `scope["user"]`, a function
        of the ASGI scope, or `Depends(…)` of FastAPI (docs/security.md). `console=True` serves the console next to `path`, to
        that principal, or by a link that the first request prints; a text is the token of the link (docs/console.md).
        `MountOptions` lists the other options. The first request opens the store, unless a lifespan did.
        """
        resolved = resolve_mount_options(options)
        if not console:
            return server.mount(self, path=path, ws=ws, options=resolved, principal=principal)
        token = console if isinstance(console, str) else None
        if token is not None and not (len(token) >= MIN_TOKEN and _URL_SAFE.fullmatch(token)):
            raise SetupError(
                f"asgi(console=…): the token needs at least {MIN_TOKEN} characters, each a letter, a digit, - or _; "
                "make one with secrets.token_urlsafe()"
            )
        is_alone = self.auth is None and principal is None
        # The modules of the console load only where it is served.
        module = import_module("pegboard.console.console")
        served = module.Console(module.subject_of(self), token=token, link=is_alone or token is not None)

        def announce_link(scope: server.AsgiScope) -> None:
            """Print the link of this launch; only for a server that other machines do not reach."""
            host, port = scope.get("server") or ("", None)
            if port is not None and server.is_loopback(host):
                root = scope.get("root_path", "").rstrip("/") + "/" + path.strip("/").rpartition("/")[0]
                mcp = f"{scope.get('scheme', 'http')}://{host}:{port}{root.rstrip('/')}/mcp"
                announce_lines([f"console of {self.info['name']}: {served.link(mcp)}"], essential=0)
            else:
                _log.warning(
                    "%s: the console stays locked, since other machines reach this server: pass `principal` or "
                    "`console=TOKEN` to asgi(), or `auth` to the board",
                    self.info["name"],
                )

        return server.mount(
            self,
            path=path,
            ws=ws,
            options=resolved,
            principal=principal,
            pages=self.routes,
            on_first=announce_link if is_alone and token is None else None,
        )


def _resolve(transport: Transport | None, options: ServingOptions) -> ServingOptions:
    """All options; logging is set up, unless the author did it."""
    if transport is not None:
        options["transport"] = transport
    resolved = resolve_options(options, os.environ)
    if not logging.root.handlers and not logging.getLogger("pegboard").handlers:
        set_up_logging(resolved["log_level"], resolved["log_format"])
    return resolved
