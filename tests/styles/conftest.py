"""One board behind three doors: in process, over stdio and over HTTP, each started once a module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.styles.connections import DOORS, Door


@pytest.fixture(scope="module", params=DOORS)
def door(request: pytest.FixtureRequest) -> Iterator[Door]:
    """The board of the test's module (its `BOARD`), behind each door in turn."""
    with DOORS[request.param](request.module.BOARD) as opened:
        yield opened
