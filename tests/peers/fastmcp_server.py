"""A server on FastMCP, of both eras: `fastmcp_server.py http PORT` or `stdio`."""

from __future__ import annotations

import sys
from dataclasses import dataclass

from fastmcp import Context, FastMCP
from mcp.types import ElicitRequest, ElicitRequestFormParams, ElicitResult, InputRequiredResult

server = FastMCP("fastmcp", version="1.0.0")


@dataclass
class Order:
    name: str
    count: int = 3


SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "count": {"type": "integer", "default": 3}},
    "required": ["name"],
}


@server.tool
async def add(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b


@server.tool
async def steps(count: int, ctx: Context) -> str:
    for step in range(1, count + 1):
        await ctx.report_progress(step, count, f"step {step}")
    return "done"


@server.tool
async def order(ctx: Context) -> str | InputRequiredResult:
    """Asks on the way in the legacy era, and by its answer in the modern one."""
    told = (ctx.input_responses or {}).get("order")
    if isinstance(told, ElicitResult):
        content = told.content or {}
        return f"{content['count']} {content['name']}"
    if ctx.request_context is not None and ctx.request_context.protocol_version < "2026-07-28":
        answer = await ctx.elicit("What?", Order)
        return f"{answer.data.count} {answer.data.name}" if answer.action == "accept" else answer.action
    params = ElicitRequestFormParams(message="What?", requested_schema=SCHEMA)
    return InputRequiredResult(input_requests={"order": ElicitRequest(params=params)}, request_state="s")


@server.resource("memo://today")
def today() -> str:
    return "sunny"


@server.prompt
def review(code: str) -> str:
    return f"Review {code}"


if __name__ == "__main__":
    if sys.argv[1] == "http":
        server.run("http", port=int(sys.argv[2]), show_banner=False, log_level="ERROR")
    else:
        server.run("stdio", show_banner=False, log_level="ERROR")
