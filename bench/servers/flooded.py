"""Our own server as a flood meets it: `flooded.py http PORT 0`; its tools say much, or read nothing."""

import asyncio
import sys

from pegboard import Board, Context, Limits, ToolConnector

# Defaults, but that nobody has to wait for minutes until sessions and streams are forgotten that nobody comes back for.
board = Board("flooded", version="1.0.0", limits=Limits(ended_seconds=5, session_seconds=15))


@board.tool
async def add(a: float, b: float) -> float:
    """Adds two numbers."""
    return a + b


@board.tool
async def say(count: int, size: int, ctx: Context) -> int:
    """Says so many things of that size."""
    for number in range(1, count + 1):
        await ctx.progress(number, count, "x" * size)
    return count


@board.tool
async def answer(size: int) -> str:
    """Answers at length."""
    return "x" * size


@board.tool
async def pour(count: int, size: int, connector: ToolConnector) -> int:
    """Sends so many chunks of that size."""
    for _ in range(count):
        await connector.write(bytes(size))
    return count


@board.tool
async def ignore(connector: ToolConnector) -> str:
    """Reads nothing of what is sent."""
    await asyncio.Event().wait()
    return "never"


@board.resource("notes://{name}")
def note(name: str) -> str:
    return name


@board.tool
def churn(count: int, length: int) -> int:
    """Has so many resources, with names of that length, change."""
    for number in range(count):
        board.resource_changed(f"notes://{number:0{length}}")
    return count


if __name__ == "__main__":
    board.run(transport="http", port=int(sys.argv[2]))
