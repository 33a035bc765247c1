"""Our own server with so much of one thing: `growing.py hooks|rules PORT COUNT`."""

import sys
from collections.abc import Mapping
from typing import Any

from pegboard import Board, Middleware
from pegboard.call import Call


class Noop(Middleware):
    async def before(self, call: Call) -> None:
        pass

    async def after(self, call: Call, result: Mapping[str, Any], elapsed_ms: float) -> None:
        pass


def main(kind: str, port: int, count: int) -> None:
    rules = [{"who": f"caller {number}", "allow": [f"add_{number}"]} for number in range(count - 1)]
    board = Board("bench", rules=[*rules, {"who": "*", "allow": ["add"]}] if kind == "rules" else ())

    @board.tool
    async def add(a: float, b: float) -> float:
        """Adds two numbers."""
        return a + b

    if kind == "hooks":
        for _ in range(count):
            board.use(Noop())
    board.run(transport="http", port=port)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
