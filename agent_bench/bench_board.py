"""The board that the agents are given: one tool for each case of `cases.py`."""

from __future__ import annotations

import base64
import os
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from pegboard import Accepted, Board, Context, File, Image, Link, ToolError, ToolResult
from pegboard.errors import Busy, InternalFailure
from pegboard.media import Text
from pegboard.middleware import TokenBudget

board = Board("bench", version="1.0.0")
board.use(TokenBudget(None, tools={"read_novel": 200}))

PNG = base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR42mP4z8AAAAMBAQD3A0FDAAAAAElFTkSuQmCC")
LINES = 4_000
NOTE = "note-of-the-server: b was read as number 3"


@dataclass
class Weather:
    """The weather at a place."""

    place: str
    celsius: float
    sky: Literal["clear", "cloudy", "rain"]


@dataclass
class Parcel:
    """A parcel."""

    kilograms: float


@board.tool
async def join_words(first: str, count: int) -> str:
    """Repeats a word and says how often."""
    return f"{first} x{count}"


@board.tool
async def add_numbers(a: float, b: float) -> float:
    """Adds two numbers."""
    return a + b


@board.tool
async def set_alarm(at: datetime) -> str:
    """Sets an alarm."""
    return f"alarm at {at:%H:%M}"


@board.tool
async def weigh_parcel(sent: datetime) -> Parcel:
    """Weighs a parcel."""
    return Parcel(2.75)


@board.tool
async def get_weather(place: str, unit: Literal["celsius", "kelvin"] = "celsius", days: int = 1) -> Weather:
    """Returns the weather at a place.

    place: the name of a town
    unit: the unit of the temperature
    days: how many days ahead, from 1
    """
    return Weather(place, 21.5, "clear")


@board.tool
async def print_page() -> str:
    """Prints a page."""
    raise ToolError("The printer is out of paper. Ask the user to refill tray 2, then call print_page again.")


@board.tool
async def break_down() -> str:
    """Fails with an error of the protocol."""
    raise InternalFailure("The warehouse is closed until 06:00 UTC; use find_goods instead.")


@board.tool
async def print_poster() -> str:
    """Is too busy to print a poster: over HTTP, the status is 503."""
    raise Busy("All printers are busy; call print_poster again in 10 seconds.")


@board.tool
async def draw_dot() -> list[str | Image]:
    """Draws a dot."""
    return ["A red dot:", Image(PNG, mime_type="image/png")]


@board.tool
async def read_log() -> str:
    """Returns a long log."""
    return "\n".join(f"log line {number}" for number in range(1, LINES + 1))


@board.tool
async def read_novel() -> str:
    """Returns more text than its token budget allows."""
    return " ".join(f"word{number}" for number in range(1, 2_000))


@board.tool
async def find_report() -> Link:
    """Finds the report of this year."""
    return Link("https://example.com/report-2026.pdf", name="report-2026", description="Sales in 2026, 12 pages")


@board.tool
async def bake_bread(ctx: Context) -> str:
    """Bakes bread and reports progress."""
    for step in range(1, 4):
        await ctx.progress(step, total=3, message=f"oven step {step}")
    return "The bread is ready."


@board.tool
async def delete_file(ctx: Context) -> str:
    """Deletes a file, if the user agrees."""
    answer = await ctx.elicit("Delete notes.txt?", bool)
    if isinstance(answer, Accepted) and answer.content:
        return "notes.txt is deleted."
    return f"notes.txt is kept: the user's answer was {getattr(answer, 'action', 'accept')}."


@board.tool
async def plant_tool() -> str:
    """Adds the tool pick_flower to this server."""

    async def pick_flower() -> str:
        """Picks a flower."""
        return "A tulip."

    if "pick_flower" not in board.tools:
        board.add(pick_flower)
    return "The tool pick_flower was added."


@board.tool
async def stop_server() -> str:
    """Ends the process of this server."""
    os._exit(3)


# -- carriers: the same note beside structured content, each time at another place -----------------------------------

SUM = {"type": "object", "properties": {"sum": {"type": "number"}}, "required": ["sum"]}


@board.tool(output_schema=SUM)
async def carry_after() -> ToolResult:
    """Returns a sum, with a note in a text block after it."""
    return ToolResult([Text('{"sum":5}'), Text(NOTE)], structured={"sum": 5})


@board.tool(output_schema=SUM)
async def carry_before() -> ToolResult:
    """Returns a sum, with a note in a text block before it."""
    return ToolResult([Text(NOTE), Text('{"sum":5}')], structured={"sum": 5})


@board.tool(output_schema=SUM)
async def carry_meta() -> ToolResult:
    """Returns a sum, with a note in `_meta`."""
    return ToolResult('{"sum":5}', structured={"sum": 5}, meta={"dev.pegboard/note": NOTE})


@board.tool(output_schema=SUM)
async def carry_file() -> ToolResult:
    """Returns a sum, with a note in an embedded resource."""
    return ToolResult([Text('{"sum":5}'), File(text=NOTE, uri="note://1")], structured={"sum": 5})


@board.tool(output_schema=SUM)
async def carry_link() -> ToolResult:
    """Returns a sum, with a note in the description of a resource link."""
    return ToolResult([Text('{"sum":5}'), Link("note://1", name="note", description=NOTE)], structured={"sum": 5})


@board.tool(output_schema=SUM)
async def carry_log(ctx: Context) -> ToolResult:
    """Returns a sum, with a note in a log message."""
    await ctx.log("warning", NOTE)
    return ToolResult('{"sum":5}', structured={"sum": 5})


@board.tool
async def carry_plain() -> ToolResult:
    """Returns a sum as text, with a note in a text block after it and no structured content."""
    return ToolResult([Text("The sum is 5."), Text(NOTE)])
