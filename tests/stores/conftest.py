"""Every test that asks for a `backend` runs once for each."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.middleware.valkey import Valkey, valkey
from tests.stores import backends
from tests.stores.backends import Backend


@pytest.fixture(scope="session")
def server() -> Iterator[Valkey]:
    with valkey() as running:
        yield running


def _backend(request: pytest.FixtureRequest) -> Backend:
    if request.param == "redis":
        return backends.redis(request.getfixturevalue("server"))
    found: Backend = getattr(backends, request.param)
    return found


@pytest.fixture(scope="session", params=["memory", "sqlite", "redis"])
def backend(request: pytest.FixtureRequest) -> Backend:
    return _backend(request)


@pytest.fixture(scope="session", params=["sqlite", "redis"])
def shared_backend(request: pytest.FixtureRequest) -> Backend:
    """Those that several processes can use at once."""
    return _backend(request)


@pytest.fixture(scope="session", params=["memory", "sqlite"])
def own_backend(request: pytest.FixtureRequest) -> Backend:
    """Those whose room is ours to bound; a server has bounds of its own."""
    return _backend(request)


@pytest.fixture(scope="session")
def own_file() -> Backend:
    return backends.sqlite
