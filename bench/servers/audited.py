"""Our own server with an audit log: `audited.py bare|normal|full|hash PORT TOOLS`."""

import sys
import tempfile

from pegboard import Board
from pegboard.middleware import Audit

SECRET = "a secret of the benchmark"

board = Board("bench", version="1.0.0")


@board.tool
async def add(a: float, b: float) -> float:
    """Adds two numbers."""
    return a + b


if __name__ == "__main__":
    way, port = sys.argv[1], int(sys.argv[2])
    with tempfile.TemporaryDirectory() as folder:
        match way:
            case "normal":
                board.use(Audit(folder, secret=SECRET))
            case "full":
                board.use(Audit(folder, secret=SECRET, sync="full"))
            case "hash":
                board.use(Audit(folder, secret=SECRET, arguments="hash"))
        board.run(transport="http", port=port)
