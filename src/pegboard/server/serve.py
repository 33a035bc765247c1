"""Serves until stopped, over stdio or HTTP."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable

from pegboard import server
from pegboard.errors import SetupError
from pegboard.logs.log_lines import announce_lines
from pegboard.server.debugging import set_up_debug
from pegboard.server.event_loop import drain_seconds, run_until_stopped, serve_until_stopped
from pegboard.server.serving_options import ServingOptions, check_workers
from pegboard.server.shared_store import ServedApp, clean_up, open_shared_store
from pegboard.server.shutdown import NoExit, Stop
from pegboard.server.stdio.stdio_server import claim_pipes, open_stdio

STDIO_DRAIN_SECONDS = 2.0
"""A client that has closed the pipe, or stops the process, does not wait for long."""


def run(
    served: ServedApp,
    options: ServingOptions,
    on_ready: Callable[[str], None] | None = None,
    pipes: tuple[int, int] | None = None,
) -> None:
    """Serve until a signal or the end of stdin.

    `on_ready` is called with the URL once HTTP is served; `pipes` are stdin and stdout, if they are claimed already.
    """
    choose_transport(options)
    check_workers(options, served.places)
    set_up_debug(served, options)
    if options["transport"] == "stdio":
        source, target = pipes or claim_pipes()
        run_until_stopped(
            served,
            lambda timer: _serve_stdio(served, options["store"], source, target, Stop(timer)),
            drain_seconds(served, options, STDIO_DRAIN_SECONDS),
        )
    else:
        server.run_http(served, options, on_ready)


async def serve(served: ServedApp, options: ServingOptions) -> None:
    """The same in the running event loop; cancelling it stops the server gracefully."""
    choose_transport(options)
    check_workers(options, served.places)
    set_up_debug(served, options)
    if options["workers"] > 1:
        raise SetupError("workers: serve() stays in this process; use run() to start worker processes")
    if options["transport"] == "stdio":
        stop = Stop(NoExit(drain_seconds(served, options, STDIO_DRAIN_SECONDS)))
        await serve_until_stopped(stop, served, _serve_stdio(served, options["store"], *claim_pipes(), stop))
        return
    await server.serve_http(served, options)


def choose_transport(options: ServingOptions) -> None:
    """Replace `auto`: stdio if a client started the process, else HTTP."""
    if options["transport"] != "auto":
        return
    client = started_by_client()
    options["transport"] = "stdio" if client else "http"
    if client:
        announce_lines(["stdin is a pipe: serving stdio (use --http to serve HTTP)"])


def started_by_client() -> bool:
    """Whether stdin is a pipe or a socket, as when a client starts the server."""
    try:
        mode = os.fstat(0).st_mode
    except OSError:
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


async def _serve_stdio(served: ServedApp, store: str, source: int, target: int, stop: Stop) -> None:
    async with open_shared_store(store, served):
        await _serve_pipes(served, source, target, stop)


async def _serve_pipes(served: ServedApp, source: int, target: int, stop: Stop) -> None:
    with stop:
        door = await open_stdio(served.handler, served.info, served.limits, source, target, served.end_session)
        door.closed.add_done_callback(lambda _: stop.ask())
        await stop.asked.wait()
        await door.drain(stop.drain_seconds, stop.hurried)
        await door.line.close()
        await clean_up(served)
