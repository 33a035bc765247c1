"""`pegboard demo`: a board with tools to play with."""

from __future__ import annotations

import argparse
import asyncio
import socket
import sys
import time
from datetime import datetime
from typing import Annotated, Literal
from zoneinfo import ZoneInfo, available_timezones

from pegboard.board import Board
from pegboard.cli.flags import add_flags, read_settings, set_up_logging
from pegboard.cli.run import announce, command
from pegboard.errors import ToolError
from pegboard.execution.context import Context
from pegboard.serve import PORT, run
from pegboard.tools.constraints import Range
from pegboard.tools.naming import suggest

board = Board("demo", version="1.0.0", instructions="Small tools to try Pegboard with.")

_METRES = {"mm": 0.001, "cm": 0.01, "m": 1.0, "km": 1000.0, "in": 0.0254, "ft": 0.3048, "yd": 0.9144, "mi": 1609.344}
_GRAMS = {"g": 1.0, "kg": 1000.0, "oz": 28.349523125, "lb": 453.59237}


@board.tool
async def calculate(
    a: Annotated[float, "First number"],
    b: Annotated[float, "Second number"],
    operation: Literal["add", "subtract", "multiply", "divide"] = "add",
) -> float:
    """Calculates with two numbers."""
    match operation:
        case "add":
            return a + b
        case "subtract":
            return a - b
        case "multiply":
            return a * b
        case "divide":
            if b == 0:
                raise ToolError("b is 0: a number cannot be divided by zero")
            return a / b


@board.tool
async def text_statistics(text: Annotated[str, "Any text"]) -> dict[str, int]:
    """Counts the characters, words and lines of a text."""
    return {"characters": len(text), "words": len(text.split()), "lines": len(text.splitlines())}


Unit = Literal["mm", "cm", "m", "km", "in", "ft", "yd", "mi", "g", "kg", "oz", "lb", "C", "F", "K"]


@board.tool
async def convert(
    value: float, source: Annotated[Unit, "Unit to convert from"], target: Annotated[Unit, "Unit to convert to"]
) -> float:
    """Converts lengths, weights and temperatures."""
    for table in (_METRES, _GRAMS):
        if source in table and target in table:
            return value * table[source] / table[target]
    if source in "CFK" and target in "CFK":
        kelvin = {"C": value + 273.15, "F": (value - 32) / 1.8 + 273.15, "K": value}[source]
        return {"C": kelvin - 273.15, "F": (kelvin - 273.15) * 1.8 + 32, "K": kelvin}[target]
    raise ToolError(f"{source} and {target} do not measure the same thing")


@board.tool
def time_in(zone: Annotated[str, "A time zone such as Europe/Oslo"] = "UTC") -> str:
    """Tells the time in a time zone."""
    if zone not in available_timezones():
        near = suggest(zone, available_timezones())
        raise ToolError(f"There is no time zone {zone!r}" + (f", did you mean {near[0]!r}?" if near else ""))
    return datetime.now(ZoneInfo(zone)).isoformat(timespec="seconds")


@board.tool
async def count_slowly(ctx: Context, steps: Annotated[int, Range(1, 20)] = 5) -> str:
    """Counts, a second a step, and tells how far it is."""
    for step in range(1, steps + 1):
        await asyncio.sleep(1)
        await ctx.progress(step, steps, f"{step} of {steps}")
    return f"counted to {steps}"


@board.tool
async def plan_trip(
    city: Annotated[str, "Where to"],
    days: Annotated[int, Range(1, 30)],
    travellers: Annotated[list[str], "Who goes"],
    budget: float | None = None,
    flexible: bool = False,
) -> dict[str, object]:
    """Plans a trip; send it sloppy arguments ("3" for 3, "yes" for true, one name for a list) and see them repaired."""
    return {"city": city, "days": days, "travellers": travellers, "budget": budget, "flexible": flexible}


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="pegboard demo", description="Serve a board with tools to play with, on this machine only."
    )
    add_flags(parser)
    chosen = parser.parse_args(argv)
    if chosen.transport == "auto":
        chosen.transport = "http"
    if chosen.port == PORT and chosen.uds is None:
        chosen.port = _free_port(PORT)
    set_up_logging(chosen.log_level, chosen.log_format)
    began = time.monotonic()
    run(board, read_settings(chosen, announce=lambda url: _welcome(url, began)))
    return 0


def _welcome(url: str, began: float) -> None:
    announce(board, url, began)
    sloppy = """'{"city": "Oslo", "days": "3", "travellers": "Ada", "flexible": "yes"}'"""
    print(
        f"  sloppy   {command()} call {url} plan_trip {sloppy}\n  list     {command()} list {url}\n  stop     Ctrl+C",
        file=sys.stderr,
        flush=True,
    )


def _free_port(wanted: int) -> int:
    """The wanted port, or any free one if another server has it already."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", wanted))
        except OSError:
            return 0
    return wanted
