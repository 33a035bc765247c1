"""The client in process: what an agent sees, with no transport between."""

from __future__ import annotations

import asyncio
import datetime as dt
import json
from dataclasses import dataclass
from typing import Any

import pytest

from pegboard import Board, Client, Context, Gateway, ToolError
from pegboard.call import Call, Done, EncodedResult, Reply
from pegboard.errors import SetupError, UnknownTool


@dataclass
class Meeting:
    title: str
    at: dt.datetime


@pytest.fixture
def board() -> Board:
    board = Board("served", version="2")

    @board.tool
    def add(a: float, b: float = 1) -> float:
        """Adds two numbers."""
        return a + b

    @board.tool
    def meet() -> Meeting:
        return Meeting("lunch", dt.datetime(2026, 1, 2, 12, tzinfo=dt.UTC))

    @board.tool
    def refuse() -> None:
        raise ToolError("not today", meta={"dev.example/why": "closed"})

    return board


async def test_tools_are_listed_as_definitions(board: Board) -> None:
    async with Client(board) as client:
        tools = await client.list_tools()
    assert [tool["name"] for tool in tools] == ["add", "meet", "refuse"]
    assert tools[0]["description"] == "Adds two numbers."
    assert tools[0]["inputSchema"]["required"] == ["a"]


async def test_a_call_has_text_and_structure(board: Board) -> None:
    async with Client(board) as client:
        result = await client.call("add", {"a": 2})
    assert (result.text, result.structured, result.is_error) == ("3", 3, False)


async def test_structure_is_what_would_be_sent_and_not_the_tools_own_object(board: Board) -> None:
    async with Client(board) as client:
        result = await client.call("meet")
    assert result.structured == {"title": "lunch", "at": "2026-01-02T12:00:00Z"}


async def test_the_failure_of_a_tool_is_a_result(board: Board) -> None:
    async with Client(board) as client:
        result = await client.call("refuse")
    assert (result.is_error, result.text, result.meta["dev.example/why"]) == (True, "not today", "closed")


async def test_a_protocol_error_is_raised(board: Board) -> None:
    async with Client(board) as client:
        with pytest.raises(UnknownTool, match="did you mean 'add'"):
            await client.call("ad")


async def test_arguments_that_are_no_json_are_the_callers_to_fix(board: Board) -> None:
    async with Client(board) as client:
        with pytest.raises(TypeError):
            await client.call("add", {"a": object()})


async def test_calls_run_side_by_side_and_keep_their_own_answers(board: Board) -> None:
    async with Client(board) as client:
        results = await asyncio.gather(*(client.call("add", {"a": number, "b": 0}) for number in range(200)))
    assert [result.structured for result in results] == list(range(200))


async def test_clients_may_come_and_go(board: Board) -> None:
    for _ in range(3):
        async with Client(board) as client:
            assert (await client.call("add", {"a": 1})).text == "2"


async def test_what_a_client_was_given_is_its_own(board: Board) -> None:
    async with Client(board) as client:
        (tool, *_) = await client.list_tools()
        tool["name"] = "changed"
        tool["inputSchema"]["required"].append("b")
        (again, *_) = await client.list_tools()
        assert again["name"] == "add"
        assert again["inputSchema"]["required"] == ["a"]
        assert not (await client.call("add", {"a": 1})).is_error


async def test_a_tool_that_asks_runs_once_or_again_for_each_answer_depending_on_rounds() -> None:
    board, runs = Board(), 0

    @board.tool
    async def ask(ctx: Context) -> str:
        nonlocal runs
        runs += 1
        await ctx.progress(runs)
        first = await ctx.elicit("First?", str)
        second = await ctx.elicit("Second?", str)
        return f"{first.content} {second.content}"

    told: list[float] = []
    for rounds, expected in ((False, 1), (True, 3)):
        runs = 0
        async with Client(board, rounds=rounds, elicit=lambda asked: {"value": asked.message}) as client:
            result = await client.call("ask", progress=lambda done, _total, _message: told.append(done))
        assert (result.text, runs) == ("First? Second?", expected)
    assert told == [1, 1, 2, 3]


@pytest.mark.parametrize("target", ["http://127.0.0.1:9/mcp", ["true"], {"command": "true"}])
def test_rounds_are_accepted_only_for_a_board_in_this_process(target: Any) -> None:
    with pytest.raises(SetupError, match="rounds=True is only for a board in this process"):
        Client(target, rounds=True)


async def test_a_list_keeps_the_fields_that_its_type_does_not_name(board: Board) -> None:
    class Extended:
        info, start, stop = board.info, board.start, board.stop

        async def handler(self, call: Call) -> Reply:
            reply = await board.handler(call)
            if call.method != "tools/list":
                return reply
            assert isinstance(reply.result, EncodedResult)
            tools = [{**tool, "x-rating": 5} for tool in reply.result.value["tools"]]
            return Done({**reply.result.value, "tools": tools})

    async with Client(Extended()) as client:
        assert {tool.get("x-rating") for tool in await client.list_tools()} == {5}


@pytest.mark.parametrize("version", ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"])
async def test_a_client_of_a_board_or_gateway_speaks_the_revision_it_is_given(version: str) -> None:
    board = Board("shown")

    @board.tool
    async def show(ctx: Context) -> dict[str, str]:
        answer = await ctx.elicit("Sure?", bool) if version >= "2025-06-18" else None
        return {"version": ctx.caller.version, "answer": type(answer).__name__}

    for target, name in ((board, "show"), (Gateway({"mcpServers": {"shown": {"board": board}}}), "main__shown__show")):
        async with Client(target, version=version, elicit=lambda _: {"value": True}) as client:
            assert client.version == version
            await client.ping()
            result = await client.call(name)
            seen = result.structured or json.loads(result.text)
            if target is board:
                assert seen["version"] == version
            assert seen["answer"] == ("Accepted" if version >= "2025-06-18" else "NoneType")
            (tool,) = await client.list_tools()
            # Titles came with 2025-06-18.
            assert ("title" in tool) == (version >= "2025-06-18")


def test_a_revision_before_the_newest_has_no_rounds() -> None:
    with pytest.raises(SetupError, match="no rounds=True"):
        Client(Board(), version="2025-06-18", rounds=True)
