"""Stores that several processes can use."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.depth import one_of
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


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    # Most of these tests start servers of their own. Those that share servers run with both stores.
    if "store" in metafunc.fixturenames:
        metafunc.parametrize("store", one_of(["sqlite", "redis"], metafunc.definition), indirect=True)


@pytest.fixture
def store(request: pytest.FixtureRequest, server: Valkey) -> Iterator[str]:
    """The address of a store of its own."""
    with address(request.param, server) as found:
        yield found
