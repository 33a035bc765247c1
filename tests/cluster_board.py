"""A board whose tools show which process runs them, and wait for files that a test makes."""

from __future__ import annotations

import asyncio
import os
import secrets
from pathlib import Path

from pegboard import Accepted, Board, Context, Limits

board = Board(
    "crew",
    limits=Limits(
        worker_seconds=float(os.environ.get("CREW_LEASE", "1.5")),
        drain_seconds=float(os.environ.get("CREW_DRAIN", "10")),
        task_seconds=600,
    ),
)

FORM = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}


async def there(path: str) -> None:
    while not Path(path).exists():  # noqa: ASYNC110, ASYNC240 — another process makes it
        await asyncio.sleep(0.005)


def mark(path: str) -> None:
    place = Path(path)
    if place.parent.exists():
        place.touch()


@board.tool(inline=True)
def pid() -> int:
    """Says which process this is."""
    return os.getpid()


@board.tool
async def steps(count: int, gate: str, ctx: Context) -> str:
    """Leaves a mark beside the gate, says one thing, waits for the gate, and says the rest."""
    mark(f"{gate}.{secrets.token_hex(4)}")
    for number in range(1, count + 1):
        await ctx.progress(number, count)
        if number == 1:
            await there(gate)
    return f"{count} steps by {os.getpid()}"


@board.tool
async def pace(count: int, seconds: float, ctx: Context) -> str:
    """Says so many things, and who says them, with pauses between."""
    for number in range(1, count + 1):
        await ctx.progress(number, count, str(os.getpid()))
        await asyncio.sleep(seconds)
    return str(count)


@board.tool
async def hold(cancelled: str, ctx: Context) -> str:
    """Says one thing and never ends; once it was cancelled that file is there."""
    await ctx.progress(1)
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        mark(cancelled)
        raise
    return "never"


@board.tool
async def poll(gate: str, ctx: Context) -> str:
    """Lets its client hang up, and later again, wherever that then is."""
    await ctx.close_stream(50)
    await there(gate)
    await ctx.progress(1)
    await ctx.close_stream(60)
    return "polled"


@board.tool
async def ask(ctx: Context) -> str:
    """Asks who is there."""
    answer = await ctx.elicit("Who is there?", FORM)
    return f"{answer.content['name']} is there" if isinstance(answer, Accepted) else "nobody is there"


@board.tool
def grow(name: str) -> str:
    """Hangs one more tool, in this process."""
    board.add(lambda: name, name=name)
    return name


@board.tool
def touch(uri: str) -> str:
    """Says that a resource has changed."""
    board.resource_changed(uri)
    return uri


@board.resource("notes://{name}")
def note(name: str) -> str:
    return name


@board.tool(task="required")
async def job(gate: str, ctx: Context) -> str:
    """Works until the gate is there; asks first."""
    answer = await ctx.elicit("Who is there?", FORM, key="who")
    await there(gate)
    name = answer.content["name"] if isinstance(answer, Accepted) else "nobody"
    return f"{name}, by {os.getpid()}"


@board.tool(task="required")
async def work(gate: str) -> str:
    """Works until the gate is there, and leaves a mark beside it when it is done, or ended."""
    try:
        await there(gate)
    finally:
        mark(gate + ".done")
    return "worked"
