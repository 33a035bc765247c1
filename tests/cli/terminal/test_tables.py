"""Tables fit the terminal."""

from __future__ import annotations

import sys

import pytest

from pegboard.cli.terminal.tables import render_descriptions, render_rows, show_rows, wrap_line

ROWS = [("ok", "port", "7332 is free"), ("note", "uvx", "not found; " + "x" * 100)]


def test_columns_are_aligned_and_rows_are_whole_where_no_terminal_limits_them(
    capsys: pytest.CaptureFixture[str],
) -> None:
    show_rows(ROWS)
    first, second = capsys.readouterr().out.splitlines()
    assert first == "ok    port  7332 is free"
    assert len(second) > 100


def test_on_a_terminal_the_last_column_is_cut(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "60")
    show_rows(ROWS)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 60
    assert lines[1].endswith("…")


@pytest.mark.parametrize("width", [60, 80])
def test_wide_columns_are_cut_first_and_wide_characters_count_twice(width: int) -> None:
    rows = [("ready", "a" * 70, "x" * 30, "3 tools"), ("failed", "notes", "日本語" * 20, "")]
    lines = list(render_rows(rows, width, "  "))
    assert [sum(2 if "\u3000" < one < "\ua000" else 1 for one in line) <= width for line in lines] == [True, True]
    assert lines[0].startswith("  ready   aaa")
    assert lines[0].endswith("  3 tools")


def test_a_long_line_continues_indented_on_a_terminal_alone() -> None:
    text = "2026-01-31  ann  " + "word " * 20
    assert list(wrap_line(text, None)) == [text]
    wrapped = wrap_line(text, 60)
    assert max(map(len, wrapped)) <= 60
    assert all(line.startswith("  word") for line in wrapped[1:])


def test_sentences_continue_in_their_column() -> None:
    rows = [
        ("ok", "port", "7332 is free"),
        ("wrong", "config", "the program of the server is not installed on this machine"),
    ]
    assert list(render_descriptions(rows, 40)) == [
        "ok     port    7332 is free",
        "wrong  config  the program of the server",
        "               is not installed on this",
        "               machine",
    ]
    assert len(list(render_descriptions(rows, None))) == 2
    assert max(map(len, render_descriptions(rows, 30))) <= 30
