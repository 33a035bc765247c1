"""How far tests go: as far as `make test` has time for, further with PEGBOARD_EXPLORE set, as in `make test-long`, and less
far with PEGBOARD_BRIEF set, as in `make test-quick` and on the oldest Python.

In brief, a property test tries a quarter of its examples, and a test with many parameters a few of them, spread evenly.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import product
from random import Random
from typing import Any, TypeVar

import pytest

T = TypeVar("T")

EXPLORE = bool(os.environ.get("PEGBOARD_EXPLORE"))
BRIEF = bool(os.environ.get("PEGBOARD_BRIEF"))


FEW = 4
"""With how many of its parameters a test runs in brief."""

deeper = pytest.mark.deeper
"""A test, other than a property test, that goes further when exploring."""

every_case = pytest.mark.every_case
"""A test that runs with all its parameters in brief too: its cases differ between versions of Python, as annotations do."""


def left_out(items: Sequence[pytest.Item]) -> set[pytest.Item]:
    """The tests that do not run in brief: those with all but a few of the parameters of a test."""
    cases: dict[str, list[pytest.Item]] = {}
    for item in items:
        if BRIEF and item.get_closest_marker("every_case") is None:
            cases.setdefault(item.nodeid.partition("[")[0], []).append(item)
    return {item for several in cases.values() for item in _all_but_few(several)}


def _all_but_few(cases: list[pytest.Item]) -> set[pytest.Item]:
    last = len(cases) - 1
    return set() if last < FEW else set(cases) - {cases[turn * last // (FEW - 1)] for turn in range(FEW)}


def examples(count: int) -> int:
    """How many examples a property test tries: `count`, twenty times as many when exploring, a quarter when in a hurry."""
    return 20 * count if EXPLORE else max(5, count // 4) if BRIEF else count


def one_of(values: Sequence[str], test: pytest.Item) -> list[Any]:
    """One of these parameters for this test, and all of them when exploring: for tests that start processes."""
    is_long = EXPLORE or test.get_closest_marker("slow") is not None
    return [pytest.param(value, marks=deeper) for value in (values if is_long else [Random(test.name).choice(values)])]


def pairs(ways: Sequence[T], forms: Sequence[T], rows: Sequence[tuple[T, ...]]) -> list[tuple[T, ...]]:
    """Every row in every way and in every form, and every form in every way; all combinations when exploring.

    Other than when exploring, the forms take turns from way to way and from row to row. That takes as many ways as forms.
    """
    assert len(forms) <= len(ways)
    if EXPLORE:
        return [(way, form, *row) for row, form, way in product(rows, forms, ways)]
    return [
        (way, forms[(number + turn) % len(forms)], *row)
        for number, row in enumerate(rows)
        for turn, way in enumerate(ways)
    ]
