"""`ctx.call` and `ctx.read`: tools that use other tools and resources of their board."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pegboard import Board, Client, Context, Middleware, Principal, ToolError
from pegboard.middleware import Call
from pegboard.testing import MemoryServer
from tests.waiting import SOON


class Noting(Middleware):
    """Notes what it sees, with a state of its own for each call."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, Any, Any]] = []

    async def before(self, call: Call) -> None:
        call.state["name"] = call.name

    async def after(self, call: Call, result: Any, elapsed_ms: float) -> None:
        arguments = None if call.parsed is None else dict(call.parsed.arguments)
        self.seen.append((call.name, call.state["name"], arguments))


def make_board(**options: Any) -> Board:
    board = Board("nested", **options)

    @board.tool
    async def add(a: int, b: int) -> int:
        return a + b

    @board.tool
    async def double(number: int, ctx: Context) -> int:
        return int((await ctx.call("add", {"a": number, "b": str(number)})).value)

    @board.tool
    def double_in_thread(number: int, ctx: Context) -> int:
        return int(ctx.wait(ctx.call("add", {"a": number, "b": number})).text)

    @board.tool
    async def confirm(what: str, ctx: Context) -> str:
        return f"{what}: {await ctx.elicit('Sure?', bool)}"

    @board.tool
    async def confirm_twice(ctx: Context) -> str:
        own = await ctx.elicit("Sure?", bool)
        return f"{own} {(await ctx.call('confirm', {'what': 'inner'})).text}"

    @board.tool
    async def fail(ctx: Context) -> None:
        raise ToolError("out of stock")

    @board.tool
    async def again(ctx: Context) -> str:
        return (await ctx.call("again")).text

    @board.tool
    async def use(name: str, ctx: Context) -> str:
        return (await ctx.call(name)).text

    @board.tool
    async def read(uri: str, ctx: Context) -> str:
        return (await ctx.read(uri)).text

    @board.resource("notes://{name}")
    async def note(name: str) -> str:
        return f"about {name}"

    return board


async def test_a_tool_calls_another_with_repair_and_hooks_of_both() -> None:
    board, noting = make_board(), Noting()
    board.use(noting)
    async with Client(board) as client:
        assert (await client.call("double", {"number": 4})).text == "8"
        assert (await client.call("double_in_thread", {"number": 5})).text == "10"
    assert noting.seen[:2] == [("add", "add", {"a": 4, "b": 4}), ("double", "double", {"number": 4})]


async def test_a_tool_reads_a_resource() -> None:
    async with Client(make_board()) as client:
        assert (await client.call("read", {"uri": "notes://milk"})).text == "about milk"
        assert "Resource not found: nowhere://x" in (await client.call("read", {"uri": "nowhere://x"})).text


async def test_failures_reach_the_outer_tool_as_tool_errors() -> None:
    async with Client(make_board()) as client:
        assert (await client.call("use", {"name": "fail"})).text == "out of stock"
        unknown = await client.call("use", {"name": "ad"})
        assert unknown.is_error
        assert "Unknown tool: 'ad', did you mean 'add'?" in unknown.text
        wrong = await client.call("use", {"name": "add"})
        assert wrong.is_error
        assert "a" in wrong.text


async def test_recursion_ends_with_a_reason() -> None:
    async with Client(make_board()) as client:
        ended = await client.call("again")
        assert ended.is_error
        assert ended.text == "again was not called: tools call each other more than 16 levels deep"


@pytest.mark.parametrize("version", ["2026-07-28", "2025-11-25"])
async def test_questions_of_both_tools_reach_the_caller(version: str) -> None:
    asked: list[str] = []

    def answer(question: Any) -> dict[str, Any]:
        asked.append(question.message)
        return {"value": len(asked) == 1}

    async with Client(MemoryServer(make_board()), version=version, elicit=answer) as client:
        text = (await client.call("confirm_twice")).text
    assert asked == ["Sure?", "Sure?"]
    assert text.count("content=True") == 1
    assert "inner: Accepted(content=False)" in text


async def test_the_rules_of_the_caller_apply() -> None:
    board = make_board(rules=[{"who": "*", "hide": ["add"]}, {"who": "*", "allow": ["*"]}])
    async with Client(board) as client:
        refused = await client.call("double", {"number": 4})
        assert refused.is_error
        assert "Unknown tool: 'add'" in refused.text


async def test_cancelling_the_outer_call_cancels_the_inner_one() -> None:
    board = make_board()
    begun, ended = asyncio.Event(), asyncio.Event()

    @board.tool
    async def hang() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async with Client(board) as client:
        call = asyncio.create_task(client.call("use", {"name": "hang"}))
        await asyncio.wait_for(begun.wait(), SOON)
        call.cancel()
        await asyncio.wait_for(ended.wait(), SOON)


async def test_the_timeout_of_the_outer_tool_ends_the_inner_one() -> None:
    board = make_board()

    @board.tool
    async def hang() -> None:
        await asyncio.Event().wait()

    @board.tool(timeout=0.01)
    async def impatient(ctx: Context) -> str:
        return (await ctx.call("hang")).text

    async with asyncio.timeout(SOON), Client(board) as client:
        assert "took longer than 0.01 s" in (await client.call("impatient")).text


async def test_the_inner_tool_sees_the_same_principal() -> None:
    board = make_board()

    @board.tool
    async def who(ctx: Context) -> str:
        assert isinstance(ctx.principal, Principal)
        return str(ctx.caller.transport)

    async with Client(board) as client:
        assert (await client.call("use", {"name": "who"})).text == "direct"
