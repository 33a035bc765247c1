"""Runs a server in an event loop until it has stopped."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import math
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

from pegboard.logs.watchdog import Watchdog
from pegboard.server.serving_options import ServingOptions
from pegboard.server.shared_store import ServedApp
from pegboard.server.shutdown import ExitTimer, Stop

_log = logging.getLogger("pegboard")

_LARGE_BLOCK = 8 * 2**20


def drain_seconds(served: ServedApp, options: ServingOptions, most: float = math.inf) -> float:
    """How long running calls may take to finish: `--drain`, or the limit of the server."""
    chosen = options["drain"]
    return min(served.limits.drain_seconds, most) if chosen is None else chosen


def run_until_stopped(
    served: ServedApp, main: Callable[[ExitTimer], Coroutine[Any, Any, None]], seconds_to_drain: float
) -> None:
    """Run what serves it in a new event loop; end the process if it does not end after it was stopped."""
    timer = ExitTimer(seconds_to_drain)
    try:
        _run(main(timer), served.limits.stall_seconds)
    finally:
        timer.returned = True


async def serve_until_stopped(stop: Stop, served: ServedApp, main: Coroutine[Any, Any, None]) -> None:
    """Run what serves it in the running event loop; cancelling this stops it gracefully."""
    task = asyncio.ensure_future(main)
    with Watchdog(asyncio.get_running_loop(), served.limits.stall_seconds):
        try:
            await asyncio.shield(task)
        finally:
            if not task.done():
                stop.ask()
                await asyncio.wait({task})


def _run(main: Coroutine[Any, Any, None], stall_seconds: float) -> None:
    """Run to the end on the fastest available loop, whatever exceptions escape from tools' tasks; report what blocks
    the loop."""
    loop = new_loop()
    asyncio.set_event_loop(loop)
    task = loop.create_task(main)
    try:
        _tune_malloc()
        with _tune_gc(), Watchdog(loop, stall_seconds):
            while not task.done():
                try:
                    loop.run_until_complete(task)
                except (SystemExit, KeyboardInterrupt) as stray:
                    # An exception in a task that an author left behind ends only that task.
                    if not task.done():
                        _log.error("%s escaped from a task of a tool; the server continues", type(stray).__name__)
            task.result()
    finally:
        _close_loop(loop)


def _tune_malloc() -> None:
    """Let the C library keep some megabytes for the next large message.

    glibc returns the end of its heap to the system once twice the size of the largest block is free that was mapped and
    freed before (`man mallopt`, M_MMAP_THRESHOLD). At first that is so little that it returns the memory of each large
    message and gets it again, page by page. What is kept beyond that, `MallocTrim` returns.
    """
    bytes(_LARGE_BLOCK)


@contextlib.contextmanager
def _tune_gc() -> Iterator[None]:
    """Collect garbage ten times less often while serving, and skip what was loaded before.

    A call leaves no cycles behind, so the collector would run often and find next to nothing.
    """
    before = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 100)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


def _close_loop(loop: asyncio.AbstractEventLoop) -> None:
    left = asyncio.all_tasks(loop)
    for task in left:
        task.cancel()
    if left:
        with contextlib.suppress(BaseException):
            loop.run_until_complete(asyncio.wait(left, timeout=1.0))
    with contextlib.suppress(BaseException):
        loop.run_until_complete(loop.shutdown_asyncgens())
    asyncio.set_event_loop(None)
    loop.close()


def new_loop() -> asyncio.AbstractEventLoop:
    """uvloop if it is installed, else asyncio's own loop."""
    try:
        import uvloop  # noqa: PLC0415 — optional, and only a server needs it
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop
