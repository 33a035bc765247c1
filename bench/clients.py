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
from collections.abc import Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from statistics import median
from typing import Any

import uvloop
from processes import CORES, Server, pin

IN_FLIGHT = 64
VERSIONS = ("2026-07-28", "2025-11-25")
CALLS = {"ours": (2000, 12000), "official SDK": (300, 1200), "FastMCP": (200, 600)}
ARGUMENTS = {"a": 2.0, "b": 3.0}

Call = Callable[[], Awaitable[Any]]


@asynccontextmanager
async def ours(url: str, version: str) -> Any:
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


OPENED = {"ours": ours, "official SDK": official, "FastMCP": fastmcp}


async def run(name: str, url: str, version: str) -> dict[str, list[float]]:
    alone, together = CALLS[name]
    async with OPENED[name](url, version) as call:
        for told in await asyncio.gather(*(call() for _ in range(IN_FLIGHT))):
            # A client that is fast because it is refused is not fast.
            assert [float(block["text"] if isinstance(block, dict) else block.text) for block in told.content] == [5.0]
        return {"1": await _time(call, alone, 1), "64": await _time(call, together, IN_FLIGHT)}


async def _time(call: Call, calls: int, at_once: int) -> list[float]:
    async def work() -> None:
        for _ in range(calls // at_once):
            await call()

    began, computed = time.perf_counter(), time.process_time()
    await asyncio.gather(*(work() for _ in range(at_once)))
    done = calls // at_once * at_once
    return [done / (time.perf_counter() - began), (time.process_time() - computed) / done * 1e6]


def measure(ours: str) -> Iterator[tuple[tuple[str, int, str], tuple[float, float]]]:
    """One round: for each revision, number in flight and client its calls per second and CPU µs per call."""
    with Server("board.py", python=ours) as server:
        server.wait()
        for version in VERSIONS:
            for name in CALLS:
                python = ours if name == "ours" else sys.executable
                words = [python, __file__, "--one", name, f"http://127.0.0.1:{server.port}/mcp", version]
                child = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
                pin(child.pid, CORES[1:])
                out, _ = child.communicate(timeout=120)
                for at_once, (rate, cpu) in json.loads(out).items():
                    yield (version, int(at_once), name), (rate, cpu)


def main(rounds: int) -> None:
    figures: defaultdict[tuple[str, int, str], list[tuple[float, float]]] = defaultdict(list)
    for _ in range(rounds):
        for key, figure in measure(sys.executable):
            figures[key].append(figure)
    for (version, at_once, name), found in figures.items():
        rate, cpu = (median(column) for column in zip(*found, strict=True))
        print(f"{version}  {at_once:>2} in flight  {name:<12} {rate:>8.0f} calls/s  {cpu:>7.0f} CPU µs a call")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        print(json.dumps(uvloop.run(run(*sys.argv[2:]))))
    else:
        main(int(sys.argv[1]) if len(sys.argv) > 1 else 3)
