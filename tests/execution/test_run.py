"""Running one tool for one call: threads, failures, generators, time limits."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from pegboard import (
    Board,
    CancellationToken,
    Client,
    Context,
    JsonRpcMessage,
    Limits,
    Tool,
    ToolError,
    ToolResponse,
)
from pegboard.call import Call, Handler, Reply
from pegboard.client.client import CallResult
from pegboard.errors import InvalidParams, Refusal
from pegboard.middleware import Timeout
from tests.depth import every_case
from tests.loops import skip
from tests.waiting import SOON

pytestmark = every_case

Told = list[tuple[float, float | None, str | None]]


async def call(board: Board, name: str, **arguments: Any) -> CallResult:
    async with Client(board) as client:
        return await client.call(name, arguments)


async def test_a_sync_tool_runs_in_a_thread_and_an_async_one_on_the_loop() -> None:
    board, home = Board(), threading.get_ident()

    @board.tool
    def sync() -> bool:
        return threading.get_ident() == home

    @board.tool
    async def on_the_loop() -> bool:
        return threading.get_ident() == home

    @board.tool(inline=True)
    def inline() -> bool:
        return threading.get_ident() == home

    assert (await call(board, "sync")).text == "false"
    assert (await call(board, "on_the_loop")).text == "true"
    assert (await call(board, "inline")).text == "true"


async def test_a_blocking_sync_tool_does_not_delay_other_calls() -> None:
    board, begun, go = Board(), threading.Event(), threading.Event()

    @board.tool
    def block() -> str:
        begun.set()
        go.wait(SOON)
        return "late"

    @board.tool
    def quick(number: int) -> int:
        return number

    async with Client(board) as client:
        late = asyncio.ensure_future(client.call("block"))
        await asyncio.to_thread(begun.wait, SOON)
        for number in range(20):
            assert (await client.call("quick", {"number": number})).text == str(number)
        assert not late.done()
        go.set()
        assert (await late).text == "late"


@pytest.mark.parametrize(
    "raised", [ValueError("secret"), StopIteration("secret"), KeyError("secret"), RecursionError("secret")]
)
@pytest.mark.parametrize("style", ["sync", "async", "inline", "generator", "async_generator"])
async def test_the_text_of_an_exception_stays_in_the_log(
    raised: Exception, style: str, caplog: pytest.LogCaptureFixture
) -> None:
    result = await call(_failing(raised, style), "fail")
    assert result.is_error
    assert "secret" not in str(result)
    assert result.text.startswith("fail failed, error id ")
    error_id = result.text.rpartition(" ")[2]
    (record,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert error_id in record.getMessage()
    assert "secret" in caplog.text


@pytest.mark.parametrize("raised", [SystemExit(1), KeyboardInterrupt(), GeneratorExit(), asyncio.CancelledError()])
@pytest.mark.parametrize("style", ["sync", "async", "inline", "generator", "async_generator"])
async def test_whatever_ends_a_tool_ends_its_call_and_nothing_else(
    raised: BaseException, style: str, caplog: pytest.LogCaptureFixture
) -> None:
    board = _failing(raised, style)
    async with Client(board) as client:
        assert (await client.call("fail")).text.startswith("fail failed, error id ")
        assert (await client.call("fail")).is_error


@pytest.mark.parametrize("style", ["sync", "async", "inline", "generator", "async_generator"])
async def test_the_text_of_a_tool_error_reaches_the_model_and_no_log(
    style: str, caplog: pytest.LogCaptureFixture
) -> None:
    result = await call(_failing(ToolError("no such city: try Paris"), style), "fail")
    assert (result.is_error, result.text) == (True, "no such city: try Paris")
    assert caplog.text == ""


def _failing(raised: BaseException, style: str) -> Board:
    board = Board()

    def sync() -> str:
        raise raised

    async def coroutine() -> str:
        raise raised

    def generator() -> Iterator[str]:
        yield "one"
        raise raised

    async def async_generator() -> AsyncIterator[str]:
        yield "one"
        raise raised

    styles = {"sync": sync, "async": coroutine, "inline": sync, "generator": generator}
    board.add(styles.get(style, async_generator), name="fail", inline=style == "inline")
    return board


async def test_a_result_that_cannot_be_sent_is_a_failure_with_an_id(caplog: pytest.LogCaptureFixture) -> None:
    board = Board()

    @board.tool
    def unwritable() -> dict[str, object]:
        return {"stuck": object()}

    result = await call(board, "unwritable")
    assert result.text.startswith("unwritable failed, error id ")
    assert "stuck" in caplog.text


@pytest.mark.requirement("modern/tools/inputs-validated", "legacy/tools/inputs-validated")
async def test_arguments_that_do_not_fit_never_reach_the_tool() -> None:
    board, ran = Board(), []

    @board.tool
    def count(number: int) -> None:
        ran.append(number)

    result = await call(board, "count", number="many")
    assert result.is_error
    assert "number" in result.text
    assert ran == []
    assert result.meta["dev.pegboard/parseErrors"][0]["path"] == "number"


async def test_repaired_arguments_run_and_the_repair_is_reported() -> None:
    board = Board()

    @board.tool
    def count(number: int) -> int:
        return number

    result = await call(board, "count", number="12")
    assert (result.is_error, result.text) == (False, "12")
    assert result.meta["dev.pegboard/parseWarnings"][0]["path"] == "number"


async def test_a_strict_board_is_strict_with_functions_and_declared_tools_alike() -> None:
    board = Board(arguments="strict")

    @board.tool
    def count(number: int) -> int:
        return number

    class Declared(Tool):
        name = "declared"
        description = "Takes a number."
        input_schema = {"type": "object", "properties": {"number": {"type": "integer"}}}  # noqa: RUF012

        async def execute(self, context: Any) -> str:
            return "ran"

    board.add(Declared())
    assert (await call(board, "count", number="12")).is_error
    assert (await call(board, "declared", number="12")).is_error
    assert (await call(board, "declared", number=12)).text == "ran"


# -- generators ------------------------------------------------------------------------------------------------------


def _yielding(style: str) -> Board:
    board = Board()

    def sync(upto: int) -> Iterator[int]:
        yield from range(upto)

    async def coroutine(upto: int) -> AsyncIterator[int]:
        for number in range(upto):
            await asyncio.sleep(0)
            yield number

    board.add(sync if style == "generator" else coroutine, name="count")
    return board


@pytest.mark.parametrize("style", ["generator", "async_generator"])
async def test_the_result_of_a_generator_is_the_list_of_its_values(style: str) -> None:
    assert (await call(_yielding(style), "count", upto=3)).text == "[0,1,2]"
    assert (await call(_yielding(style), "count", upto=0)).text == "[]"


def _yielding_messages(style: str, *answers: Any) -> Board:
    board = Board()

    def messages(request: JsonRpcMessage) -> Iterator[JsonRpcMessage]:
        for answer in answers:
            yield answer if isinstance(answer, JsonRpcMessage) else ToolResponse.success(request.id, answer)

    async def async_messages(request: JsonRpcMessage) -> AsyncIterator[JsonRpcMessage]:
        for message in messages(request):
            yield message

    board.add(messages if style == "generator" else async_messages, name="answer")
    return board


@pytest.mark.parametrize("style", ["generator", "async_generator"])
async def test_messages_that_a_generator_yields_are_unwrapped(style: str) -> None:
    told: Told = []
    async with Client(_yielding_messages(style, {"n": 0}, "text", [1])) as client:
        result = await client.call("answer", progress=lambda *step: told.append(step))
    assert json.loads(result.text) == [{"n": 0}, "text", [1]]
    assert [text for _, _, text in told] == ["{'n': 0}", "text", "[1]"]


@pytest.mark.parametrize("style", ["generator", "async_generator"])
async def test_results_of_the_protocol_that_a_generator_yields_become_one_result(style: str) -> None:
    hello = {"content": [{"type": "text", "text": "hello"}, {"type": "image", "data": "eA==", "mimeType": "image/png"}]}
    result = await call(_yielding_messages(style, hello, {"content": [{"type": "text", "text": "world"}]}), "answer")
    assert [block["type"] for block in result.content] == ["text", "image", "text"]
    assert result.text == "hello\nworld"
    typed = [{"content": [{"type": "text", "text": "…"}], "structuredContent": {"n": n}} for n in range(2)]
    assert (await call(_yielding_messages(style, *typed), "answer")).text == '[{"n":0},{"n":1}]'


@pytest.mark.parametrize("style", ["generator", "async_generator"])
async def test_an_error_that_a_generator_yields_is_the_answer(style: str) -> None:
    failed = {"content": [{"type": "text", "text": "the disk is full"}], "isError": True}
    result = await call(_yielding_messages(style, {"n": 0}, failed), "answer")
    assert (result.is_error, result.text) == (True, "the disk is full")
    with pytest.raises(Refusal, match="no such user"):
        await call(_yielding_messages(style, ToolResponse.error(1, -32000, "no such user")), "answer")


@pytest.mark.parametrize("style", ["generator", "async_generator"])
async def test_each_yielded_value_is_progress_for_a_caller_that_asked(style: str) -> None:
    told: Told = []
    async with Client(_yielding(style)) as client:
        await client.call("count", {"upto": 3}, progress=lambda *step: told.append(step))
    assert told == [(1, None, "0"), (2, None, "1"), (3, None, "2")]


@pytest.mark.parametrize("style", ["generator", "async_generator"])
async def test_progress_goes_on_increasing_when_a_generator_also_tells_its_own(style: str) -> None:
    board, told = Board(), []

    def sync(ctx: Context) -> Iterator[str]:
        yield "a"
        ctx.progress(10.5, 20)
        yield "b"

    async def coroutine(ctx: Context) -> AsyncIterator[str]:
        yield "a"
        await ctx.progress(10.5, 20)
        yield "b"

    board.add(sync if style == "generator" else coroutine, name="both")
    async with Client(board) as client:
        await client.call("both", progress=lambda *step: told.append(step))
    assert told == [(1, None, "a"), (10.5, 20, None), (11, None, "b")]


async def test_a_cancelled_generator_is_closed_at_its_next_value() -> None:
    board, begun, go, closed = Board(), threading.Event(), threading.Event(), threading.Event()

    @board.tool
    def endless() -> Iterator[int]:
        try:
            begun.set()
            go.wait(SOON)
            while True:
                yield 1
        finally:
            closed.set()

    async with Client(board) as client:
        calling = asyncio.ensure_future(client.call("endless"))
        await asyncio.to_thread(begun.wait, SOON)
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling
        go.set()
        assert await asyncio.to_thread(closed.wait, SOON)


async def test_a_cancelled_async_generator_is_closed_before_its_caller_goes_on() -> None:
    board, begun, events = Board(), asyncio.Event(), []

    @board.tool
    async def endless() -> AsyncIterator[int]:
        try:
            while True:
                yield 1
        finally:
            events.append("closed")

    async def stuck(*_: object) -> None:
        begun.set()
        await asyncio.Event().wait()

    async with Client(board) as client:
        calling = asyncio.ensure_future(client.call("endless", progress=stuck))
        await begun.wait()
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling
        assert events == ["closed"]


# -- cancelling and time ---------------------------------------------------------------------------------------------


async def test_a_cancelled_call_sets_its_token_and_its_thread_sees_it() -> None:
    board, begun, seen = Board(), threading.Event(), threading.Event()

    @board.tool
    def wait(token: CancellationToken) -> str:
        begun.set()
        if token.wait(SOON):
            seen.set()
        return "nobody reads this"

    async with Client(board) as client:
        calling = asyncio.ensure_future(client.call("wait"))
        await asyncio.to_thread(begun.wait, SOON)
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling
        assert await asyncio.to_thread(seen.wait, SOON)


async def test_a_tool_that_exceeds_its_timeout_is_cancelled_and_reported_to_the_model() -> None:
    board, seen = Board(), threading.Event()

    @board.tool(timeout=0.02)
    async def slow() -> str:
        await asyncio.Event().wait()
        return "never"

    @board.tool(timeout=0.02)
    def blocked(token: CancellationToken) -> str:
        if token.wait(SOON):
            seen.set()
        return "never"

    @board.tool(timeout=SOON)
    async def quick() -> str:
        return "in time"

    @board.tool(timeout=SOON)
    async def its_own() -> str:
        raise TimeoutError("a socket")

    async with Client(board) as client:
        result = await client.call("slow")
        assert (result.is_error, result.text) == (True, "slow took longer than 0.02 s and was stopped")
        assert (await client.call("blocked")).text == "blocked took longer than 0.02 s and was stopped"
        assert await asyncio.to_thread(seen.wait, SOON)
        assert (await client.call("quick")).text == "in time"
        assert (await client.call("its_own")).text.startswith("its_own failed, error id")


async def test_the_time_that_a_user_thinks_is_not_the_tools() -> None:
    board, hanging = Board(), asyncio.Event()
    board.use(Timeout(11))

    @board.tool(timeout=10)
    async def ask(ctx: Context, hang: bool = False) -> str:
        answer = await ctx.elicit("Which?", str)
        if hang:
            hanging.set()
            await asyncio.Event().wait()
        return str(answer.content)

    @board.tool(timeout=10)
    def ask_in_a_thread(ctx: Context) -> str:
        return str(ctx.wait(ctx.elicit("Which?", str)).content)

    async def rename(call: Call, proceed: Handler) -> Reply:
        return await proceed(call.with_arguments(call.arguments))

    board.use(rename, tool="ask")

    async def think(asked: object) -> dict[str, str]:
        await skip(12)
        return {"value": "this one"}

    async with Client(board, elicit=think) as client:
        assert (await client.call("ask")).text == "this one"
        assert (await client.call("ask_in_a_thread")).text == "this one"
        # Afterwards the clock goes on.
        call = asyncio.ensure_future(client.call("ask", {"hang": True}))
        await hanging.wait()
        await skip(10)
        assert (await call).text == "ask took longer than 10 s and was stopped"


async def test_a_board_without_threads_left_answers_busy_and_recovers() -> None:
    board, go = Board(limits=Limits(threads=1, thread_queue=1)), threading.Event()
    begun = threading.Event()

    @board.tool
    def hold() -> str:
        begun.set()
        go.wait(SOON)
        return "held"

    async with Client(board) as client:
        first = asyncio.ensure_future(client.call("hold"))
        await asyncio.to_thread(begun.wait, SOON)
        second = asyncio.ensure_future(client.call("hold"))
        await asyncio.sleep(0)
        result = await client.call("hold")
        assert result.is_error
        assert result.text.startswith("busy: ")
        go.set()
        assert [(await one).text for one in (first, second)] == ["held", "held"]


def test_a_board_serves_one_loop_after_the_other() -> None:
    board = Board()

    @board.tool
    def double(number: int) -> int:
        return number * 2

    for number in range(3):
        result = asyncio.run(asyncio.wait_for(call(board, "double", number=number), SOON))
        assert result.text == str(number * 2)


async def test_a_returned_error_message_is_a_protocol_error() -> None:
    board = Board()

    @board.tool
    def refuse(request: JsonRpcMessage) -> JsonRpcMessage:
        return ToolResponse.error(request.id, -32602, "no such row")

    with pytest.raises(InvalidParams, match="no such row"):
        await call(board, "refuse")
