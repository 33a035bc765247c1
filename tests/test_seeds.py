"""docs/seeds.md: every row of the designs has a state, and the test or the decision that it names."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

pytestmark = pytest.mark.same_on_every_python

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "seeds.md"
DECISIONS = ROOT / "docs" / "decisions" / "0010-rows-decided-otherwise.md"
ROW = re.compile(r"^\| ([GCWL]-\d+) \| ([^|]+) \| (works|decided) \| (?:`([^`|]+)`)? ?\|$", re.MULTILINE)
NUMBERS = {"G": 83, "C": 59, "W": 28, "L": 31}
"""How many features the inventory of each system has."""

ROWS = ROW.findall(PAGE.read_text())


@cache
def _source(path: Path) -> str:
    return path.read_text()


def test_every_row_of_the_inventory_is_there_once_and_in_order() -> None:
    assert [row[0] for row in ROWS] == [
        f"{system}-{number}" for system, most in NUMBERS.items() for number in range(1, most + 1)
    ]
    assert len(ROWS) == len(re.findall(r"^\| \w+-\d+ \|", PAGE.read_text(), re.MULTILINE))


def test_each_row_names_an_existing_test_or_a_decision() -> None:
    decisions = DECISIONS.read_text()
    wrong = [
        row
        for row, _, state, test in ROWS
        if not (
            _exists(test)
            if state == "works"
            else not test and re.search(rf"^\| {row} \| [^|]+ \| [^|]+ \|$", decisions, re.MULTILINE)
        )
    ]
    assert wrong == []


def _exists(test: str) -> bool:
    file, _, name = test.partition("::")
    return bool(re.search(rf"^(async )?def {name}\(", _source(ROOT / "tests" / file), re.MULTILINE))


def test_every_decision_is_about_a_row_that_says_so() -> None:
    decided = {row for row, _, state, _ in ROWS if state == "decided"}
    first, _, second = DECISIONS.read_text().partition("## Differences in rows that work")
    assert set(re.findall(r"^\| ([GCWL]-\d+) \|", first, re.MULTILINE)) == decided
    different = set(re.findall(r"[GCWL]-\d+", " ".join(re.findall(r"^\| ([^|]+) \|", second, re.MULTILINE))))
    assert different
    assert not different & decided
