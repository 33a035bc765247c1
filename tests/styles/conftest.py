"""One board behind several doors, each opened once a module."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.styles.connections import DOORS, Door

MODERN_AND_LOCAL = ["direct", "stdio", "http"]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A module says in `BEHIND` which doors its tests go through, unless a test names them with its other parameters."""
    named = {name for mark in metafunc.definition.iter_markers("parametrize") for name in mark.args[0]}
    if "door" in metafunc.fixturenames and "door" not in named:
        metafunc.parametrize("door", _doors_of(metafunc.module), indirect=True)


def _doors_of(module: object) -> list[str]:
    return list(getattr(module, "BEHIND", MODERN_AND_LOCAL))


@pytest.fixture(scope="module")
def doors(request: pytest.FixtureRequest) -> Iterator[dict[str, Door]]:
    """The board of the test's module (its `BOARD`), behind each of its doors."""
    with ExitStack() as stack:
        yield {name: stack.enter_context(DOORS[name](request.module.BOARD)) for name in _doors_of(request.module)}


@pytest.fixture
def door(request: pytest.FixtureRequest, doors: dict[str, Door]) -> Door:
    return doors[request.param]
