"""Mounts a board in another ASGI application.

Theory of operation. A route of another application is not notified when its server starts or ends. So the first of a
lifespan, `async with` or a request opens the store and starts the board, in a task that then only waits. A lifespan or the end of the block
ends the wait; without either, the loop cancels the task at its end. In each case the running calls finish first, then
the board's services, then the store. A later request opens it again.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, TypeAlias

from msgspec import Struct

from pegboard.errors import PegboardError, SetupError, StoreDown
from pegboard.server.asgi.asgi_app import AsgiApp
from pegboard.server.asgi.asgi_principal import PrincipalSource
from pegboard.server.asgi.asgi_scope import AsgiScope
from pegboard.server.endpoint_names import endpoint_paths, read_endpoint_names
from pegboard.server.http.addressed_endpoint import AddressedEndpoint
from pegboard.server.http.authenticated_endpoint import AuthenticatedEndpoint, ProtectedEndpoint, check_keys
from pegboard.server.http.guard import Guard
from pegboard.server.http_types import Route
from pegboard.server.serving_options import MountOptions
from pegboard.server.shared_store import ServedApp, clean_up, open_shared_store
from pegboard.server.streamable_http.mcp_endpoint import HttpEndpoint
from pegboard.stores.cluster import SharedStore
from pegboard.stores.memory import MemoryStore
from pegboard.stores.store_url import open_store

_log = logging.getLogger("pegboard")

_WORKERS: Final = re.compile(r"(?:^| )(?:--workers|-w)[= ]?([0-9]{1,4})(?= |$)")

MakeEndpoint: TypeAlias = Callable[[SharedStore | None], ProtectedEndpoint]
"""Creates a new endpoint: one that has ended accepts no more calls."""


class MountedServer(Struct, eq=False):
    """A mounted board or gateway: always open if it has nothing to open, else from the first request on."""

    served: ServedApp
    store: str
    in_memory: bool
    make_endpoint: MakeEndpoint
    _run: AppRun | None = None
    _open: ProtectedEndpoint | None = None

    @property
    def endpoint(self) -> ProtectedEndpoint | None:
        if self._open is not None:
            return self._open
        run = self._run
        # One loop may follow another, as in tests; a store belongs to one.
        return None if run is None or run.loop is not asyncio.get_running_loop() else run.endpoint

    async def open(self) -> ProtectedEndpoint:
        if self.in_memory and not self.served.opens and self._run is None:
            self._open = self._open or self.make_endpoint(None)
            return self._open
        run, loop = self._run, asyncio.get_running_loop()
        if run is None or run.loop is not loop:
            run = self._run = AppRun(loop)
            run.task = loop.create_task(self._serve_until_closed(run))
        # Concurrent requests wait for the same opening; one that is cancelled does not cancel it.
        return await asyncio.shield(run.opened)

    async def close(self) -> None:
        if (endpoint := self._open) is not None:
            # It refuses requests until it is closed; a later one opens a new endpoint.
            await drain_and_stop(self.served, endpoint)
            self._open = None
        run = self._run
        if run is not None and run.task is not None:
            run.leaving.set()
            await asyncio.wait({run.task})

    async def _serve_until_closed(self, run: AppRun) -> None:
        try:
            async with open_shared_store(self.store, self.served) as shared:
                run.endpoint = endpoint = self.make_endpoint(shared)
                run.opened.set_result(endpoint)
                try:
                    await run.leaving.wait()
                finally:
                    await drain_and_stop(self.served, endpoint)
        except PegboardError as problem:
            run.fail(problem)
        except Exception as problem:  # noqa: BLE001 — whatever fails, waiting requests get a response
            run.fail(SetupError(f"store: {type(problem).__name__}: {problem}"))
        finally:
            run.opened.cancel()
            if self._run is run:
                self._run = None


class AppRun:
    """The lifetime of a store, from opening to closing."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.task: asyncio.Task[None] | None = None
        self.endpoint: ProtectedEndpoint | None = None
        self.opened: asyncio.Future[ProtectedEndpoint] = loop.create_future()
        self.leaving = asyncio.Event()
        # All requests that waited for it may be gone.
        self.opened.add_done_callback(lambda opened: opened.cancelled() or opened.exception())

    def fail(self, problem: PegboardError) -> None:
        """It could not be opened or closed. The reason is for the operator; clients get no location."""
        _log.error("a mounted board cannot be opened: %s", problem)
        if not self.opened.done():
            refusal = StoreDown("The server cannot be opened; try again later", retry_after=5)
            refusal.__cause__ = problem
            self.opened.set_exception(refusal)


async def drain_and_stop(served: ServedApp, endpoint: ProtectedEndpoint) -> None:
    """Let the calls of an endpoint finish, then stop the board."""
    await endpoint.drain(served.limits.drain_seconds, asyncio.Event())
    await clean_up(served)


def mount(
    served: ServedApp,
    *,
    path: str,
    ws: str | None,
    options: MountOptions,
    principal: PrincipalSource | None = None,
    pages: Mapping[str, Route] | None = None,
    on_first: Callable[[AsgiScope], None] | None = None,
) -> AsgiApp:
    """An ASGI application of a board, with these pages next to the MCP endpoint."""
    guard = Guard(hosts=options["allow_host"], origins=options["cors"], mounted=True)
    legacy_endpoints = read_endpoint_names(options["legacy_endpoints"], "asgi(legacy_endpoints=…)")
    limits, store = served.limits, options["store"]
    name = "/" + path.strip("/").rpartition("/")[2]

    def make_endpoint(shared: SharedStore | None) -> ProtectedEndpoint:
        endpoint = HttpEndpoint(
            served.handler,
            served.info,
            limits=limits,
            guard=guard,
            legacy="sessions" if options["sessions"] == "on" else "sessionless",
            legacy_endpoints=legacy_endpoints,
            successor=name,
            websocket=ws is not None,
            direct_methods=options["direct_methods"],
            shared=shared,
            parts=served.readiness,
            custom_routes=served.custom_routes,
            on_session_end=served.end_session,
            accounts=served.accounts,
            routes=pages,
        )
        served.endpoints_served.add(endpoint)
        if served.auth is None:
            return AddressedEndpoint(endpoint, guard) if served.accounts.by_address else endpoint
        check_keys(served.auth, shared, 'asgi(store="sqlite:PATH")')
        return AuthenticatedEndpoint(endpoint, served.auth, guard, str(served.info["name"]))

    # A wrong address is reported now; the store itself is opened where it is used, because servers may fork.
    # An authentication that asks issuers is opened there as well.
    in_memory = isinstance(open_store(store, limits), MemoryStore)
    if in_memory and options["sessions"] == "on" and _has_replicas(sys.argv, os.environ):
        _log.warning(
            "%s is mounted without a store in an application with several processes: sessions of clients before "
            '2026-07-28 are lost, and questions fail; use asgi(store="sqlite:PATH") or asgi(store="redis://HOST")',
            served.info["name"],
        )

    def begin(scope: AsgiScope) -> None:
        guard.allow_origins(_framework_origins(scope))
        if on_first is not None:
            on_first(scope)

    return AsgiApp(
        MountedServer(served, store, in_memory, make_endpoint),
        limits,
        path=path,
        siblings=endpoint_paths(legacy_endpoints),
        unrouted=("/health", "/ready"),
        custom=served.custom_routes,
        socket_path=ws,
        pages=() if pages is None else pages,
        principal=principal,
        optional=served.auth is not None,
        on_first=begin,
    )


def _has_replicas(words: Sequence[str], environ: Mapping[str, str]) -> bool:
    """Whether uvicorn, gunicorn or hypercorn was started with several workers; their workers keep the command line."""
    found = _WORKERS.search(" ".join(words))
    count = found[1] if found is not None else environ.get("WEB_CONCURRENCY", "")
    return count.isdecimal() and int(count) > 1


def _framework_origins(scope: AsgiScope) -> Iterator[str]:
    """The origins that the CORS middleware of the FastAPI or Starlette application lists."""
    for middleware in getattr(scope.get("app"), "user_middleware", ()):
        if middleware.cls.__name__ == "CORSMiddleware":
            yield from middleware.kwargs.get("allow_origins", ())
