"""Calls that continue as tasks: the client waits for them, or returns their id."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from pegboard import Accepted, Board, Client, Context, ToolError
from pegboard.errors import Refusal
from tests.server.asgi.test_asgi_app import serving
from tests.waiting import SOON


def make_board(begun: asyncio.Event | None = None, ended: asyncio.Event | None = None) -> Board:
    board = Board("tasks")

    @board.tool(task="required")
    async def index(ctx: Context, fail: bool = False) -> int:
        await ctx.progress(1, 2, "half")
        answer = await ctx.elicit("Go on?", bool, key="go")
        if fail or not isinstance(answer, Accepted) or not answer.content:
            raise ToolError("stopped")
        return 2

    @board.tool(task="optional")
    async def quick() -> str:
        return "quick"

    @board.tool(task="optional")
    async def endless() -> str:
        try:
            if begun is not None:
                begun.set()
            await asyncio.Event().wait()
        finally:
            if ended is not None:
                ended.set()
        return ""

    return board


@asynccontextmanager
async def client_of(board: Board, door: str, **options: Any) -> AsyncIterator[Client]:
    if door == "direct":
        async with Client(board, **options) as client:
            yield client
        return
    async with serving(board.asgi()) as port, Client(f"http://127.0.0.1:{port}/mcp", **options) as client:
        yield client


@pytest.mark.parametrize("door", ["direct", "http"])
async def test_a_tool_that_runs_only_as_a_task_is_waited_for(door: str) -> None:
    heard: list[str | None] = []
    async with client_of(make_board(), door, elicit=lambda asked: {"value": True}) as client:
        result = await client.call("index", progress=lambda done, total, message: heard.append(message))
        assert (result.structured, result.task) == (2, None)
        if door == "direct":
            assert await client.call("index", result_type=int) == 2
            assert (await client.call("index", {"fail": True})).text == "stopped"
    assert heard in ([], ["half"])


async def test_a_task_is_returned_on_request_and_finished_or_cancelled_later() -> None:
    board = make_board()
    async with Client(board, elicit=lambda asked: {"value": True}) as client:
        started = await client.call("index", wait=False)
        assert started.task
        assert started.content == []
        assert (await client.finish_task(started.task)).structured == 2
        assert (await client.call("quick")).text == "quick"
        endless = await client.call("endless", wait=False)
        assert endless.task
        await client.cancel_task(endless.task)
        with pytest.raises(ToolError, match="cancelled the task"):
            await client.finish_task(endless.task)
        with pytest.raises(Refusal, match="Unknown task"):
            await client.finish_task("other")


async def test_a_wait_that_is_cancelled_cancels_the_task() -> None:
    begun, ended = asyncio.Event(), asyncio.Event()
    tasks = {"extensions": {"io.modelcontextprotocol/tasks": {}}}
    async with Client(make_board(begun, ended), capabilities=tasks) as client:
        call = asyncio.create_task(client.call("endless"))
        await asyncio.wait_for(begun.wait(), SOON)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await asyncio.wait_for(ended.wait(), SOON)
