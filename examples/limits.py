"""Limits: how often, how many at once, how long."""

import asyncio

from pegboard import Board
from pegboard.middleware import ConcurrencyLimit, RateLimit, Timeout

board = Board("limits")

# 100 calls a minute for each tool and principal, no more than 10 of them in one go.
board.use(RateLimit(100, "minute", by=("tool", "principal"), burst=10))

# Reports are heavy: two at once, others wait up to five seconds for a seat.
board.use(ConcurrencyLimit(2, by="category", wait=5), category="reports")

# Nothing takes longer than 30 seconds, searches no longer than 2, and a backup as long as it likes.
board.use(Timeout(30, categories={"search": 2}, tools={"back_up": None}))


@board.tool(category="search")
async def search(query: str) -> str:
    """Searches everywhere."""
    await asyncio.sleep(0)
    return f"Nothing found for {query}."


@board.tool(category="reports")
async def report(year: int) -> str:
    """Writes the report of a year."""
    return f"{year} went well."


if __name__ == "__main__":
    board.run()
