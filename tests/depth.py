"""How far tests go: as far as `make test` has time for, or further with PEGBOARD_EXPLORE set, as in `make test-long`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import product
from typing import TypeVar

import pytest

T = TypeVar("T")

EXPLORE = bool(os.environ.get("PEGBOARD_EXPLORE"))


deeper = pytest.mark.deeper
"""A test, other than a property test, that goes further when exploring."""


def examples(count: int) -> int:
    """How many examples a property test tries: `count`, and ten times as many when exploring."""
    return 10 * count if EXPLORE else count


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
