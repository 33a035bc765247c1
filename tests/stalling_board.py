"""A board whose tools hold the event loop, each in another way."""

from __future__ import annotations

import re
import time

from pegboard import Board
from pegboard.middleware import Metrics

board = Board("stalling", version="1")
metrics = Metrics()
board.use(metrics)


@board.tool
async def compute(seconds: float) -> str:
    """Computes on the loop."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        sum(range(100))
    return "computed"


@board.tool
async def wait(seconds: float) -> str:
    """Waits on the loop in blocking calls: one alone would be over if the machine stopped meanwhile, and not counted."""
    for _ in range(round(seconds / 0.01)):
        time.sleep(0.01)  # noqa: ASYNC251 — this is what is reported
    return "waited"


@board.tool
async def match(seconds: float) -> str:
    """Matches on the loop: `re` does not release the interpreter lock."""
    return backtrack(seconds)


@board.tool
def match_in_thread(seconds: float) -> str:
    """Matches in a thread, and the loop cannot run either."""
    return backtrack(seconds)


@board.tool
async def scrape() -> str:
    """The metrics."""
    return metrics.render()


def backtrack(seconds: float) -> str:
    """Match texts that take ever longer, until one took so long."""
    length, took = 16, 0.0
    while took < seconds:
        length += 1
        began = time.thread_time()
        re.match(r"(a|a)*b", "a" * length)
        took = time.thread_time() - began
    return "matched"
