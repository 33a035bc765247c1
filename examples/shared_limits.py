"""One rate limit for several processes: its accounts are in Redis or Valkey."""

import os

from pegboard import Board
from pegboard.middleware import RateLimit, RedisRates

board = Board("shared limits")
store = RedisRates(os.environ.get("REDIS_URL", "redis://127.0.0.1:6379/0"), timeout=0.25, pause=1)

# Without the store nobody can tell how many calls there were: refuse them, or let them through with fail="open".
board.use(RateLimit(1000, "hour", by="principal", store=store, fail="closed"))


@board.tool
async def translate(text: str) -> str:
    """Translates into capitals."""
    return text.upper()


if __name__ == "__main__":
    board.run()
