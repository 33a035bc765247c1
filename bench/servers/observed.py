"""Our own server with what observes calls: `observed.py bare|idle|open|metrics|tracing PORT TOOLS`."""

import sys

from pegboard import Board
from pegboard.console.board_subject import BoardSubject
from pegboard.console.console import Console
from pegboard.middleware import Metrics, Tracing

TOKEN = "bench"

board = Board("bench", version="1.0.0")


@board.tool
async def add(a: float, b: float) -> float:
    """Adds two numbers."""
    return a + b


if __name__ == "__main__":
    match sys.argv[1]:
        case "idle" | "open":
            Console(BoardSubject(board), token=TOKEN)
        case "metrics":
            board.use(Metrics())
        case "tracing":
            board.use(Tracing())
    board.run(transport="http", port=int(sys.argv[2]))
