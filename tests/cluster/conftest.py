"""One pair of servers for each store that processes can share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster.servers import Pair, pair
from tests.depth import one_of
from tests.middleware.valkey import Valkey, valkey
from tests.stores.store_urls import address


@pytest.fixture(scope="session")
def server() -> Iterator[Valkey]:
    with valkey() as running:
        yield running


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    # Most of these tests start servers of their own. Those that share servers run with both stores.
    if "store" in metafunc.fixturenames:
        metafunc.parametrize("store", one_of(["sqlite", "redis"], metafunc.definition), indirect=True)


@pytest.fixture
def store(request: pytest.FixtureRequest, server: Valkey) -> Iterator[str]:
    """The address of a store of its own."""
    with address(request.param, server) as found:
        yield found


@pytest.fixture(scope="session", params=["sqlite", "redis"])
def both(request: pytest.FixtureRequest, server: Valkey) -> Iterator[Pair]:
    """Two servers for all tests that leave them as they found them."""
    with address(request.param, server) as found, pair(found) as running:
        yield running
