"""A board with one tool for each thing that a door can carry."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from pegboard import Board, Context, Middleware, ToolConnector

board = Board("doors")
seen: list[str] = []


class Noting(Middleware):
    """Notes what goes on around the calls."""

    async def before(self, call: Any) -> None:
        seen.append(f"before {call.name}")

    async def after(self, call: Any, _result: Any, _elapsed_ms: float) -> None:
        seen.append(f"after {call.name}")

    async def error(self, call: Any, _error: BaseException, _elapsed_ms: float) -> None:
        seen.append(f"error {call.name}")


board.use(Noting(), tool=["upload", "broken"])


@board.tool(inline=True)
def noted() -> list[str]:
    """What was noted since it was last asked for."""
    told = list(seen)
    seen.clear()
    return told


@board.tool
async def count(upto: int) -> AsyncIterator[int]:
    for number in range(upto):
        yield number


@board.tool
async def steps(ctx: Context) -> str:
    await ctx.progress(1, 2, "half")
    return "done"


@board.tool
async def hold(ctx: Context) -> str:
    """Says something, and goes on until it is cancelled."""
    await ctx.progress(1)
    try:
        await asyncio.Event().wait()
    finally:
        seen.append("cancelled hold")
    return "never"


@board.tool
async def upload(connector: ToolConnector) -> dict[str, Any]:
    """Reads all that comes."""
    size = sum([len(chunk) if isinstance(chunk, bytes) else 1 async for chunk in connector])
    return {"size": size, "summary": connector.summary}


@board.tool
async def keep(connector: ToolConnector) -> str:
    """Has a stream, and leaves it alone."""
    await asyncio.Event().wait()
    return "never"


@board.tool
async def echo(connector: ToolConnector) -> str:
    async for chunk in connector:
        await connector.write(chunk)
    return "echoed"


@board.tool
async def say(connector: ToolConnector) -> str:
    await connector.write("one")
    await connector.write({"two": 2})
    return "said"


@board.tool
async def raw(connector: ToolConnector) -> str:
    await connector.write(b"\xff\x00")
    return "raw"


@board.tool
async def broken(connector: ToolConnector) -> str:
    await connector.write("so far")
    raise ValueError("a secret")


@board.tool(transports=["ws"])
async def only_streams(connector: ToolConnector) -> str:
    return "streamed"


@board.tool
def grow(name: str) -> str:
    board.add(lambda: name, name=name)
    return name


@board.tool
def touch(uri: str) -> str:
    board.resource_changed(uri)
    return uri


@board.resource("notes://{name}")
def note(name: str) -> str:
    return name
