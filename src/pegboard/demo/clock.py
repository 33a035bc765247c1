"""The time: the server on stdio."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Annotated
from zoneinfo import ZoneInfo, available_timezones

from pegboard import Board, Context, Range, ToolError
from pegboard.tools.naming import suggest

board = Board("clock", version="1.0.0")


@board.tool
def time_in(zone: Annotated[str, "A time zone such as Europe/Oslo"] = "UTC") -> str:
    """Returns the time in a time zone."""
    if zone not in available_timezones():
        near = suggest(zone, available_timezones())
        raise ToolError(f"Unknown time zone {zone!r}" + (f", did you mean {near[0]!r}?" if near else ""))
    return datetime.now(ZoneInfo(zone)).isoformat(timespec="seconds")


@board.tool
async def count_slowly(ctx: Context, steps: Annotated[int, Range(1, 20)] = 5) -> str:
    """Counts one step per second, and reports progress."""
    for step in range(1, steps + 1):
        await asyncio.sleep(1)
        await ctx.progress(step, steps, f"{step} of {steps}")
    return f"counted to {steps}"
