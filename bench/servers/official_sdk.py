"""The same tools on the official Python SDK: `official_sdk.py http|stdio PORT TOOLS`."""

import sys

from mcp.server import MCPServer
from mcp.server.mcpserver import Context

server = MCPServer("bench", version="1.0.0", log_level="ERROR")


async def add(a: float, b: float) -> float:
    """Adds two numbers."""
    return a + b


@server.tool()  # type: ignore[untyped-decorator]  # mypy does not read the peers
async def steps(count: int, ctx: Context) -> int:
    """Tells of each of its steps."""
    for step in range(1, count + 1):
        await ctx.report_progress(step, count, f"step {step}")
    return count


server.add_tool(add)
for number in range(int(sys.argv[3]) - 2):
    server.add_tool(add, name=f"add_{number}")


if __name__ == "__main__":
    if sys.argv[1] == "http":
        import uvicorn

        app = server.streamable_http_app(json_response=len(sys.argv) > 4)
        uvicorn.run(app, port=int(sys.argv[2]), loop="uvloop", http="httptools", log_level="error")
    else:
        server.run("stdio")
