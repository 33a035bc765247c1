"""One client for every server: a board, a command, a URL or a configuration entry.

python examples/using_servers.py
"""

import asyncio
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pegboard import Board, Client, Context
from pegboard.client import Elicitation, Target
from pegboard.errors import ResponseTimeout, ServerFault

board = Board("shop")


@dataclass
class Order:
    item: str
    count: int = 1


@board.tool
async def order(ctx: Context) -> Order:
    """Asks what to order."""
    answer = await ctx.elicit("What shall it be?", Order, key="order")
    return answer.content or Order("nothing", 0)


@board.tool
async def pack(boxes: int, ctx: Context) -> str:
    """Packs boxes, one after the other."""
    for box in range(1, boxes + 1):
        await ctx.progress(box, boxes)
    return "packed"


TARGETS: dict[str, Target] = {
    "a board in this process": board,
    "a command": [sys.executable, "-m", "pegboard", "run", str(Path(__file__)), "--stdio"],
    "a configuration entry": {
        "command": sys.executable,
        "args": ["-m", "pegboard", "run", str(Path(__file__)), "--stdio"],
        "env": {"SHOP": "corner"},
    },
    # A URL works the same way: "https://example.com/mcp", or {"url": …, "headers": …}.
}


def fill_in(asked: Elicitation) -> dict[str, Any]:
    """Answers the form; omitted fields get the form's defaults."""
    return {"item": "apples"}


def show(done: float, total: float | None, message: str | None) -> None:
    print(f"{done:g} of {total:g}")


async def shop(target: Target) -> Order:
    async with Client(target, elicit=fill_in) as client:
        packed = await client.call("pack", {"boxes": 3}, progress=show)
        print(packed.text)
        return await client.call("order", result_type=Order)


async def shop_carefully(target: Target) -> str:
    try:
        async with Client(target, timeout=30, max_timeout=300, connect_timeout=20) as client:
            return (await client.call("pack", {"boxes": 1}, timeout=5)).text
    except ResponseTimeout as late:
        return f"too slow: {late}"
    except ServerFault as fault:
        return f"the server failed: {fault}"


async def main() -> None:
    for kind, target in TARGETS.items():
        print(f"{kind}: {await shop(target)}")
    print(await shop_carefully(["no-such-program"]))


if __name__ == "__main__":
    asyncio.run(main())
