"""What a hook costs: ten thousand calls in process without hooks and with three no-op ones, in turns.

`.venv/bin/python bench/hooks.py [ROUNDS]` prints CPU µs and says whether one stays within its budget.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Mapping
from statistics import median
from typing import Any

from pegboard import Board, Client, Middleware
from pegboard.call import Call, Handler, Reply

BUDGET = 0.5
CALLS = 10_000
HOOKS = 3


class Noop(Middleware):
    async def before(self, call: Call) -> None:
        pass

    async def after(self, call: Call, result: Mapping[str, Any], elapsed_ms: float) -> None:
        pass

    async def error(self, call: Call, exception: BaseException, elapsed_ms: float) -> None:
        pass


class Disabled(Noop):
    enabled = False


class Plain(Middleware):
    def before(self, call: Call) -> None:  # type: ignore[override]
        pass

    def after(self, call: Call, result: Mapping[str, Any], elapsed_ms: float) -> None:  # type: ignore[override]
        pass


class Around(Middleware):
    async def around(self, call: Call, proceed: Handler) -> Reply:
        return await proceed(call)


async def add(a: float, b: float) -> float:
    return a + b


def client(*middleware: Middleware) -> Client:
    board = Board("bench")
    board.tool(add)
    board.use(*middleware)
    return Client(board)


async def spell(calling: Client, calls: int) -> float:
    arguments = {"a": 2, "b": 3}
    began = time.process_time_ns()
    for _ in range(calls):
        await calling.call("add", arguments)
    return (time.process_time_ns() - began) / calls / 1000


async def main(rounds: int) -> bool:
    kinds = {"async": Noop, "plain": Plain, "around": Around, "disabled": Disabled}
    without = client()
    clients = {name: client(*(kind() for _ in range(HOOKS))) for name, kind in kinds.items()}
    bare: list[float] = []
    added: dict[str, list[float]] = {name: [] for name in kinds}
    # Short spells in turns: what else the machine does hits both sides of each difference alike.
    for _ in range(rounds * 10):
        base = await spell(without, CALLS // 10)
        bare.append(base)
        for name, calling in clients.items():
            added[name].append((await spell(calling, CALLS // 10) - base) / HOOKS)
    print(
        f"Python {sys.version.split()[0]}, {rounds} × {CALLS:,} calls; a call without hooks {median(bare):.2f} µs of CPU"
    )
    for name, costs in added.items():
        print(f"  each of {HOOKS} {name:8} {median(costs):+.2f} µs")
    within = median(added["async"]) <= BUDGET
    print(f"budget {BUDGET} µs for a hook with before, after and error: {'kept' if within else 'EXCEEDED'}")
    return within


if __name__ == "__main__":
    sys.exit(not asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 5)))
