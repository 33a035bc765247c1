"""Errors that say how to recover, and middleware that changes what errors say."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest
from examples.recovering import board as recovering

import pegboard
from pegboard import Board, Client, Gateway, NextAction, ToolError, ToolResult
from pegboard.errors import DeclarationError, LimitReached
from pegboard.middleware import ErrorMessage, ErrorMessages, RateLimit
from pegboard.testing import Recorder, expect

ERROR = "dev.pegboard/error"


@pytest.fixture(params=["2026-07-28", "2025-06-18"])
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


async def test_an_error_lists_steps_and_tools_for_the_model_and_for_programs(version: str) -> None:
    async with Client(recovering, version=version) as client:
        result = await client.call("get_order", {"order_id": 5})
    assert result.is_error
    assert result.text == (
        "Order 5 does not exist.\n"
        "What to do:\n"
        "1. Look for the order among the orders of the customer.\n"
        "2. Call get_order with its id.\n"
        'Tool to try: list_orders {"limit": 10}: lists the newest orders'
    )
    assert result.meta[ERROR] == {
        "code": "NOT_FOUND",
        "steps": ["Look for the order among the orders of the customer.", "Call get_order with its id."],
        "tools": [{"tool": "list_orders", "arguments": {"limit": 10}, "reason": "lists the newest orders"}],
    }


async def test_a_client_that_asks_for_a_type_raises_the_error_with_its_code() -> None:
    async with Client(recovering) as client:
        with pytest.raises(ToolError, match="Order 5 does not exist") as caught:
            await client.call("get_order", {"order_id": 5}, result_type=str)
    assert caught.value.code == "NOT_FOUND"


def test_a_single_step_and_several_tools_need_no_list_and_no_classes() -> None:
    error = ToolError("No.", steps="Ask first.", try_tool=["ask", NextAction("look", reason="to see")])
    assert str(error) == error.message == "No.\nWhat to do:\n1. Ask first.\nTools to try: ask; look: to see"
    assert error.problem == "No."
    assert error.code == ""


def test_an_error_without_steps_is_as_it_was() -> None:
    assert ToolError("No.").message == "No."
    assert ToolError("No.").meta is None
    assert ToolError("No.", meta={"a": 1}).meta == {"a": 1}
    assert LimitReached("Later.", "rate_limit").code == "rate_limit"


async def test_messages_are_changed_by_code_whatever_raised_the_error(
    caplog: pytest.LogCaptureFixture, road: str
) -> None:
    board, inner = Board("shop"), Recorder("r", order=1)

    @board.tool
    async def fail(how: int) -> object:
        if how == 1:
            raise ToolError("No such thing.", code="NOT_FOUND", steps=["Look elsewhere."])
        if how == 2:
            raise ValueError("a secret")
        if how == 3:
            return ToolResult("It did not work.", is_error=True, meta={"own": 1})
        raise ToolError("Without a code.")

    board.use(inner)
    board.use(
        ErrorMessages(
            {
                "NOT_FOUND": ErrorMessage("{tool} ({code}): {message}", steps=("Not this one.",), try_tool="search"),
                "internal_error": "Call support: {message}",
                "invalid_arguments": ErrorMessage(steps=("Read the schema.",)),
                "tool_error": ErrorMessage(try_tool=NextAction("search", {"a": 1})),
            }
        )
    )
    async with Client(board) as client:
        found = [await client.call("fail", {"how": how}) for how in (1, 2, 3, 4, "x")]
    assert all(one.is_error for one in found)
    raised, unexpected, returned, plain, invalid = found
    # A gateway may say which server an error is from.
    assert raised.text.startswith("fail (NOT_FOUND): ")
    assert raised.text.endswith("No such thing.\nWhat to do:\n1. Look elsewhere.\nTool to try: search")
    assert raised.meta[ERROR] == {"code": "NOT_FOUND", "steps": ["Look elsewhere."], "tools": [{"tool": "search"}]}
    assert "fail failed, error id " in unexpected.text
    assert "secret" not in unexpected.text
    if "gateway" not in road:
        # What failed at a server behind a gateway has no code: the server has logged it.
        assert unexpected.text.startswith("Call support: ")
        assert unexpected.text.rpartition(" ")[2] in caplog.text
        # Other middleware sees what really happened.
        assert isinstance(inner.steps[3].exception, ValueError)
    assert returned.text.endswith('It did not work.\nTool to try: search {"a": 1}')
    assert returned.meta["own"] == 1
    assert returned.meta[ERROR] == {"code": "tool_error", "tools": [{"tool": "search", "arguments": {"a": 1}}]}
    assert plain.text.endswith('Without a code.\nTool to try: search {"a": 1}')
    assert invalid.text.endswith("What to do:\n1. Read the schema.")
    assert len(invalid.meta["dev.pegboard/parseErrors"]) == 1


async def test_the_notes_for_the_model_beside_a_changed_error_stay() -> None:
    board = Board("noted")

    @board.tool
    async def fail(how: int) -> ToolResult:
        return ToolResult(f"It failed {how} times.", is_error=True)

    board.use(ErrorMessages({"*": "Sorry: {message}"}))
    async with Client(board) as client:
        expect(await client.call("fail", {"how": "3"})).error("^Sorry: .*3 times.$").repaired("how").notes(
            "[repaired] how"
        )


async def test_codes_without_an_entry_use_the_one_for_all_others() -> None:
    board = Board("limited")

    @board.tool
    async def ping() -> str:
        return "pong"

    board.use(RateLimit(1, per="hour"), ErrorMessages({"*": "Not now ({code})."}))
    async with Client(board) as client:
        assert (await client.call("ping")).text == "pong"
        refused = await client.call("ping")
    assert refused.text == "Not now (rate_limit)."
    assert refused.meta["dev.pegboard/refused"]["reason"] == "rate_limit"


async def test_a_gateway_file_changes_the_messages_of_its_servers(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(
        "from pegboard import Board, ToolError\n"
        "board = Board('shop')\n"
        "@board.tool\n"
        "async def buy(what: str) -> str:\n"
        "    raise ToolError(f'{what} is sold out', code='SOLD_OUT', steps=['Choose something else.'])\n"
    )
    tree = {
        "toolboxes": {"main": {"description": "x", "mcpServers": {"shop": {"board": "shop.py"}}}},
        "middleware": [
            {
                "use": "ErrorMessages",
                "options": {
                    "messages": {"SOLD_OUT": {"text": "Sorry: {message}", "steps": ["Ignored."], "try_tool": "search"}}
                },
            }
        ],
    }
    file = tmp_path / "pegboard.json"
    file.write_text(json.dumps(tree))
    async with pegboard.Client(Gateway(file)) as client:
        result = await client.call("main__shop__buy", {"what": "tea"})
    assert result.text.startswith("Sorry: ")
    assert result.text.endswith("tea is sold out\nWhat to do:\n1. Choose something else.\nTool to try: search")
    assert result.meta[ERROR] == {
        "code": "SOLD_OUT",
        "steps": ["Choose something else."],
        "tools": [{"tool": "search"}],
    }


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{what}", "The text for 'a' contains {what}; use {message}, {tool} or {code}, and {{ for a brace"),
        ("{", "The text for 'a' cannot be read"),
    ],
)
def test_a_text_with_unknown_fields_is_rejected(text: str, problem: str) -> None:
    with pytest.raises(DeclarationError) as caught:
        ErrorMessages({"a": text})
    assert str(caught.value).startswith(problem)


async def test_without_an_entry_for_it_an_unexpected_error_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    board = Board("plain")

    @board.tool
    async def fail() -> None:
        raise ValueError("a secret")

    board.use(ErrorMessages({"NOT_FOUND": "Never used."}))
    with caplog.at_level(logging.ERROR):
        async with Client(board) as client:
            result = await client.call("fail")
    assert result.text.startswith("fail failed, error id ")
    assert len([record for record in caplog.records if "fail failed" in record.message]) == 1
