"""A server over stdio whose calls are audited, for a test that kills it: `audited_server.py FILE`."""

from __future__ import annotations

import sys

from pegboard import Board
from pegboard.middleware import Audit

board = Board("audited")
board.use(Audit(sys.argv[1], arguments="full"))


@board.tool
async def note(number: int) -> int:
    return number


if __name__ == "__main__":
    board.run(transport="stdio")
