"""What each middleware adds to a call: `middleware.py [SECONDS]` prints CPU µs, beside the targets of the design.

A call is one of a coroutine tool through the board's own handler, with no transport. Every case takes its turn in each
round, and its figure is the median over the rounds of the difference to the bare call of the same round.
"""

from __future__ import annotations

import asyncio
import io
import logging
import sys
import time
from collections.abc import Callable, Mapping
from statistics import median
from typing import Any

from msgspec import Raw

from pegboard import Board, Middleware
from pegboard.auth.principal import Principal
from pegboard.call import Call, Caller, Json, Notification, Question
from pegboard.middleware import (
    ConcurrencyLimit,
    Logging,
    RateLimit,
    Timeout,
    Timing,
    TokenBudget,
    TokenCount,
    estimate_tokens,
)
from pegboard.protocol.revisions import MODERN

CALLS = 500
NO_OP, BUILT_IN = 0.5, 5.0


class NoOp(Middleware):
    """Three hooks that do nothing."""

    async def before(self, call: Call) -> None:
        pass

    async def after(self, call: Call, result: Any, elapsed_ms: float) -> None:
        pass

    async def error(self, call: Call, exception: BaseException, elapsed_ms: float) -> None:
        pass


class Silent:
    """The channel of a caller that is sent nothing and asked nothing."""

    async def emit(self, notice: Notification) -> None:
        pass

    async def ask(self, asks: Mapping[str, Question]) -> Mapping[str, Json]:
        raise NotImplementedError

    async def close_stream(self, retry_ms: int) -> None:
        pass


async def add(a: float, b: float) -> float:
    """Adds two numbers."""
    return a + b


def logger(name: str) -> logging.Logger:
    """One that formats every line and writes it to memory."""
    made = logging.getLogger(f"bench.{name}")
    made.propagate = False
    made.setLevel(logging.INFO)
    made.addHandler(logging.StreamHandler(io.StringIO()))
    return made


def null_logger() -> logging.Logger:
    made = logging.getLogger("bench.null")
    made.propagate = False
    made.setLevel(logging.INFO)
    made.addHandler(logging.NullHandler())
    return made


# Name, target in µs if it is a built-in, and what is attached.
CASES: list[tuple[str, float, Callable[[], list[Middleware]]]] = [
    ("bare", 0.0, list),
    ("no-op hooks, 3", 0.0, lambda: [NoOp(), NoOp(), NoOp()]),
    ("no-op hooks, 10", 0.0, lambda: [NoOp() for _ in range(10)]),
    ("RateLimit, in memory", BUILT_IN, lambda: [RateLimit(1_000_000)]),
    ("ConcurrencyLimit", BUILT_IN, lambda: [ConcurrencyLimit(100)]),
    ("Logging, to no handler", BUILT_IN, lambda: [Logging(null_logger())]),
    ("Logging, a line", BUILT_IN, lambda: [Logging(logger("line"))]),
    ("Logging, JSON", BUILT_IN, lambda: [Logging(logger("json"), style="json")]),
    ("Timing", BUILT_IN, lambda: [Timing()]),
    ("TokenCount, exact", BUILT_IN, lambda: [TokenCount()]),
    ("TokenCount, estimated", BUILT_IN, lambda: [TokenCount(estimate_tokens)]),
    ("TokenBudget", BUILT_IN, lambda: [TokenBudget()]),
    ("Timeout", BUILT_IN, lambda: [Timeout(60)]),
]


async def measure(seconds: float) -> dict[str, list[float]]:
    """CPU µs per call of each case, one figure a round."""
    caller = Caller(
        version=MODERN, transport="direct", principal=Principal("bench"), client={"name": "bench", "version": "0"}
    )
    channel, raw = Silent(), Raw(b'{"a":2,"b":3}')
    handlers = {}
    for name, _, attach in CASES:
        board = Board("bench")
        board.tool(add)
        board.use(*attach())
        handlers[name] = board.handler
    spells: dict[str, list[float]] = {name: [] for name in handlers}
    until = time.monotonic() + seconds
    while time.monotonic() < until or len(spells["bare"]) < 5:
        for name, handler in handlers.items():
            began = time.process_time_ns()
            for _ in range(CALLS):
                await handler(Call(method="tools/call", caller=caller, channel=channel, id=1, name="add", raw=raw))
            spells[name].append((time.process_time_ns() - began) / CALLS / 1000)
    return {name: taken[2:] for name, taken in spells.items()}


def main() -> None:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 20.0
    spells = asyncio.run(measure(seconds))
    added = {
        name: median(one - bare for one, bare in zip(taken, spells["bare"], strict=True))
        for name, taken in spells.items()
    }
    few, many = added["no-op hooks, 3"], added["no-op hooks, 10"]
    each = (many - few) / 7
    print(f"a call without middleware: {median(spells['bare']):.2f} µs\n")
    print(f"{'':26} {'added µs':>9} {'target':>7}")
    print(f"{'a no-op hook, each':26} {each:9.2f} {NO_OP:7.1f}  {'ok' if each <= NO_OP else 'OVER'}")
    print(f"{'the stage they share, once':26} {few - 3 * each:9.2f}")
    for name, target, _ in CASES:
        if target == BUILT_IN:
            print(f"{name:26} {added[name]:9.2f} {target:7.1f}  {'ok' if added[name] <= target else 'OVER'}")
    print("\nA built-in is measured alone: what is added includes the stage.")


if __name__ == "__main__":
    main()
