"""Measures our client beside the official one and FastMCP's, all against our server: `bench/clients.py [ROUNDS]`.

Each client is a process of its own that calls one tool, first one call at a time and then with 64 in flight; the
rounds are interleaved, and the medians of calls per second and of CPU per call count.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median
from typing import Any

from processes import CORES, Server, pin

IN_FLIGHT = 64
CALLS = {"pegboard": (2000, 12000), "official": (300, 1200), "fastmcp": (200, 600)}
ARGUMENTS = {"a": 2.0, "b": 3.0}

Call = Callable[[], Awaitable[Any]]


@asynccontextmanager
async def pegboard(url: str, version: str) -> Any:
    from pegboard import Client

    async with Client(url, version=version) as client:
        yield lambda: client.call("add", ARGUMENTS)


@asynccontextmanager
async def official(url: str, version: str) -> Any:
    from mcp import Client

    async with Client(url, mode="auto" if version > "2026" else "legacy") as client:
        yield lambda: client.call_tool("add", ARGUMENTS)


@asynccontextmanager
async def fastmcp(url: str, version: str) -> Any:
    from fastmcp import Client

    async with Client(url, mode="auto" if version > "2026" else "legacy") as client:
        yield lambda: client.call_tool("add", ARGUMENTS)


async def run(name: str, url: str, version: str) -> dict[str, list[float]]:
    alone, together = CALLS[name]
    async with globals()[name](url, version) as call:
        await asyncio.gather(*(call() for _ in range(IN_FLIGHT)))
        return {"1": await _time(call, alone, 1), "64": await _time(call, together, IN_FLIGHT)}


async def _time(call: Call, calls: int, at_once: int) -> list[float]:
    async def work() -> None:
        for _ in range(calls // at_once):
            await call()

    began, computed = time.perf_counter(), time.process_time()
    await asyncio.gather(*(work() for _ in range(at_once)))
    done = calls // at_once * at_once
    return [done / (time.perf_counter() - began), (time.process_time() - computed) / done * 1e6]


def main(rounds: int) -> None:
    figures: defaultdict[tuple[str, str, str], list[list[float]]] = defaultdict(list)
    for _ in range(rounds):
        with Server("board.py") as server:
            server.wait()
            for version in ("2026-07-28", "2025-11-25"):
                for name in CALLS:
                    words = [
                        sys.executable,
                        str(Path(__file__)),
                        "--one",
                        name,
                        f"http://127.0.0.1:{server.port}/mcp",
                        version,
                    ]
                    child = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
                    pin(child.pid, CORES[1:])
                    out, _ = child.communicate(timeout=120)
                    for at_once, figure in json.loads(out).items():
                        figures[version, at_once, name].append(figure)
    for (version, at_once, name), found in figures.items():
        rate, cpu = (median(column) for column in zip(*found, strict=True))
        print(f"{version}  {at_once:>2} in flight  {name:<9} {rate:>8.0f} calls/s  {cpu:>7.0f} CPU µs a call")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        try:
            import uvloop

            runner = uvloop.run
        except ImportError:
            runner = asyncio.run
        print(json.dumps(runner(run(*sys.argv[2:]))))
    else:
        main(int(sys.argv[1]) if len(sys.argv) > 1 else 3)
