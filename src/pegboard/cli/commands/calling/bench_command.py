"""`pegboard bench TARGET TOOL key=value …`: a bounded load of calls, with throughput and latency."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from typing import Final
from urllib.parse import urlsplit

from pegboard.cli.arguments.target_argument import OK, TOOL_ERROR, TargetArgument, read_target, run
from pegboard.cli.arguments.verb_parser import VerbParser
from pegboard.cli.commands.calling.call_command import read_arguments
from pegboard.cli.terminal.output import show, show_json
from pegboard.cli.terminal.progress_bar import ProgressBar
from pegboard.client.client import Client
from pegboard.errors import Refusal, SetupError
from pegboard.server.http.guard import is_loopback

MOST_CALLS: Final = 100_000
MOST_AT_ONCE: Final = 256
_SHOWN_SECONDS: Final = 1.0


def main(argv: list[str]) -> int:
    parser = VerbParser(
        prog="pegboard bench",
        description="Call a tool many times, and print the throughput and the latency. Without a tool, the list of tools is "
        "requested. Only servers on this machine are loaded, unless --yes is given.",
        examples=(
            "pegboard bench http://127.0.0.1:7332 price article=chair --calls 1000 --concurrency 16",
            "pegboard bench board.py price article=chair --json",
        ),
        codes="0 ok, 1 calls failed, 2 wrong usage or set-up, 3 cannot connect",
    )
    parser.add_argument("--calls", type=int, default=200, metavar="N", help=f"how many calls (200), up to {MOST_CALLS}")
    parser.add_argument(
        "--concurrency", type=int, default=8, metavar="N", help=f"how many at the same time (8), up to {MOST_AT_ONCE}"
    )
    parser.add_argument("--yes", action="store_true", help="also load a server on another machine")
    arguments = {
        "tool": {"metavar": "TOOL", "nargs": "?", "help": "the tool to call"},
        "arguments": {"metavar": "KEY=VALUE", "nargs": "*", "help": "arguments, or one JSON object with all of them"},
    }
    pointed = read_target(parser, argv, arguments)
    chosen = pointed.chosen
    for name, most in (("calls", MOST_CALLS), ("concurrency", MOST_AT_ONCE)):
        if not 1 <= getattr(chosen, name) <= most:
            parser.error(f"--{name} {getattr(chosen, name)}: choose from 1 to {most}")
    _check_host(pointed)
    return run("bench", _bench(pointed))


def _check_host(pointed: TargetArgument) -> None:
    parts = urlsplit(pointed.name if "://" in pointed.name else "")
    if parts.hostname and not is_loopback(parts.hostname) and not pointed.chosen.yes:
        raise SetupError(f"{parts.hostname} is another machine: add --yes if you may put load on it")


async def _bench(pointed: TargetArgument) -> int:
    chosen = pointed.chosen
    async with pointed.client() as client:
        once = await _prepare(client, chosen)
        times, failures, seconds = await _load(once, chosen.calls, chosen.concurrency)
    times.sort()
    figures = {
        "calls": len(times),
        "failures": failures,
        "seconds": round(seconds, 3),
        "per_second": round(len(times) / seconds, 1),
        **{f"p{share}_ms": round(_percentile(times, share) * 1000, 2) for share in (50, 90, 99)},
    }
    if chosen.json:
        show_json(figures)
    else:
        show(
            f"{figures['calls']} calls in {seconds:.2f} s, {chosen.concurrency} at the same time: {figures['per_second']} per second"
        )
        show(f"p50 {figures['p50_ms']} ms, p90 {figures['p90_ms']} ms, p99 {figures['p99_ms']} ms; {failures} failed")
    return TOOL_ERROR if failures else OK


async def _prepare(client: Client, chosen: argparse.Namespace) -> Callable[[], Awaitable[bool]]:
    """One request of the load, which returns whether it failed."""
    if chosen.tool is None:

        async def list_tools() -> bool:
            await client.request("tools/list")
            return False

        return list_tools
    tools = {str(tool.get("name")): tool for tool in await client.list_tools()}
    schema = tools[chosen.tool].get("inputSchema") if chosen.tool in tools else None
    arguments = read_arguments(chosen.arguments, schema)

    async def call() -> bool:
        return (await client.call(chosen.tool, arguments)).is_error

    # The first one finds a mistake before there is any load.
    await call()
    return call


async def _load(once: Callable[[], Awaitable[bool]], calls: int, at_once: int) -> tuple[list[float], int, float]:
    times: list[float] = []
    failures = 0
    left = calls
    began = time.perf_counter()
    progress = ProgressBar()

    async def work() -> None:
        nonlocal failures, left
        while left > 0:
            left -= 1
            start = time.perf_counter()
            try:
                failures += await once()
            except Refusal:
                failures += 1
            times.append(time.perf_counter() - start)

    async def report() -> None:
        while True:
            await asyncio.sleep(_SHOWN_SECONDS)
            progress(len(times), calls, "calls")

    reporting = asyncio.create_task(report())
    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(at_once):
                group.create_task(work())
    finally:
        reporting.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await reporting
        progress.clear()
    return times, failures, time.perf_counter() - began


def _percentile(ordered: list[float], share: int) -> float:
    return ordered[min(len(ordered) - 1, len(ordered) * share // 100)]
