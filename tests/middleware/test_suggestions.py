"""Insights and next actions, from a tool, from middleware and from a gateway file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import pegboard
from pegboard import Board, Client, Gateway, NextAction, ToolError, ToolResult
from pegboard.errors import DeclarationError
from pegboard.middleware import Suggestion, Suggestions
from pegboard.testing import expect

INSIGHTS, ACTIONS = "dev.pegboard/insights", "dev.pegboard/nextActions"


def make_board() -> Board:
    board = Board("shop")

    @board.tool
    async def search(text: str) -> list[str]:
        return [text.upper()]

    @board.tool
    async def stock(article: str) -> ToolResult:
        return ToolResult(
            {"left": 2},
            insights="Few are left.",
            next_actions=["order", NextAction("search", {"text": "chair"}, "finds similar articles")],
        )

    @board.tool
    async def fail() -> None:
        raise ToolError("No.")

    return board


async def test_a_tool_returns_insights_and_next_actions() -> None:
    async with Client(make_board()) as client:
        result = await client.call("stock", {"article": "chair"})
    expect(result).ok().suggests("order", "search").blocks("text", "text")
    assert result.content[1]["text"] == (
        '- Few are left.\nWhat to do next:\n- order\n- search {"text": "chair"}: finds similar articles'
    )
    assert result.meta[INSIGHTS] == ["Few are left."]
    assert result.meta[ACTIONS] == [
        {"tool": "order"},
        {"tool": "search", "arguments": {"text": "chair"}, "reason": "finds similar articles"},
    ]


async def test_middleware_adds_them_to_good_results_of_tools_that_have_none() -> None:
    board = make_board()
    suggestion = Suggestion(insights=("Sorted by price.",), next_actions="stock")
    board.use(Suggestions({"search": suggestion, "stock": suggestion, "fail": suggestion}))
    async with Client(board) as client:
        found = await client.call("search", {"text": "a"})
        expect(found).ok().structured(["A"]).suggests("stock").notes("- Sorted by price.\nWhat to do next:\n- stock")
        expect(await client.call("stock", {"article": "a"})).suggests("order", "search")
        expect(await client.call("fail")).error("No.").suggests()


async def test_a_gateway_file_adds_them_to_the_tools_of_its_servers(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(
        "from pegboard import Board\nboard = Board('shop')\n@board.tool\nasync def search(text: str) -> str:\n    return text\n"
    )
    action = {"tool": "main__shop__order", "arguments": {"count": 1}, "reason": "orders the article"}
    options = {"tools": {"main__shop__search": {"insights": ["Prices are net."], "next_actions": [action]}}}
    tree = {
        "toolboxes": {"main": {"description": "x", "mcpServers": {"shop": {"board": "shop.py"}}}},
        "middleware": [{"use": "Suggestions", "options": options}],
    }
    file = tmp_path / "pegboard.json"
    file.write_text(json.dumps(tree))
    async with pegboard.Client(Gateway(file)) as client:
        result = await client.call("main__shop__search", {"text": "a"})
    assert result.meta == {INSIGHTS: ["Prices are net."], ACTIONS: [action]}


def test_anything_but_a_suggestion_is_rejected() -> None:
    with pytest.raises(DeclarationError, match="search: use a Suggestion, got 'stock'"):
        Suggestions({"search": "stock"})  # type: ignore[dict-item]  # as an author without a type checker
