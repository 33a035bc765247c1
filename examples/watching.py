"""Logging, timing and token counting."""

import logging

from pegboard import Board
from pegboard.middleware import Logging, Timing, TokenCount

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")

board = Board("watching")
timing, tokens = Timing(slow_ms=250), TokenCount()
board.use(Logging(style="json"), timing, tokens)


@board.tool
async def greet(name: str) -> str:
    """Greets somebody."""
    return f"Hello, {name}!"


@board.tool
async def statistics() -> dict[str, float]:
    """The 95th percentile of each tool, in milliseconds."""
    return {name: one.p95 for name, one in timing.stats().items()}


if __name__ == "__main__":
    board.run()
