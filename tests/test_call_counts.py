"""What one call over HTTP costs, as counts that do not depend on the machine: calls of functions, and memory kept.

`pytest -s tests/test_call_counts.py` prints the counts. `bench/instructions.py` counts instructions.
"""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import FrameType
from typing import Any

import pytest

from pegboard import Board, Context, Limits
from pegboard.console.board_subject import BoardSubject
from pegboard.console.console import Console
from pegboard.server.http.guard import Guard
from pegboard.server.http.listener import listen
from pegboard.server.streamable_http.mcp_endpoint import HttpEndpoint
from tests.test_walk import HOME, Connection, adding_board

CALLS = 200
# Until every cache has seen the calls, and the history of a console drops a call for each new one.
WARM_UP = 2100


class Counter:
    """Counts the functions of ours that are entered, and the C functions that these call."""

    def __init__(self) -> None:
        self.python = 0
        self.native = 0

    def note(self, frame: FrameType, event: str, _argument: object) -> None:
        if event in ("call", "c_call") and frame.f_code.co_filename.startswith(HOME):
            if event == "call":
                self.python += 1
            else:
                self.native += 1


@asynccontextmanager
async def clients(way: str) -> AsyncIterator[list[Connection]]:
    """Clients that take turns; those of mixed sessions share a connection, as behind a proxy."""
    board = adding_board()
    if way == "console":
        Console(BoardSubject(board))
    server = await listen(HttpEndpoint(board.handler, board.info, limits=Limits(), guard=Guard()), Limits())
    streams = await asyncio.open_connection("127.0.0.1", server.port)
    found = [Connection(*streams, "legacy" if way == "mixed" else "modern") for _ in range(4 if way == "mixed" else 1)]
    for client in found:
        await client.open()
    try:
        yield found
    finally:
        await found[0].close()
        await server.close()


async def call(client: Connection) -> None:
    result: Any = await client.call("add_async", {"a": 1, "b": 2})
    assert result["structuredContent"] in (3, {"result": 3})


# A plain call, calls of several sessions on one connection, and a call that a console without a page keeps. Before Python
# 3.12 there are no eager tasks: the response is written by the callbacks of a task.
@pytest.mark.parametrize(
    ("way", "most_python", "most_native"), [("modern", 23, 41), ("mixed", 27, 51), ("console", 24, 58)]
)
async def test_a_call_enters_few_functions(way: str, most_python: int, most_native: int) -> None:
    async with clients(way) as connections:
        for number in range(20):
            await call(connections[number % len(connections)])
        counts = []
        for number in range(20):
            counter = Counter()
            sys.setprofile(counter.note)
            await call(connections[number % len(connections)])
            sys.setprofile(None)
            counts.append((counter.python, counter.native))
    # A timer or a finalizer may run meanwhile; a call whose number has one digit more than the last has a longer body.
    python, native = sorted(counts)[len(counts) // 2]
    print(f"\n{way}: {python} functions of ours, {native} native functions")
    older = sys.version_info < (3, 12)
    assert python <= most_python + (5 if older else 0)
    assert native <= most_native + (14 if older else 0)


@pytest.mark.parametrize("way", ["modern", "mixed", "console"])
async def test_calls_leave_nothing_in_memory(way: str) -> None:
    async with clients(way) as connections:
        for number in range(WARM_UP if way == "console" else CALLS):
            await call(connections[number % len(connections)])
        gc.collect()
        before = sys.getallocatedblocks()
        for number in range(CALLS):
            await call(connections[number % len(connections)])
        gc.collect()
        kept = sys.getallocatedblocks() - before
    print(f"\n{way}: {kept} blocks of memory after {CALLS} calls")
    assert kept < CALLS // 4


# Those of a call that only opens and ends a stream, and those of each event. An event that gives the loop a turn, about one
# each millisecond, takes a few more.
@pytest.mark.parametrize(("era", "most_of_call", "most_of_event"), [("modern", 64, 9), ("legacy", 97, 19)])
async def test_a_progress_event_enters_few_functions(era: str, most_of_call: int, most_of_event: int) -> None:
    board = Board("steps")

    @board.tool
    async def steps(count: int, ctx: Context) -> None:
        for step in range(count):
            await ctx.progress(step, count, "working")

    server = await listen(HttpEndpoint(board.handler, board.info, limits=Limits(), guard=Guard()), Limits())
    client = Connection(*await asyncio.open_connection("127.0.0.1", server.port), era)
    await client.open()

    async def entered(count: int) -> int:
        counts = []
        for _ in range(10):
            counter = Counter()
            sys.setprofile(counter.note)
            client.send_call("steps", {"count": count}, token="t")
            await client.read_until(b"\r\n0\r\n\r\n")
            sys.setprofile(None)
            counts.append(counter.python)
        return sorted(counts)[len(counts) // 2]

    few, many = await entered(2), await entered(12)
    await client.close()
    await server.close()
    per_event = (many - few) / 10
    print(f"\n{era}: {few - 2 * per_event:.0f} functions of ours for the call, {per_event:.1f} for an event")
    assert few - 2 * per_event <= most_of_call + (12 if sys.version_info < (3, 12) else 0)
    assert per_event <= most_of_event
