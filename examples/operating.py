"""Operating a board: an audit log, metrics, a cache and retries."""

import tempfile
from pathlib import Path

from pegboard import Board
from pegboard.middleware import Audit, Cache, Metrics, Retry

board = Board("operating")
folder = Path(tempfile.gettempdir())
metrics = Metrics()

# Every call, including rejected ones, is recorded before its response is sent.
audit = Audit(folder / "pegboard-audit", names=["iban"])
board.use(metrics, audit)

# A forecast is valid for five minutes and the same for all callers.
cache = Cache(300, tools=["forecast"], shared=True)
# Tools marked as idempotent may run up to three times.
board.use(cache, Retry(3, on=ConnectionError))


@board.tool(annotations={"idempotentHint": True})
async def forecast(city: str) -> str:
    """The weather tomorrow."""
    return f"Rain in {city}."


@board.tool
async def scrape() -> str:
    """What a scrape of the metrics reads."""
    return metrics.render()


if __name__ == "__main__":
    board.run()
