"""How far tests go: as far as `make test` has time for, further with PEGBOARD_EXPLORE set, as in `make test-long`, and less
far with PEGBOARD_BRIEF set, as in `make test-quick` and on the oldest Python.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import product
from typing import TypeVar

import pytest

T = TypeVar("T")

EXPLORE = bool(os.environ.get("PEGBOARD_EXPLORE"))
BRIEF = bool(os.environ.get("PEGBOARD_BRIEF"))


deeper = pytest.mark.deeper
"""A test, other than a property test, that goes further when exploring."""


def examples(count: int) -> int:
    """How many examples a property test tries: `count`, ten times as many when exploring, a quarter when in a hurry."""
    return 10 * count if EXPLORE else max(5, count // 4) if BRIEF else count


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
