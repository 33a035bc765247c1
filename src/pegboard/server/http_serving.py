"""Serves HTTP until stopped: the checks of its options, the sockets, the workers, and the order of shutdown."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import Callable, Sequence

from pegboard.call import Handler
from pegboard.errors import SetupError
from pegboard.limits import Limits
from pegboard.logs.log_lines import announce_lines
from pegboard.server.debugging import set_up_debug
from pegboard.server.endpoint_names import read_endpoint_names
from pegboard.server.event_loop import drain_seconds, run_until_stopped, serve_until_stopped
from pegboard.server.http.addressed_endpoint import AddressedEndpoint
from pegboard.server.http.authenticated_endpoint import AuthenticatedEndpoint, ProtectedEndpoint, check_keys
from pegboard.server.http.guard import Guard, is_loopback
from pegboard.server.http.listener import Http1Server, WorkerSockets
from pegboard.server.overseer import Overseer
from pegboard.server.serving_options import ServingOptions, check_workers
from pegboard.server.shared_store import ServedApp, clean_up, open_shared_store
from pegboard.server.shutdown import GRACE_SECONDS, NoExit, Stop
from pegboard.server.streamable_http.endpoint_router import EndpointRouter
from pegboard.server.streamable_http.mcp_endpoint import HttpEndpoint, LegacyMode
from pegboard.server.worker_process import WorkerControl
from pegboard.stores.cluster import SharedStore
from pegboard.stores.namespaced_store import namespaced
from pegboard.stores.store_url import open_store

_log = logging.getLogger("pegboard")

_CLEANUP_SECONDS = 1.0
_WILDCARDS = ("0.0.0.0", "::")  # noqa: S104 — compared, not bound


def _is_public(options: ServingOptions) -> bool:
    """Whether other machines can reach the server."""
    return options["uds"] is None and not is_loopback(options["host"])


def _check(served: ServedApp, options: ServingOptions) -> None:
    host, port, prefix = options["host"], options["port"], options["path_prefix"]
    public = _is_public(options)
    if public and not options["public"]:
        raise SetupError(
            f"--host {host} is reachable from other machines; add --public to allow that, or omit --host to stay on this "
            "machine"
        )
    if public and served.auth is None and not options["no_auth"]:
        raise SetupError(
            f"--host {host} is reachable from other machines, and every caller could use every tool: configure "
            "authentication (docs/security.md), or add --no-auth if a proxy in front authenticates callers"
        )
    if served.auth is not None and options["no_auth"]:
        raise SetupError("--no-auth contradicts the authentication that is configured: remove one of them")
    if not 0 <= port <= 65535:
        raise SetupError(f"--port {port} is not a port; choose one from 0 (any free one) to 65535")
    if (options["tls_cert"] is None) != (options["tls_key"] is None):
        raise SetupError("--tls-cert and --tls-key go together: set both or neither")
    if prefix and not prefix.startswith("/"):
        raise SetupError(f"--path-prefix must start with a slash: /{prefix}")
    _legacy_endpoints(options)


def _legacy_endpoints(options: ServingOptions) -> tuple[str, ...]:
    return read_endpoint_names(options["legacy_endpoints"], "--legacy-endpoints")


def _tls(options: ServingOptions) -> ssl.SSLContext | None:
    cert, key = options["tls_cert"], options["tls_key"]
    if cert is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(cert, key)
    except (OSError, ssl.SSLError) as error:
        raise SetupError(f"--tls-cert {cert} or --tls-key {key} cannot be used: {error}") from None
    return context


def _on_ready(
    served: ServedApp, options: ServingOptions, url: str, on_ready: Callable[[str], None] | None
) -> Callable[[], None]:
    served.listens_at(_reachable(url, options["host"]))

    def ready() -> None:
        if on_ready is None:
            announce_lines([f"{served.info['name']}: serving HTTP at {url}"])
        else:
            on_ready(url)
        if options["workers"] > 1 and options["sessions"] == "on" and options["store"] == "memory":
            _log.warning(
                "%d workers without a store: clients before 2026-07-28 are rejected; add --store sqlite:PATH or "
                "redis://HOST, or --sessions off to serve them statelessly",
                options["workers"],
            )
        if options["uds"] is None and not is_loopback(options["host"]):
            _announce_public(served, options, url)

    return ready


def _announce_public(served: ServedApp, options: ServingOptions, url: str) -> None:
    """What the operator of a server that others can reach has to know."""
    real = _reachable(url, options["host"])
    if real != url:
        announce_lines([f"Other machines reach it at {real}"])
    if served.auth is None:
        _log.warning("There is no authentication: everyone who can reach this address can use everything it serves")
    if not options["allow_host"]:
        announce_lines(["Clients must use an IP address in the URL; to allow a host name, add --allow-host NAME"])


def _reachable(url: str, host: str) -> str:
    """The URL by which other machines reach a server that listens on all addresses."""
    found = _own_address(host) if host in _WILDCARDS else ""
    return (
        url.replace(f"[{host}]" if ":" in host else host, f"[{found}]" if ":" in found else found, 1) if found else url
    )


def _own_address(wildcard: str) -> str:
    """The address of this machine in the network, as its default route has it; nothing if there is none."""
    family, elsewhere = (socket.AF_INET6, "2001:db8::1") if ":" in wildcard else (socket.AF_INET, "192.0.2.1")
    # Connecting a datagram socket sends nothing.
    with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect((elsewhere, 9))
        return str(probe.getsockname()[0])
    return ""


def run_http(served: ServedApp, options: ServingOptions, on_ready: Callable[[str], None] | None) -> None:
    """Serve in this process, or fork worker processes and oversee them."""
    _check(served, options)
    # Report wrong options before anything starts.
    _tls(options)
    open_store(options["store"], served.limits)
    workers = options["workers"]
    places = WorkerSockets(workers, options["host"], options["port"], options["uds"])
    url = address(options, places.port)

    ready = _on_ready(served, options, url, on_ready)
    seconds_to_drain = drain_seconds(served, options)

    def work(place: int, control: WorkerControl) -> None:
        _serve_worker(served, options, places.take(place), control, control.ready)

    try:
        if workers == 1:
            sockets = places.take(0)
            run_until_stopped(
                served, lambda timer: _serve_http(served, options, Stop(timer), sockets, ready), seconds_to_drain
            )
        else:
            Overseer(workers, work, places, end_seconds=_end_seconds(seconds_to_drain), on_ready=ready).run()
    finally:
        places.close()


async def serve_http(served: ServedApp, options: ServingOptions) -> None:
    """Serve in the running event loop."""
    _check(served, options)
    _tls(options)
    places = WorkerSockets(1, options["host"], options["port"], options["uds"])
    try:
        stop = Stop(NoExit(drain_seconds(served, options)))
        ready = _on_ready(served, options, address(options, places.port), None)
        await serve_until_stopped(stop, served, _serve_http(served, options, stop, places.take(0), ready))
    finally:
        places.close()


def _end_seconds(seconds_to_drain: float) -> float:
    """How long a worker may take to end."""
    return seconds_to_drain + GRACE_SECONDS + _CLEANUP_SECONDS


def end_seconds(options: ServingOptions) -> float:
    """How long a worker may take to end, before it is known what it serves."""
    return _end_seconds(Limits().drain_seconds if options["drain"] is None else options["drain"])


def serve_in_worker(
    served: ServedApp,
    options: ServingOptions,
    sockets: Sequence[socket.socket],
    control: WorkerControl,
    on_ready: Callable[[], object],
    *,
    is_first: bool,
) -> None:
    """Serve what this worker has loaded itself, until its parent orders it to stop or to leave."""
    check_workers(options, served.places)
    set_up_debug(served, options, warn=is_first)
    _check(served, options)
    _serve_worker(served, options, sockets, control, on_ready)


def _serve_worker(
    served: ServedApp,
    options: ServingOptions,
    sockets: Sequence[socket.socket],
    control: WorkerControl,
    on_ready: Callable[[], object],
) -> None:
    run_until_stopped(
        served,
        lambda timer: _serve_http(served, options, Stop(timer, control), sockets, on_ready, control),
        drain_seconds(served, options),
    )


async def _serve_http(
    served: ServedApp,
    options: ServingOptions,
    stop: Stop,
    sockets: Sequence[socket.socket],
    on_ready: Callable[[], object],
    control: WorkerControl | None = None,
) -> None:
    async with open_shared_store(options["store"], served) as shared:
        endpoint = make_endpoint(served, options, shared)
        server = Http1Server(endpoint, served.limits, sockets, ssl=_tls(options), shared=control is not None)
        await server.start()
        with stop:
            on_ready()
            await stop.asked.wait()
            if stop.is_handed_over:
                await served.catch_up()
                await server.hand_over(stop.hurried)
            # Else the listener stays open until the end: cancellations come on new connections, and new calls are
            # rejected with a reason.
            loop = asyncio.get_running_loop()
            until = loop.time() + stop.drain_seconds
            await endpoint.drain(stop.drain_seconds, stop.hurried, replaced=stop.is_handed_over)
            if control is not None:
                await control.wait_for_others(max(0.0, until - loop.time()))
            await server.drain(_CLEANUP_SECONDS)
            await server.close()
            await clean_up(served)


def make_endpoint(served: ServedApp, options: ServingOptions, shared: SharedStore | None) -> ProtectedEndpoint:
    """Everything that is served over HTTP: `/mcp` and the paths beside it, toolboxes, and the authentication of all."""
    guard = Guard(hosts=options["allow_host"], origins=options["cors"], proxies=options["trusted_proxy"])
    prefix = options["path_prefix"].rstrip("/")
    legacy = _legacy_mode(options, shared)
    if _is_public(options) or options["trusted_proxy"]:
        served.accounts.open_to_network()
    if shared is None:
        served.accounts.divide(options["workers"])
    main = HttpEndpoint(
        served.handler,
        served.info,
        limits=served.limits,
        guard=guard,
        prefix=prefix,
        legacy_endpoints=_legacy_endpoints(options),
        websocket=options["websocket"],
        direct_methods=options["direct_methods"],
        legacy=legacy,
        shared=shared,
        parts=served.readiness,
        metrics=served.metrics,
        routes=served.routes,
        custom_routes=served.custom_routes,
        on_session_end=served.end_session,
        accounts=served.accounts,
    )

    def make(name: str, handler: Handler) -> HttpEndpoint:
        path = f"/toolboxes/{name}/mcp"
        endpoint = HttpEndpoint(
            handler,
            served.info,
            limits=served.limits,
            guard=guard,
            paths=(path, path + "/"),
            prefix=prefix,
            websocket=False,
            legacy=legacy,
            shared=None if shared is None else namespaced(shared, path),
            on_session_end=served.end_session,
            accounts=served.accounts,
        )
        served.endpoints_served.add(endpoint)
        return endpoint

    served.endpoints_served.add(main)
    endpoint: ProtectedEndpoint = main
    if served.places is not None:
        endpoint = EndpointRouter(main, served.places, make, prefix)
    if served.auth is not None:
        check_keys(served.auth, shared, "--store sqlite:PATH")
        endpoint = AuthenticatedEndpoint(endpoint, served.auth, guard, str(served.info["name"]))
    elif served.accounts.by_address:
        endpoint = AddressedEndpoint(endpoint, guard)
    return endpoint


def _legacy_mode(options: ServingOptions, shared: SharedStore | None) -> LegacyMode:
    if options["sessions"] == "off":
        return "sessionless"
    return "refused" if options["workers"] > 1 and shared is None else "sessions"


def address(options: ServingOptions, port: int) -> str:
    """The URL of the endpoint."""
    host, prefix = options["host"], options["path_prefix"].rstrip("/")
    if options["uds"] is not None:
        return f"unix:{options['uds']} {prefix}/mcp"
    scheme = "https" if options["tls_cert"] else "http"
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}{prefix}/mcp"
