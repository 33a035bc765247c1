"""Calls in process, with no transport between: `inside.py ours|official|fastmcp SECONDS` prints CPU µs per call as JSON."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

FITS = {"a": 2, "b": 3}
REPAIRED = {"a": "2", "b": 3}

Calling = Callable[[Mapping[str, Any]], Awaitable[Any]]


async def add(a: float, b: float) -> float:
    """Adds two numbers."""
    return a + b


async def cost(call: Calling, arguments: Mapping[str, Any], seconds: float) -> float:
    """The median of short spells, in µs of CPU."""
    spells: list[float] = []
    until = time.monotonic() + seconds
    for _ in range(50):
        await call(arguments)
    while len(spells) < 5 or time.monotonic() < until:
        began = time.process_time_ns()
        for _ in range(200):
            await call(arguments)
        spells.append((time.process_time_ns() - began) / 200 / 1000)
    return sorted(spells)[len(spells) // 2]


async def ours(seconds: float) -> dict[str, float]:
    from pegboard import Board, Client

    board = Board("bench")
    board.tool(add)
    async with Client(board) as client:

        async def call(arguments: Mapping[str, Any]) -> Any:
            return await client.call("add", arguments)

        return {"call": await cost(call, FITS, seconds), "repaired": await cost(call, REPAIRED, seconds)}


async def official(seconds: float) -> dict[str, float]:
    from mcp.server import MCPServer

    server = MCPServer("bench", log_level="ERROR")
    server.add_tool(add)
    return {"call": await cost(lambda arguments: server.call_tool("add", dict(arguments)), FITS, seconds)}


async def fastmcp(seconds: float) -> dict[str, float]:
    from fastmcp import FastMCP

    server = FastMCP("bench")
    server.tool(add)
    return {"call": await cost(lambda arguments: server.call_tool("add", dict(arguments)), FITS, seconds)}


if __name__ == "__main__":
    measured = {"ours": ours, "official": official, "fastmcp": fastmcp}[sys.argv[1]]
    print(json.dumps(asyncio.run(measured(float(sys.argv[2])))))
