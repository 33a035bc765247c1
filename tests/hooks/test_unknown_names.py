"""Hooks and requests that name nothing the board has."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from pegboard import Board, Client, Middleware, ToolError
from pegboard.call import Call, Handler, Reply
from pegboard.errors import InvalidParams
from pegboard.middleware import (
    Audit,
    Cache,
    ConcurrencyLimit,
    Logging,
    Metrics,
    RateLimit,
    Retry,
    Timeout,
    Timing,
    TokenBudget,
    TokenCount,
    Tracing,
)
from tests.middleware.test_examples import load


def searching() -> Board:
    board = Board()

    @board.tool
    def search(text: str) -> str:
        return text

    return board


async def call_unknown(board: Board) -> str:
    async with Client(board) as client:
        with pytest.raises(InvalidParams) as raised:
            await client.call("serch", {"text": "x"})
    return raised.value.message


async def test_every_documented_middleware_keeps_the_answer_to_an_unknown_tool(tmp_path: Path) -> None:
    board, lifecycle, owners = searching(), load("lifecycle"), load("testing_middleware").Owners("ann")
    audit = Audit(tmp_path / "audit")
    board.use(Tracing(arguments=True), Metrics(), audit, RateLimit(100), ConcurrencyLimit(2), Logging(), Timing())
    board.use(
        TokenCount(), TokenBudget(100), Cache(300, tools=["serch"]), Retry(3, tools=["serch"], wait=0), Timeout(5)
    )
    board.use(lifecycle.GradedTiming(), lifecycle.OpeningHours(), lifecycle.trimmed, owners)

    said = await call_unknown(board)
    audit.close()

    assert said == "Unknown tool: 'serch', did you mean 'search'?"


async def test_a_hook_can_read_the_tool_of_a_call_without_a_check_for_none() -> None:
    seen: list[Any] = []

    class Read(Middleware):
        async def before(self, call: Call) -> None:
            tool = call.tool
            seen.append((call.name, call.known, tool.name, tool.category, list(tool.tags), dict(tool.promises)))

    board = searching()
    board.use(Read())

    assert "did you mean 'search'" in await call_unknown(board)
    assert seen == [("serch", False, "(unknown)", "", [], {})]


@pytest.mark.parametrize("how", ["before", "around"])
async def test_a_hook_that_fails_for_an_unknown_tool_does_not_hide_that_it_is_unknown(
    how: str, caplog: pytest.LogCaptureFixture
) -> None:
    limits = {"search": 10}

    class Limit(Middleware):
        async def before(self, call: Call) -> None:
            assert limits[call.name] > 0

    async def limited(call: Call, proceed: Handler) -> Reply:
        assert limits[call.name] > 0
        return await proceed(call)

    board = searching()
    board.use(Limit() if how == "before" else limited)

    with caplog.at_level(logging.ERROR, "pegboard.tools"):
        assert await call_unknown(board) == "Unknown tool: 'serch', did you mean 'search'?"
    assert [record.exc_info is not None for record in caplog.records] == [True]


async def test_a_hook_can_reject_an_unknown_tool_with_a_message_of_its_own() -> None:
    class Allow(Middleware):
        async def before(self, call: Call) -> None:
            if call.tool.category != "public":
                raise ToolError("not allowed")

    board = searching()
    board.use(Allow())
    async with Client(board) as client:
        assert (await client.call("serch")).text == "not allowed"
