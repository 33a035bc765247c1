"""Tables fit the terminal."""

from __future__ import annotations

import sys

import pytest

from pegboard.cli.output import show_rows

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
