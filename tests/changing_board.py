"""A board whose tools change the board itself; tests serve it in processes of its own."""

from __future__ import annotations

import threading

from pegboard import Board

board = Board("changing")


@board.resource("notes://{name}")
async def note(name: str) -> str:
    return name


@board.prompt
async def greet() -> str:
    return "Hello"


@board.tool
async def hang(kind: str, what: str) -> str:
    """Hangs a tool, a prompt or a resource."""
    if kind == "tools":
        board.add(lambda: 1, name=what)
    elif kind == "prompts":
        board.prompt(what)(lambda: "x")
    else:
        board.resource(f"notes:{what}")(lambda: "x")
    return "hung"


@board.tool
def hang_in_thread(what: str) -> str:
    """Hangs a tool from the thread that synchronous tools run in."""
    board.add(lambda: 1, name=what)
    return threading.current_thread().name


@board.tool
async def touch(uri: str, times: int = 1) -> str:
    """Says that a resource has changed."""
    for _ in range(times):
        board.resource_changed(uri)
    return "touched"
