"""What reading arguments costs, in process: calls that fit and calls that are repaired (`python bench/tools.py [SECONDS]`).

Targets: a repaired call costs at most 10 times one that fits, and at most 20 µs for each repaired argument.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Mapping
from typing import Any

from pegboard import Board, Client, JsonRpcMessage

NUMBERS = {"type": "object", "properties": {"a": {"type": "number"}, "b": {"type": "number"}}, "required": ["a", "b"]}

# name, tool, arguments, how many of them are repaired
Case = tuple[str, str, Mapping[str, Any], int]
CASES: list[Case] = [
    ("magic, fits", "add", {"a": 2, "b": 3}, 0),
    ("magic, one number as text", "add", {"a": "2", "b": 3}, 1),
    ("magic, both as text", "add", {"a": "2", "b": "3"}, 2),
    ("magic, a name by case", "add", {"A": 2, "b": 3}, 1),
    ("explicit, fits", "add_raw", {"a": 2, "b": 3}, 0),
    ("explicit, one number as text", "add_raw", {"a": "2", "b": 3}, 1),
    ("list, fits", "total", {"numbers": [1, 2, 3]}, 0),
    ("list, as JSON text", "total", {"numbers": "[1, 2, 3]"}, 1),
    ("list, three items as text", "total", {"numbers": ["1", "2", "3"]}, 3),
]


async def add(a: float, b: float) -> float:
    """Adds two numbers."""
    return a + b


async def add_raw(request: JsonRpcMessage) -> float:
    """Adds two numbers."""
    return float(request.params["a"] + request.params["b"])


async def total(numbers: list[int]) -> int:
    """Adds them all."""
    return sum(numbers)


async def measure(client: Client, case: Case, seconds: float) -> float:
    """The median of short spells, in µs of CPU."""
    _, tool, arguments, _ = case
    result = await client.call(tool, arguments)
    if result.is_error:
        raise SystemExit(f"{case[0]}: {result.text}")
    spells: list[float] = []
    until = time.monotonic() + seconds
    while len(spells) < 5 or time.monotonic() < until:
        began = time.process_time_ns()
        for _ in range(200):
            await client.call(tool, arguments)
        spells.append((time.process_time_ns() - began) / 200 / 1000)
    return sorted(spells)[len(spells) // 2]


async def main() -> int:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 0.5
    board = Board("bench")
    board.add(add)
    board.add(add_raw, input_schema=NUMBERS)
    board.add(total)
    missed, fitting = 0, 0.0
    print(f"{'call':32} {'µs':>7} {'× fitting':>10} {'µs a repair':>12}")
    async with Client(board) as client:
        for case in CASES:
            cost = await measure(client, case, seconds)
            name, *_, repairs = case
            if not repairs:
                fitting = cost
                print(f"{name:32} {cost:7.1f}")
                continue
            times, each = cost / fitting, (cost - fitting) / repairs
            missed += times > 10 or each > 20
            print(f"{name:32} {cost:7.1f} {times:10.1f} {each:12.1f}")
    print("all within the targets" if not missed else f"{missed} over a target")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
