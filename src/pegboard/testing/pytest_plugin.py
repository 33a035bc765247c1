"""The pytest plugin: clients of both eras for tests, without another plugin for async tests.

Installed with Pegboard; pytest finds it by its entry point. Names load when a test uses them.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

import pytest

import pegboard
import pegboard.testing

_REVISIONS = {"modern": "2026-07-28", "legacy": "2025-11-25"}
_OTHER_PLUGINS = ("anyio", "asyncio", "trio")


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker."""
    config.addinivalue_line("markers", "pegboard: run this `async def` test in an event loop of its own")


@pytest.fixture(params=["modern", "legacy"])
def mcp_era(request: pytest.FixtureRequest) -> str:
    """The era of the clients: each test runs with "modern" (2026-07-28) and "legacy" (2025-11-25)."""
    return str(request.param)


@pytest.fixture
def mcp_client(mcp_era: str) -> Callable[..., pegboard.Client]:
    """A function that returns a client of this era for a board or gateway: `async with mcp_client(board) as client`.

    It takes the options of `Client`. The client exchanges messages with the board as over a network, in the same process.
    """

    def connect(target: Any, **options: Any) -> pegboard.Client:
        return pegboard.Client(
            pegboard.testing.MemoryServer(target), **{"version": _REVISIONS.get(mcp_era, mcp_era), **options}
        )

    return connect


def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run an `async def` test that uses our fixtures or marker, unless another plugin is to run it."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    ours = "mcp_era" in pyfuncitem.fixturenames or pyfuncitem.get_closest_marker("pegboard") is not None
    if not ours or any(pyfuncitem.get_closest_marker(name) for name in _OTHER_PLUGINS):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    asyncio.run(pyfuncitem.obj(**arguments))
    return True
