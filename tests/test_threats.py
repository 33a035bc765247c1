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


@pytest.mark.parametrize(("file", "name"), sorted({(found[1], found[2]) for found in NAMED.finditer(THREATS)}))
def test_a_test_that_is_named_exists(file: str, name: str) -> None:
    assert re.search(rf"^(async )?def {name}\(", (TESTS / file).read_text(), re.MULTILINE)
