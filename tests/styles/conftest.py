"""One board behind several doors, each opened once a module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.styles.connections import DOORS, Door

MODERN_AND_LOCAL = ["direct", "stdio", "http"]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A module says in `BEHIND` which doors its tests go through."""
    if "door" in metafunc.fixturenames:
        doors = getattr(metafunc.module, "BEHIND", MODERN_AND_LOCAL)
        metafunc.parametrize("door", list(doors), indirect=True, scope="module")


@pytest.fixture(scope="module")
def door(request: pytest.FixtureRequest) -> Iterator[Door]:
    """The board of the test's module (its `BOARD`), behind each door in turn."""
    with DOORS[request.param](request.module.BOARD) as opened:
        yield opened
