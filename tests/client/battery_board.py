"""A board with one tool for each thing that a client has to be able to do; tests serve it over every transport."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Annotated, Any

from pegboard import Accepted, Board, Context, Header, Roots, Sample, ToolError

board = Board("battery", version="1.2.3", instructions="Try everything.")
held: dict[str, asyncio.Event] = {}
stopped: list[str] = []


@dataclass
class Point:
    x: int
    y: int


@dataclass
class Order:
    name: str
    count: int = 3


@board.tool
def add(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b


@board.tool
def move(x: int, y: int) -> Point:
    return Point(x + 1, y + 1)


@board.tool
def fail() -> str:
    raise ToolError("not today")


@board.tool
async def climb(steps: int, ctx: Context) -> str:
    for step in range(1, steps + 1):
        await ctx.progress(step, steps, f"step {step}")
    return "up"


@board.tool
async def grumble(ctx: Context) -> str:
    await ctx.log("warning", "mind the gap")
    return "said"


@board.tool
async def order(ctx: Context) -> str:
    answer = await ctx.elicit("What?", Order, key="order")
    return f"{answer.content.count} {answer.content.name}" if isinstance(answer, Accepted) else answer.action


@board.tool
async def interview(ctx: Context) -> str:
    """Asks once, then twice at once."""
    first = await ctx.elicit("Who?", str, key="who")
    name = first.content if isinstance(first, Accepted) else "nobody"
    answers = await ctx.ask(said=Sample(f"Greet {name}"), roots=Roots())
    said: Any = answers["said"]
    roots: Any = answers["roots"]
    return f"{said.text} {[root.uri for root in roots]}"


@board.tool
async def hold(key: str) -> str:
    """Waits until it is cancelled."""
    held.setdefault(key, asyncio.Event()).set()
    try:
        await asyncio.sleep(600)
    except asyncio.CancelledError:
        stopped.append(key)
        raise
    return "held"


@board.tool
async def dawdle(ctx: Context) -> str:
    """Says that it has begun, and never ends."""
    await ctx.progress(1)
    await asyncio.sleep(600)
    return "done"


@board.tool
async def is_held(key: str) -> bool:
    await held.setdefault(key, asyncio.Event()).wait()
    return True


@board.tool
async def has_begun(key: str) -> bool:
    return key in held and held[key].is_set()


@board.tool
async def was_stopped(key: str) -> bool:
    while key not in stopped:  # noqa: ASYNC110 — a cancelled call only writes it down
        await asyncio.sleep(0.005)
    return True


@board.tool
def route(region: Annotated[str, Header("Region")], size: Annotated[int, Header("Size")] = 1) -> str:
    return f"{region} {size}"


@board.tool
def grow(name: str) -> str:
    """Adds a tool."""
    board.tool(name)(lambda: name)
    return name


@board.tool
def long(size: int) -> str:
    return "x" * size


@board.tool
async def touch(uri: str, ctx: Context) -> str:
    await ctx.resource_changed(uri)
    return "touched"


@board.resource("memo://today")
def today() -> str:
    return "sunny"


@board.resource("memo://days/{day}")
def day(day: str) -> str:
    return f"rain on {day}"


@board.prompt
def review(code: str) -> str:
    return f"Review {code}"
