"""A server with quotas, for `fairness.py`: `shared_fairly.py CASE PORT`."""

from __future__ import annotations

import asyncio
import sys
import time

from pegboard import Board, Gateway, Limits, Principal, Quota, Quotas
from pegboard.testing import fixed_tokens

WORK_SECONDS, SLOTS = 0.02, 8
NAMES = ("flood", "ann", "bob", "cleo", "dan")
AUTH = fixed_tokens({name: Principal(name) for name in NAMES})


def make_board(limits: Limits | None = None, quotas: Quotas | None = None) -> Board:
    board = Board("shared", auth=AUTH, limits=limits, quotas=quotas)

    @board.tool
    async def quick() -> int:
        return 1

    @board.tool
    def blocking() -> int:
        time.sleep(WORK_SECONDS)
        return 1

    @board.tool
    async def slow() -> int:
        await asyncio.sleep(WORK_SECONDS)
        return 1

    return board


def make(case: str) -> Board | Gateway:
    if case == "rate":
        return make_board(quotas=Quotas(everyone=Quota(rate="100/second")))
    if case == "threads":
        return make_board(Limits(threads=SLOTS))
    entry = {"board": make_board(), "concurrency": SLOTS}
    toolbox = {"description": "d", "names": "plain", "mcpServers": {"here": entry}}
    return Gateway({"toolboxes": {"box": toolbox}, "lock": "off"}, auth=AUTH)


if __name__ == "__main__":
    make(sys.argv[1]).run("http", port=int(sys.argv[2]), log_level="error")
