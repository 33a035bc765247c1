"""What an author has probably overlooked is said in the log, with the line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pegboard import Board, Context
from pegboard.loading import load_board
from tests.cli.commands.calling.test_call_command import run


def test_probable_mistakes_in_a_signature_are_warned_about(caplog: pytest.LogCaptureFixture) -> None:
    board = Board("careless")

    @board.tool
    def untyped(a, ctx):  # type: ignore[no-untyped-def]  # the missing types are the point
        return a

    @board.tool
    def odd_default(x: int = "three", y: float = 1, z: str | None = None) -> int:  # type: ignore[assignment]  # the mistake
        return x

    @board.tool
    async def careful(a: Any, ctx: Context, flag: bool = True, words: tuple[str, ...] = ()) -> None: ...

    @board.tool(input_schema={"type": "object", "properties": {"a": {}}})
    def own_schema(a):  # type: ignore[no-untyped-def]  # the schema says it
        return a

    board.resource("x://{name}")(lambda name: name)
    told = [record.getMessage().partition(": ")[2] for record in caplog.records]
    assert told == [
        "untyped: parameter 'a' has no type hint, so callers can send anything; annotate it",
        "untyped: parameter 'ctx' has no type, so callers have to send it; write `ctx: Context`",
        "odd_default: the default of 'x' is 'three', which is not int",
    ]
    assert all(record.getMessage().startswith(__file__) for record in caplog.records)


def test_a_marked_function_that_no_board_has_is_warned_about(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "marked.py").write_text(
        "import sys\nfrom pegboard import Board, tool\n\nboard = Board('marked')\n\n\n@tool\ndef lost(a: int) -> int:\n"
        "    return a\n\n\n@tool\ndef found(a: int) -> int:\n    return a\n\n\nboard.tool(found)\n"
    )
    assert [tool.name for tool in load_board(str(tmp_path / "marked.py")).tools] == ["found"]
    (record,) = caplog.records
    assert "marked.py:7: lost is marked with @tool, but no board has it" in record.getMessage()


@pytest.mark.process
def test_an_empty_list_says_so(tmp_path: Path) -> None:
    (tmp_path / "empty.py").write_text("from pegboard import Board\n\nboard = Board('empty')\n")
    code, said, told = run("list", tmp_path / "empty.py")
    assert (code, said, told) == (0, "", "no tools\n")
