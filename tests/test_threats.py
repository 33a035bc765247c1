"""Every row of THREATS.md names a test that proves it, and that test exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.same_on_every_python

TESTS = Path(__file__).resolve().parent
THREATS = (TESTS.parent / "THREATS.md").read_text()
NAMED = re.compile(r"`([\w/]+\.py)::(test_\w+)`")
UNTESTED = "no test: a person decides"


def rows() -> list[str]:
    """The rows of the one table, without its head."""
    table = [line for line in THREATS.splitlines() if line.startswith("|")]
    assert "\n".join(table) in THREATS, "a paragraph stands in the middle of the table"
    assert table[0] == "| entry point | what may come in | what stops it | tests |"
    return table[2:]


def test_every_row_names_a_test() -> None:
    bare = [row for row in rows() if not row.endswith(f"| {UNTESTED} |") and not NAMED.search(row.rpartition(" | ")[2])]
    assert bare == []


def test_the_tests_that_are_named_exist() -> None:
    named = sorted({(found[1], found[2]) for found in NAMED.finditer(THREATS)})
    sources = {file: (TESTS / file).read_text() for file, _ in named}
    missing = [
        f"{file}::{name}"
        for file, name in named
        if not re.search(rf"^(async )?def {name}\(", sources[file], re.MULTILINE)
    ]
    assert missing == []
