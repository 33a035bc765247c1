"""Sloppy calls side by side, in process: what Pegboard, FastMCP and the official SDK make of each (`python bench/sloppy.py`).

The calls and what each can only have meant are the table in tests/repair/sloppy.py; the tools are six plain functions that
keep what they are handed. `--calls` lists the calls that each of the three takes otherwise than meant.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import msgspec

from pegboard import Board, Client
from tests.repair.sloppy import CALLS, REFUSED, Sloppy
from tests.repair.sloppy_functions import FUNCTIONS, HANDED

# The error, or None, and whether anything was said about a repair.
Outcome = tuple[str | None, bool]
Calling = Callable[[str, Any], Awaitable[Outcome]]

RIGHT = "as meant"
TOLD = "of these, told"
LOST = "refused, though clear"
REFUSED_RIGHTLY = "refused, rightly"
WRONG = "taken otherwise"
COLUMNS = (RIGHT, TOLD, LOST, REFUSED_RIGHTLY, WRONG)
# What only the table's own schemas say, and no function can.
LEFT_OUT = {("choice by title", "paint"), ("name unknown where allowed", "query")}


def board() -> Board:
    hung = Board("sloppy")
    for function in FUNCTIONS.values():
        hung.add(function)
    return hung


def ours() -> Calling:
    client = Client(board())

    async def call(name: str, sent: Any) -> Outcome:
        raw = msgspec.Raw(msgspec.json.encode(sent))
        result = await client.request("tools/call", name=name, arguments=raw)
        told = bool(result.get("_meta", {}).get("dev.pegboard/parseWarnings"))
        return (result["content"][0]["text"] if result.get("isError") else None), told

    return call


def fastmcp() -> Calling:
    from fastmcp import FastMCP

    server = FastMCP("sloppy")
    for function in FUNCTIONS.values():
        server.tool(function)
    return _peer(server.call_tool)


def official() -> Calling:
    from mcp.server import MCPServer

    server = MCPServer("sloppy", log_level="CRITICAL")
    for function in FUNCTIONS.values():
        server.add_tool(function)
    return _peer(server.call_tool)


def _peer(call_tool: Callable[[str, Any], Awaitable[Any]]) -> Calling:
    async def call(name: str, sent: Any) -> Outcome:
        try:
            result = await call_tool(name, sent)
        except Exception as refusal:  # noqa: BLE001 — each refuses in its own way
            return str(refusal) or type(refusal).__name__, False
        failed = getattr(result, "is_error", False)
        return (str(result) if failed else None), False

    return call


async def judge(sloppy: Sloppy, call: Calling, meant: Mapping[str, Any] | None) -> list[str]:
    """The columns that a call counts in."""
    HANDED.clear()
    error, told = await call(sloppy.tool, sloppy.sent)
    if error is not None or not HANDED:
        return [REFUSED_RIGHTLY if meant is None else LOST]
    if meant is None or HANDED[-1] != meant:
        return [WRONG]
    return [RIGHT, TOLD] if told else [RIGHT]


async def main() -> None:
    logging.disable(logging.CRITICAL)
    tools = board().tools
    judged = [sloppy for sloppy in CALLS if (sloppy.kind, sloppy.tool) not in LEFT_OUT]
    frameworks = {"Pegboard": ours(), "FastMCP": fastmcp(), "official SDK": official()}
    strayed: list[str] = []
    print(f"{len(judged)} sloppy calls of {len(FUNCTIONS)} tools\n")
    print(f"| {'':14} | {' | '.join(COLUMNS)} |\n|---|{'---|' * len(COLUMNS)}")
    for name, call in frameworks.items():
        counted: Counter[str] = Counter()
        for sloppy in judged:
            meant = None
            if sloppy.becomes is not REFUSED:
                meant = tools.find(sloppy.tool).parse(msgspec.json.encode(sloppy.becomes), "strict").arguments
            columns = await judge(sloppy, call, meant)
            counted.update(columns)
            if columns[0] in (LOST, WRONG):
                strayed.append(f"{name:13} {columns[0]:22} {sloppy.kind}: {sloppy.tool} {sloppy.sent!r}")
        print(f"| {name:14} | {' | '.join(f'{counted[column]:{len(column)}}' for column in COLUMNS)} |")
    if "--calls" in sys.argv:
        print("\n" + "\n".join(strayed))


if __name__ == "__main__":
    asyncio.run(main())
