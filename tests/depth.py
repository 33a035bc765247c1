"""How far tests go: as far as `make test` has time for, or further with PEGBOARD_EXPLORE set, as in `make test-long`."""

from __future__ import annotations

import os

import pytest

EXPLORE = bool(os.environ.get("PEGBOARD_EXPLORE"))


deeper = pytest.mark.deeper
"""A test, other than a property test, that goes further when exploring."""


def examples(count: int) -> int:
    """How many examples a property test tries: `count`, and ten times as many when exploring."""
    return 10 * count if EXPLORE else count
