"""What reading arguments costs, in process: calls that fit and calls that are repaired (`python bench/tools.py [SECONDS]`).

Targets: a repaired call costs at most 10 times one that fits, and at most 20 µs for each repaired argument. The first is
the median of the ratios in each round, the second the difference between quiet rounds.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Mapping
from statistics import median
from typing import Any

from pegboard import Board, Client, JsonRpcMessage

CALLS = 50
ROUNDS = 40
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


async def measure(client: Client, seconds: float) -> dict[str, list[float]]:
    """CPU µs a call, of every case in every round; the cases take turns, so that what else runs here slows them alike."""
    spells: dict[str, list[float]] = {case[0]: [] for case in CASES}
    for name, tool, arguments, _ in CASES:
        result = await client.call(tool, arguments)
        if result.is_error:
            raise SystemExit(f"{name}: {result.text}")
    until = time.monotonic() + seconds
    while len(spells[CASES[0][0]]) < ROUNDS or time.monotonic() < until:
        for name, tool, arguments, _ in CASES:
            began = time.process_time_ns()
            for _ in range(CALLS):
                await client.call(tool, arguments)
            spells[name].append((time.process_time_ns() - began) / CALLS / 1000)
    return spells


async def main() -> int:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 4.0
    board = Board("bench")
    board.add(add)
    board.add(add_raw, input_schema=NUMBERS)
    board.add(total)
    async with Client(board) as client:
        spells = await measure(client, seconds)
    missed, fitting = 0, spells[CASES[0][0]]
    print(f"{'call':32} {'µs':>7} {'× fitting':>10} {'µs a repair':>12}")
    for name, _, _, repairs in CASES:
        cost = quartile(spells[name])
        if not repairs:
            fitting = spells[name]
            print(f"{name:32} {cost:7.1f}")
            continue
        times = median(mine / other for mine, other in zip(spells[name], fitting, strict=True))
        each = (cost - quartile(fitting)) / repairs
        missed += times > 10 or each > 20
        print(f"{name:32} {cost:7.1f} {times:10.1f} {each:12.1f}")
    print("all within the targets" if not missed else f"{missed} over a target")
    return 1 if missed else 0


def quartile(spells: list[float]) -> float:
    """What a quiet round costs: other processes only ever add to it."""
    return sorted(spells)[len(spells) // 4]


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
