"""Stores that several processes can use."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.middleware.valkey import Valkey, valkey
from tests.stores import backends
from tests.stores.backends import Backend
from tests.stores.store_urls import address


@pytest.fixture(scope="session")
def server() -> Iterator[Valkey]:
    with valkey() as running:
        yield running


@pytest.fixture(params=["sqlite", "redis"])
def backend(request: pytest.FixtureRequest, server: Valkey) -> Backend:
    return backends.redis(server) if request.param == "redis" else backends.sqlite


@pytest.fixture(params=["sqlite", "redis"])
def store(request: pytest.FixtureRequest, server: Valkey) -> Iterator[str]:
    """The address of a store of its own."""
    with address(request.param, server) as found:
        yield found
