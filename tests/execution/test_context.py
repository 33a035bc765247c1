"""What a running tool may ask and say."""

from __future__ import annotations

import asyncio
import threading

import pytest

from pegboard import Board, CancellationToken, Client, Context


def boards() -> list[Board]:
    sync, coroutine = Board("sync"), Board("async")

    @sync.tool(name="work")
    def work_in_a_thread(ctx: Context) -> str:
        ctx.progress(1, 4)
        ctx.progress(2, 4, "half")
        ctx.progress(2, 4, "not further")
        ctx.progress(1, 4, "back")
        ctx.progress(4)
        return "done"

    @coroutine.tool(name="work")
    async def work_on_the_loop(ctx: Context) -> str:
        await ctx.progress(1, 4)
        await ctx.progress(2, 4, "half")
        await ctx.progress(2, 4, "not further")
        await ctx.progress(1, 4, "back")
        await ctx.progress(4)
        return "done"

    return [sync, coroutine]


@pytest.mark.parametrize("board", boards(), ids=lambda board: board.name)
async def test_progress_is_told_in_order_and_only_when_it_increases(board: Board) -> None:
    told: list[tuple[float, float | None, str | None]] = []
    async with Client(board) as client:
        result = await client.call("work", progress=lambda *step: told.append(step))
    assert result.text == "done"
    assert told == [(1, 4, None), (2, 4, "half"), (4, None, None)]


@pytest.mark.parametrize("board", boards(), ids=lambda board: board.name)
async def test_progress_that_nobody_asked_for_is_not_sent(board: Board) -> None:
    async with Client(board) as client:
        assert (await client.call("work")).text == "done"


async def test_a_slow_listener_slows_the_tool_down() -> None:
    board, let_on, order = Board(), asyncio.Event(), []

    @board.tool
    async def work(ctx: Context) -> str:
        await ctx.progress(1)
        order.append("tool goes on")
        return "done"

    async def listen(*_: object) -> None:
        await let_on.wait()
        order.append("listener is done")

    async with Client(board) as client:
        calling = asyncio.ensure_future(client.call("work", progress=listen))
        await asyncio.sleep(0)
        assert order == []
        let_on.set()
        await calling
    assert order == ["listener is done", "tool goes on"]


async def test_a_coroutine_may_tell_progress_from_a_thread_it_started() -> None:
    board, told = Board(), []

    @board.tool
    async def work(ctx: Context) -> str:
        await asyncio.to_thread(ctx.progress, 1)
        return "done"

    async with Client(board) as client:
        await client.call("work", progress=lambda *step: told.append(step))
    assert told == [(1, None, None)]


async def test_a_context_knows_its_caller() -> None:
    board = Board()

    @board.tool
    def who(ctx: Context) -> list[object]:
        return [
            ctx.client["name"],
            ctx.caller.version,
            ctx.caller.transport,
            ctx.caller.capabilities,
            ctx.request_id,
            ctx.cancelled,
        ]

    async with Client(board, name="inspector", capabilities={"roots": {}}) as client:
        result = await client.call("who")
    assert result.text == '["inspector","2026-07-28","direct",{"roots":{}},1,false]'


async def test_a_context_says_that_its_caller_has_left() -> None:
    board, begun, left = Board(), threading.Event(), threading.Event()

    @board.tool
    def work(ctx: Context, token: CancellationToken) -> None:
        begun.set()
        token.wait(20)
        if ctx.cancelled:
            left.set()

    async with Client(board) as client:
        calling = asyncio.ensure_future(client.call("work"))
        await asyncio.to_thread(begun.wait, 20)
        calling.cancel()
        assert await asyncio.to_thread(left.wait, 20)


def test_a_token_is_set_once_and_for_all() -> None:
    token = CancellationToken()
    assert not token.cancelled
    assert not token.wait(0)
    token.cancel()
    assert token.cancelled
    assert token.wait(20)
