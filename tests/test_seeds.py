"""docs/seeds.md: every row of the designs has a state, and the test or the decision that it names."""

from __future__ import annotations

import ast
import re
from functools import lru_cache
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


@lru_cache
def names_of_tests(path: Path) -> frozenset[str]:
    tree = ast.parse(path.read_text())
    return frozenset(node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def test_every_row_of_the_inventory_is_there_once_and_in_order() -> None:
    assert [row[0] for row in ROWS] == [
        f"{system}-{number}" for system, most in NUMBERS.items() for number in range(1, most + 1)
    ]
    assert len(ROWS) == len(re.findall(r"^\| \w+-\d+ \|", PAGE.read_text(), re.MULTILINE))


@pytest.mark.parametrize(("row", "what", "state", "test"), ROWS, ids=[row[0] for row in ROWS])
def test_a_row_names_an_existing_test_or_a_decision(row: str, what: str, state: str, test: str) -> None:
    if state == "works":
        file, _, name = test.partition("::")
        assert name in names_of_tests(ROOT / "tests" / file)
    else:
        assert not test
        assert re.search(rf"^\| {row} \| [^|]+ \| [^|]+ \|$", DECISIONS.read_text(), re.MULTILINE)


def test_every_decision_is_about_a_row_that_says_so() -> None:
    decided = {row for row, _, state, _ in ROWS if state == "decided"}
    first, _, second = DECISIONS.read_text().partition("## Differences in rows that work")
    assert set(re.findall(r"^\| ([GCWL]-\d+) \|", first, re.MULTILINE)) == decided
    different = set(re.findall(r"[GCWL]-\d+", " ".join(re.findall(r"^\| ([^|]+) \|", second, re.MULTILINE))))
    assert different
    assert not different & decided
