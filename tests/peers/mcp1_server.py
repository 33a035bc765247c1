"""A server on the official Python SDK, 1.x, which knows only the handshake: `mcp1_server.py http|sse PORT` or `stdio`."""

from __future__ import annotations

import sys

from mcp.server.fastmcp import Context, FastMCP
from pydantic import BaseModel

server = FastMCP("python-1", log_level="ERROR")


class Order(BaseModel):
    name: str
    count: int = 3


@server.tool()
async def add(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b


@server.tool()
async def steps(count: int, ctx: Context) -> str:
    for step in range(1, count + 1):
        await ctx.report_progress(step, count, f"step {step}")
    return "done"


@server.tool()
async def order(ctx: Context) -> str:
    answer = await ctx.elicit("What?", Order)
    return f"{answer.data.count} {answer.data.name}" if answer.action == "accept" else answer.action


@server.resource("memo://today")
def today() -> str:
    return "sunny"


@server.prompt()
def review(code: str) -> str:
    return f"Review {code}"


if __name__ == "__main__":
    if sys.argv[1] == "stdio":
        server.run("stdio")
    else:
        server.settings.port = int(sys.argv[2])
        server.run("sse" if sys.argv[1] == "sse" else "streamable-http")
