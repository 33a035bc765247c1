"""`board.run()` and `await board.serve()`."""

from __future__ import annotations

import asyncio
import io
import sys

import pytest

from pegboard import Board, Client
from pegboard.errors import SetupError
from pegboard.server.hosting import loading
from tests.ports import free_port
from tests.waiting import SOON, until


class Terminal(io.StringIO):
    """A stderr that is a terminal."""

    def isatty(self) -> bool:
        return True


async def test_a_board_is_served_in_the_running_loop_until_it_is_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    board = Board("served")
    begun, finish = asyncio.Event(), asyncio.Event()

    @board.tool
    async def slow() -> str:
        begun.set()
        await finish.wait()
        return "done"

    shown = Terminal()
    monkeypatch.setattr(sys, "stderr", shown)
    port = free_port()
    serving = asyncio.create_task(board.serve("http", port=port))
    await until(lambda: f"served: serving HTTP at http://127.0.0.1:{port}/mcp" in shown.getvalue())
    async with Client(f"http://127.0.0.1:{port}/mcp") as client:
        call = asyncio.create_task(client.call("slow"))
        await asyncio.wait_for(begun.wait(), SOON)
        serving.cancel()
        # It waits for the call, and says so.
        told = "shutting down: waiting up to 10 s for 1 call (slow); press Ctrl+C again to stop now"
        await until(lambda: told in shown.getvalue())
        finish.set()
        assert (await call).text == "done"
    with pytest.raises(asyncio.CancelledError):
        await serving


async def test_run_in_a_running_loop_says_what_to_write_instead() -> None:
    with pytest.raises(RuntimeError, match=r"write `await board\.serve\(\)`"):
        Board("loop").run()


async def test_serve_does_not_start_workers() -> None:
    with pytest.raises(SetupError, match=r"use run\(\) to start worker processes"):
        await Board("workers").serve("http", port=0, workers=2)


async def test_serve_is_ignored_while_another_program_imports_the_file(caplog: pytest.LogCaptureFixture) -> None:
    token = loading.set(True)
    try:
        await Board("imported").serve("http", port=0)
    finally:
        loading.reset(token)
    assert "serve() is ignored while the file is imported" in caplog.text
