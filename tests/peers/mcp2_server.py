"""A server on the official Python SDK, 2.x, of both eras: `mcp2_server.py http PORT` or `stdio`."""

from __future__ import annotations

import sys

from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp.types import ElicitRequest, ElicitRequestFormParams, ElicitResult, InputRequiredResult
from pydantic import BaseModel

server = MCPServer("python-2", version="1.0.0", log_level="ERROR")


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
async def order(ctx: Context) -> str | InputRequiredResult:
    if ctx.protocol_version < "2026-07-28":
        answer = await ctx.elicit("What?", Order)
        return f"{answer.data.count} {answer.data.name}" if answer.action == "accept" else answer.action
    told = (ctx.input_responses or {}).get("order")
    if not isinstance(told, ElicitResult):
        schema = Order.model_json_schema()
        params = ElicitRequestFormParams(message="What?", requested_schema=schema)
        return InputRequiredResult(input_requests={"order": ElicitRequest(params=params)}, request_state="s")
    content = told.content or {}
    return f"{content['count']} {content['name']}"


@server.resource("memo://today")
def today() -> str:
    return "sunny"


@server.prompt()
def review(code: str) -> str:
    return f"Review {code}"


if __name__ == "__main__":
    if sys.argv[1] == "http":
        server.run("streamable-http", port=int(sys.argv[2]))
    else:
        server.run("stdio")
