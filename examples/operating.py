"""Operating a board: an audit file, metrics, a cache, and another try for what fails now and then."""

import tempfile
from pathlib import Path

from pegboard import Board
from pegboard.middleware import Audit, Cache, Metrics, Retry

board = Board("operating")
folder = Path(tempfile.gettempdir())
metrics = Metrics()

# Every call, refused ones too, is in the file before its answer leaves.
audit = Audit(folder / "pegboard-audit.jsonl", arguments="full")
board.use(metrics, audit)

# A forecast stays true for five minutes and is the same for everybody.
cache = Cache(300, tools=["forecast"], shared=True)
# What its author calls idempotent may be tried three times.
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
