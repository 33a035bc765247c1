"""Logging, timing, token counting, and an observer."""

import logging
from collections import Counter

from pegboard import Board, Middleware
from pegboard.middleware import Call, Logging, Observation, Timing, TokenCount

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")


class Ledger(Middleware):
    """Counts the calls of each tool by their outcome."""

    def __init__(self) -> None:
        self.counts: Counter[tuple[str, str]] = Counter()

    def observe(self, call: Call, seen: Observation) -> None:
        self.counts[call.tool.name, seen.outcome] += 1


board = Board("watching")
timing, tokens = Timing(slow_ms=250), TokenCount()
board.use(Logging(style="json"), timing, tokens)

ledger = Ledger()
board.use(ledger)


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
