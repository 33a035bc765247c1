"""Our own server: `board.py http|asgi|console|metrics|stdio PORT TOOLS`, or `kept` or `workers` for one process or two that keep sessions in a file."""

import sys

from pegboard import Board, Context

board = Board("bench", version="1.0.0")


@board.tool
async def add(a: float, b: float) -> float:
    """Adds two numbers."""
    return a + b


@board.tool
async def steps(count: int, ctx: Context) -> int:
    """Tells of each of its steps."""
    for step in range(1, count + 1):
        await ctx.progress(step, count, f"step {step}")
    return count


for number in range(int(sys.argv[3]) - 2):
    board.add(add, name=f"add_{number}")


if __name__ == "__main__":
    match sys.argv[1]:
        case "http":
            board.run(transport="http", port=int(sys.argv[2]))
        case "console":
            from pegboard.console.board_subject import BoardSubject
            from pegboard.console.console import Console

            Console(BoardSubject(board))
            board.run(transport="http", port=int(sys.argv[2]))
        case "metrics":
            from pegboard.middleware import Metrics

            board.use(Metrics())
            board.run(transport="http", port=int(sys.argv[2]))
        case "kept" | "workers" as how:
            import tempfile

            with tempfile.TemporaryDirectory() as place:
                count = 2 if how == "workers" else 1
                board.run(transport="http", port=int(sys.argv[2]), workers=count, store=f"sqlite:{place}/store.db")
        case "asgi":
            import uvicorn

            port = int(sys.argv[2])
            uvicorn.run(board.asgi(), port=port, loop="uvloop", http="httptools", log_level="error", access_log=False)
        case _:
            board.run(transport="stdio")
