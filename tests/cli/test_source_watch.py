"""A server of a gateway restarts when its own file is edited."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from pegboard import Client, Gateway
from pegboard.background_tasks import end_tasks
from pegboard.cli.source_watch import SourceWatch
from pegboard.errors import PegboardError

SECONDS = 120.0
BOARD = """
from pegboard import Board

board = Board("x")

@board.tool
def price() -> str:
    return "old"

if __name__ == "__main__":
    board.run()
"""


async def until(look: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(SECONDS):
        while not await look():  # noqa: ASYNC110 — a file has no event
            await asyncio.sleep(0.05)


async def edit_and_fix(gateway: Gateway, file: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with Client(gateway) as client:
        await gateway.wait_connected(SECONDS)
        watching = asyncio.create_task(SourceWatch(gateway).run())

        async def answers(text: str) -> bool:
            # A call fails while the server restarts.
            try:
                return (await client.call("main__shop__price")).text == text
            except PegboardError:
                return False

        async def is_reported() -> bool:
            return f"{file}:12: SyntaxError" in caplog.text

        try:
            assert await answers("old")
            await asyncio.to_thread(file.write_text, BOARD + "def (")
            await until(is_reported)
            assert await answers("old")
            await asyncio.to_thread(file.write_text, BOARD.replace("old", "new"))
            await until(lambda: answers("new"))
        finally:
            await end_tasks(watching)


@pytest.mark.parametrize("kind", ["board", pytest.param("command", marks=pytest.mark.process)])
def test_an_edit_restarts_the_server_and_a_mistake_leaves_it(
    tmp_path: Path, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / f"watched_{kind}.py"
    file.write_text(BOARD)
    entries = {"board": {"board": str(file)}, "command": {"command": sys.executable, "args": [str(file)]}}
    gateway = Gateway({"mcpServers": {"shop": entries[kind]}})
    asyncio.run(edit_and_fix(gateway, file, caplog))
