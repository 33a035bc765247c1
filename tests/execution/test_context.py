"""What a running tool may ask and say."""

from __future__ import annotations

import asyncio
import contextlib
import math
import threading
from typing import Any

import pytest

from pegboard import Board, CancellationToken, Client, Context
from pegboard.call import Call, Handler, Reply
from pegboard.middleware import Retry


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
async def test_progress_is_reported_in_order_and_only_when_it_increases(board: Board) -> None:
    told: list[tuple[float, float | None, str | None]] = []
    async with Client(board) as client:
        result = await client.call("work", progress=lambda *step: told.append(step))
    assert result.text == "done"
    assert told == [(1, 4, None), (2, 4, "half"), (4, None, None)]


async def test_progress_increases_also_where_a_call_is_tried_again_with_other_arguments() -> None:
    board, told, runs = Board(), list[float](), list[int]()

    async def anew(call: Call, proceed: Handler) -> Reply:
        return await proceed(call.with_arguments({}))

    board.use(Retry(2, tools=["work"], wait=0.001), anew)

    @board.tool
    async def work(ctx: Context) -> str:
        runs.append(1)
        for step in range(3 * len(runs)):
            await ctx.progress(step)
        if len(runs) == 1:
            raise ConnectionError
        return "done"

    async with Client(board) as client:
        assert (await client.call("work", progress=lambda done, *_: told.append(done))).text == "done"
    assert told == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("kind", ["progress", "log"])
async def test_a_tool_that_does_nothing_but_send_notifications_can_be_cancelled(kind: str) -> None:
    board, ended = Board(), list[str]()

    @board.tool
    async def work(ctx: Context) -> None:
        ended.append("completed")
        try:
            for step in range(2000):
                await (ctx.progress(step) if kind == "progress" else ctx.log("info", "still here"))
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise

    def leave(*_: object) -> None:
        calling.cancel()

    async with Client(board, log=leave, log_level="info") as client:
        calling = asyncio.ensure_future(client.call("work", progress=leave))
        with pytest.raises(asyncio.CancelledError):
            await calling
    assert ended[1:] == ["cancelled"]


@pytest.mark.parametrize("board", boards(), ids=lambda board: board.name)
async def test_progress_that_was_not_requested_is_not_sent(board: Board) -> None:
    async with Client(board) as client:
        assert (await client.call("work")).text == "done"


@pytest.mark.parametrize(("done", "total"), [("half", None), (math.nan, None), (1, math.inf), (None, 3)])
async def test_non_numeric_progress_is_rejected_with_or_without_a_listener(done: Any, total: Any) -> None:
    board, seen = Board(), list[str]()

    @board.tool
    async def work(ctx: Context) -> str:
        with pytest.raises(ValueError, match="Progress takes numbers"):
            await ctx.progress(done, total)
        seen.append("loop")
        return "done"

    @board.tool
    def work_in_a_thread(ctx: Context) -> str:
        with pytest.raises(ValueError, match="Progress takes numbers"):
            ctx.progress(done, total)
        seen.append("thread")
        return "done"

    async with Client(board) as client:
        await client.call("work")
        await client.call("work_in_a_thread", progress=lambda *_: None)
    assert seen == ["loop", "thread"]


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: object(), "must return a JSON value"),
        (lambda: math.nan, "must return a JSON value"),
        (5, "needs a function"),
    ],
)
async def test_what_cannot_be_kept_is_refused_by_the_name_it_was_to_have(make: Any, said: str) -> None:
    board, seen = Board(), list[str]()

    @board.tool
    async def work(ctx: Context) -> str:
        with pytest.raises(TypeError, match=rf"ctx\.keep.*{said}") as refused:
            await ctx.keep("winner", make)
        seen.append(str(refused.value))
        return "done"

    async with Client(board) as client:
        await client.call("work")
    assert "'winner'" in seen[0]


async def test_what_two_tasks_keep_under_one_name_is_one_value() -> None:
    board, made = Board(), iter(range(9))

    async def make() -> int:
        number = next(made)
        await asyncio.sleep(0)
        return number

    @board.tool
    async def work(ctx: Context) -> list[int]:
        return await asyncio.gather(ctx.keep("it", make), ctx.keep("it", make))

    async with Client(board) as client:
        assert (await client.call("work")).structured == [0, 0]


async def test_what_is_asked_has_to_be_a_question() -> None:
    board, seen = Board(), list[str]()

    @board.tool
    async def work(ctx: Context) -> str:
        with pytest.raises(TypeError, match="Elicit, Sample and Roots, got name='What"):
            await ctx.ask(name="What is your name?")  # type: ignore[arg-type]  # as careless authors do
        seen.append("refused")
        return "done"

    async with Client(board) as client:
        await client.call("work")
    assert seen == ["refused"]


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


@pytest.mark.parametrize("timeout", [20, 0.01], ids=["by its caller", "by its timeout"])
async def test_a_cancelled_coroutine_sees_so_while_it_cleans_up(timeout: float) -> None:
    board, begun, seen = Board(), asyncio.Event(), list[bool]()

    @board.tool(timeout=timeout)
    async def work(ctx: Context, token: CancellationToken) -> None:
        seen.extend((ctx.cancelled, token.cancelled))
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            seen.extend((ctx.cancelled, token.cancelled))

    async with Client(board) as client:
        calling = asyncio.ensure_future(client.call("work"))
        await begun.wait()
        if timeout == 20:
            calling.cancel()
        await asyncio.wait([calling])

    assert seen == [False, False, True, True]


async def test_a_timeout_of_the_tool_itself_does_not_cancel_its_call() -> None:
    board = Board()

    @board.tool
    async def work(ctx: Context) -> bool:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0):
                await asyncio.Event().wait()
        return ctx.cancelled

    async with Client(board) as client:
        assert (await client.call("work")).text == "false"


def test_a_token_is_set_once_and_for_all() -> None:
    token = CancellationToken()
    assert not token.cancelled
    assert not token.wait(0)
    token.cancel()
    assert token.cancelled
    assert token.wait(20)


async def test_a_question_without_await_is_not_taken_for_consent(caplog: pytest.LogCaptureFixture) -> None:
    board = Board("unawaited")
    deleted = []

    @board.tool
    async def delete(ctx: Context) -> str:
        if ctx.elicit("Delete everything?", bool):
            deleted.append("everything")
        return "done"

    async with Client(board, elicit=lambda _: None) as client:
        assert (await client.call("delete")).is_error
    assert deleted == []
    assert "did you forget `await`?" in caplog.text


async def test_questions_can_be_asked_in_tasks_and_gathered() -> None:
    board = Board("gathered")

    @board.tool
    async def both(ctx: Context) -> list[str]:
        async with asyncio.TaskGroup() as group:
            first = group.create_task(ctx.elicit("First?", str))
        return [str(one.content) for one in (first.result(), *await asyncio.gather(ctx.elicit("Second?", str)))]

    async with Client(board, elicit=lambda asked: {"value": asked.message}) as client:
        assert await client.call("both", result_type=list[str]) == ["First?", "Second?"]


async def test_a_tool_that_returns_a_coroutine_is_asked_about_the_await(caplog: pytest.LogCaptureFixture) -> None:
    board = Board("coroutine")

    async def fetch() -> str:
        return "secret"

    @board.tool
    def plain() -> Any:
        return fetch()

    @board.tool
    async def awaited() -> Any:
        return fetch()

    @board.tool
    async def question(ctx: Context) -> Any:
        return ctx.elicit("Sure?", bool)

    async with Client(board, elicit=lambda _: None) as client:
        for name in ("plain", "awaited", "question"):
            caplog.clear()
            result = await client.call(name)
            assert result.is_error
            assert result.text.endswith("did you forget `await`?")
            assert "did you forget `await`?" in caplog.text
