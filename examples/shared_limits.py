"""A rate limit that several processes share, stored in Redis or Valkey."""

import os

from pegboard import Board
from pegboard.middleware import RateLimit, RedisRates

board = Board("shared limits")
store = RedisRates(os.environ.get("REDIS_URL", "redis://127.0.0.1:6379/0"), timeout=0.25, pause=1)

# If Redis is down, reject calls; fail="open" would allow them.
board.use(RateLimit(1000, "hour", by="principal", store=store, fail="closed"))


@board.tool
async def translate(text: str) -> str:
    """Translates into capitals."""
    return text.upper()


if __name__ == "__main__":
    board.run()
