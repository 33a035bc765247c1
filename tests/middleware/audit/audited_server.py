"""A server over stdio whose calls are audited, for a test that kills it: `audited_server.py FOLDER SYNC SECRET`."""

from __future__ import annotations

import sys

from pegboard import Board
from pegboard.middleware import Audit

folder, sync, secret = sys.argv[1:]
board = Board("audited")
board.use(Audit(folder, sync="full" if sync == "full" else "normal", secret=secret, max_bytes=100_000))


@board.tool
async def note(number: int) -> int:
    return number


if __name__ == "__main__":
    board.run(transport="stdio")
