"""Limits: rate, concurrency and duration of calls."""

import asyncio

from pegboard import Board
from pegboard.middleware import ConcurrencyLimit, RateLimit, Timeout

board = Board("limits")

# 100 calls per minute for each tool and principal, at most 10 of them at once.
board.use(RateLimit(100, "minute", by=("tool", "principal"), burst=10))

# Reports are expensive: two run at once, others wait up to five seconds.
board.use(ConcurrencyLimit(2, by="category", wait=5), category="reports")

# Calls may take 30 seconds, searches 2 seconds; backups have no limit.
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
