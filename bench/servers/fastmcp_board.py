"""The same tools on FastMCP: `fastmcp_board.py http|stdio PORT TOOLS`."""

import sys

from fastmcp import Context, FastMCP

server = FastMCP("bench", version="1.0.0")


async def add(a: float, b: float) -> float:
    """Adds two numbers."""
    return a + b


@server.tool  # type: ignore[untyped-decorator]  # mypy does not read the peers
async def steps(count: int, ctx: Context) -> int:
    """Tells of each of its steps."""
    for step in range(1, count + 1):
        await ctx.report_progress(step, count, f"step {step}")
    return count


server.tool(add)
for number in range(int(sys.argv[3]) - 2):
    server.tool(add, name=f"add_{number}")


if __name__ == "__main__":
    if sys.argv[1] == "http":
        import uvicorn

        app = server.http_app(json_response=len(sys.argv) > 4)
        uvicorn.run(app, port=int(sys.argv[2]), loop="uvloop", http="httptools", log_level="error")
    else:
        server.run("stdio", show_banner=False)
