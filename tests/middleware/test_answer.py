"""Replies of a middleware's own, and the names that `pegboard.middleware` offers."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import pegboard.middleware
from pegboard import Board, Client, ToolResult
from pegboard.middleware import Call, Handler, Reply, answer


@pytest.mark.parametrize(
    ("value", "text", "is_error"),
    [
        ("no need", "no need", False),
        ({"a": 1}, '{"a":1}', False),
        (ToolResult("closed", is_error=True), "closed", True),
    ],
)
async def test_an_around_answers_with_whatever_a_tool_may_return(value: object, text: str, is_error: bool) -> None:
    async def instead(call: Call, proceed: Handler) -> Reply:
        return answer(value)

    board = Board()
    board.add(lambda: "the tool's own", name="run")
    board.use(instead)
    async with Client(board) as client:
        result = await client.call("run")
    assert (result.text, result.is_error) == (text, is_error)


def test_the_stub_names_what_the_package_has() -> None:
    stub = Path(pegboard.middleware.__file__).with_suffix(".pyi").read_text()
    names = {alias.asname for node in ast.parse(stub).body if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert names == set(pegboard.middleware.__all__)
    for name in names:
        assert getattr(pegboard.middleware, str(name)) is not None
