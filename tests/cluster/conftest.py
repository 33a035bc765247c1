"""One pair of servers for each store that processes can share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster.servers import Pair, pair
from tests.middleware.valkey import Valkey, valkey
from tests.stores.store_urls import address


@pytest.fixture(scope="session")
def server() -> Iterator[Valkey]:
    with valkey() as running:
        yield running


@pytest.fixture(params=["sqlite", "redis"])
def store(request: pytest.FixtureRequest, server: Valkey) -> Iterator[str]:
    """The address of a store of its own."""
    with address(request.param, server) as found:
        yield found


@pytest.fixture(scope="session", params=["sqlite", "redis"])
def both(request: pytest.FixtureRequest, server: Valkey) -> Iterator[Pair]:
    """Two servers for all tests that leave them as they found them."""
    with address(request.param, server) as found, pair(found) as running:
        yield running
