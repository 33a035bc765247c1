"""Foreign text is shown as text: nothing of it moves a terminal, hides or forges a line."""

from __future__ import annotations

import json
import sys
import unicodedata
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pegboard.logs.printable import printable, printable_json, printable_lines

ANY = st.text(st.characters(exclude_categories=()))
OBEYED = frozenset({"Cc", "Cf", "Cs", "Co", "Zl", "Zp"})
# Format characters that are drawn: signs before or above a number in Arabic, Syriac, Kaithi and Egyptian.
DRAWN = frozenset(map(chr, (*range(0x600, 0x606), 0x6DD, 0x70F, 0x890, 0x891, 0x8E2, 0x110BD, 0x110CD)))
DRAWN |= frozenset(map(chr, range(0x13430, 0x13440)))


def every() -> Iterator[str]:
    return map(chr, range(sys.maxunicode + 1))


def test_every_character_that_is_obeyed_or_unseen_is_escaped() -> None:
    unsafe = [one for one in every() if unicodedata.category(one) in OBEYED and one not in DRAWN]
    assert [one for one in unsafe if printable(f"a{one}b") == f"a{one}b"] == []
    assert [one for one in unsafe if one not in "\n\t" and printable_lines(f"a{one}b") == f"a{one}b"] == []
    # Letters and marks that are drawn as nothing.
    for one in "\u034f\u115f\u1160\u17b4\u180b\u3164\uffa0\ufe00\ufe0f\U000e0100":
        assert printable(f"a{one}") == printable_lines(f"a{one}") != f"a{one}"


def test_every_character_that_is_seen_stays() -> None:
    seen = [one for one in every() if one.isprintable() and unicodedata.category(one) not in ("Mn", "Lo", "Cn")]
    assert [one for one in seen if printable(one) != one or printable_lines(one) != one] == []


@pytest.mark.parametrize(
    ("text", "one_line", "lines"),
    [
        ("Größe ─ 大きさ ✅ ⚠\ufe0f 1\ufe0f\u20e3", "Größe ─ 大きさ ✅ ⚠\ufe0f 1\ufe0f\u20e3", None),
        ("one\ntwo\tthree\r\n", "one\\ntwo\\tthree\\r\\n", "one\ntwo\tthree\n"),
        ("over\rwritten", "over\\rwritten", "over\\rwritten"),
        ("\x1b]52;c;ZXZpbA==\x07", "\\x1b]52;c;ZXZpbA==\\x07", "\\x1b]52;c;ZXZpbA==\\x07"),
        ("\x9b2J\x7f\x85", "\\x9b2J\\x7f\\x85", "\\x9b2J\\x7f\\x85"),
        ("a\u202eb\u2066c\u2028d", "a\\u202eb\\u2066c\\u2028d", "a\\u202eb\\u2066c\\u2028d"),
        ("a\U000e0041\ud800", "a\\U000e0041\\ud800", "a\\U000e0041\\ud800"),
        ("10\u202f000\xa0€\u3000大", "10\\u202f000\\xa0€\\u3000大", "10\u202f000\xa0€\u3000大"),
        ("a backslash \\n stays", "a backslash \\n stays", None),
    ],
)
def test_what_is_escaped_is_written_as_in_a_python_literal(text: str, one_line: str, lines: str | None) -> None:
    assert printable(text) == one_line
    assert printable_lines(text) == (one_line if lines is None else lines)


@given(ANY)
def test_whatever_comes_is_one_line_that_needs_no_second_escape(text: str) -> None:
    shown = printable(text)
    assert len(f"x{shown}x".splitlines()) == 1
    assert printable(shown) == printable_lines(shown) == shown
    shown.encode("utf-8")


@given(st.text())
def test_json_keeps_its_value(text: str) -> None:
    shown = printable_json(json.dumps({text: [text]}, ensure_ascii=False, indent=2))
    assert json.loads(shown) == {text: [text]}
    assert printable_lines(shown) == shown
