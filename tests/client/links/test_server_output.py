"""What servers say is shown with its letters, on one line, and without what a terminal would obey."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pegboard.client.links.server_output import MAX_LENGTH, last_output, shorten_output
from pegboard.logs.printable import printable

RULE = "─" * 80


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Größe ─ 大きさ", "Größe ─ 大きさ"),
        ("mind the\ngap\r", "mind the\\ngap\\r"),
        ("\x1b[1;31mError\x1b[0m: no key", "Error: no key"),
        ("\x1b]0;title\x07", "\\x1b]0;title\\x07"),
        ("one\u202etwo\u2028", "one\\u202etwo\\u2028"),
        ("half \ud83d", "half \\ud83d"),
    ],
)
def test_letters_stay_and_what_cannot_be_seen_is_written_out(text: str, shown: str) -> None:
    assert shorten_output(text) == shown


@given(st.text(max_size=2 * MAX_LENGTH))
def test_whatever_comes_is_one_line_that_can_be_printed(text: str) -> None:
    shown = shorten_output(text, 50)
    assert shown == printable(shown)
    assert shown == text or printable(text) != text or shown == text[:50] + "…"


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (["starting", RULE, "Error: DATABASE_URL is not set", RULE, "", "   "], "starting / Error: DATABASE_URL is not set"),
        (["╭" + RULE + "╮", "│ FastMCP │", "╰" + RULE + "╯", "fatal: no such port"], "│ FastMCP │ / fatal: no such port"),
        (
            ["node:internal/modules", "Error: Cannot find module 'x'", "    at one (a:1)", "    at two (b:2)", "", "Node.js v22.1.0"],
            "node:internal/modules / Error: Cannot find module 'x'",
        ),
        (["Traceback (most recent call last):", '  File "x.py", line 1', "    boom()", "ValueError: no"], "boom() / ValueError: no"),
        (["    at one", "    at two"], "at one / at two"),
        ([f"{RULE} Usage {RULE}"], "─── Usage ───"),
        ([RULE], ""),
        ([], ""),
    ],
)  # fmt: skip
def test_the_last_words_are_those_that_tell_something(lines: list[str], words: str) -> None:
    assert last_output(lines) == words


def test_last_words_are_few() -> None:
    assert len(last_output(["x" * 8000] * 100)) < 2 * MAX_LENGTH
