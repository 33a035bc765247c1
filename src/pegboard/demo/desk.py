"""Sums, units, texts and trips: the server in the gateway's process."""

from __future__ import annotations

from typing import Annotated, Literal

from pegboard import Board, Range, ToolError

board = Board("desk", version="1.0.0")

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
                raise ToolError("b is 0: cannot divide by zero")
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
    raise ToolError(f"{source} and {target} are units of different quantities")


@board.tool
async def plan_trip(
    city: Annotated[str, "Where to"],
    days: Annotated[int, Range(1, 30)],
    travellers: Annotated[list[str], "Who goes"],
    budget: float | None = None,
    flexible: bool = False,
) -> dict[str, object]:
    """Plans a trip; send it sloppy arguments ("3" for 3, "yes" for true, one name for a list) to see them repaired."""
    return {"city": city, "days": days, "travellers": travellers, "budget": budget, "flexible": flexible}
