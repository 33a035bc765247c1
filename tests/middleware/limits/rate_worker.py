"""One of several worker processes that share a rate limit: `rate_worker.py URL LIMIT CALLS` prints how many passed."""

from __future__ import annotations

import asyncio
import sys

from pegboard import Board, Client
from pegboard.middleware import RateLimit, RedisRates


async def main(url: str, limit: int, calls: int) -> None:
    board = Board("worker")

    @board.tool
    async def work() -> str:
        return "done"

    store = RedisRates(url, timeout=60)
    board.use(RateLimit(limit, "day", store=store, fail="closed"))
    async with Client(board) as client:
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        results = await asyncio.gather(*(client.call("work") for _ in range(calls)))
    await store.close()
    refused = [result.text for result in results if result.is_error]
    assert all("the limit of" in text for text in refused), refused[0]
    print(calls - len(refused), flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
