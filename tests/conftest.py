"""What holds for all tests.

Property tests try the same few cases each time, so that a change is judged by itself; with PEGBOARD_EXPLORE set, as in
`make test-long`, they look for new ones, twenty times as many.
"""

from __future__ import annotations

import os
import shutil
import tempfile

import pytest
from hypothesis import HealthCheck, settings

from pegboard.client.links import era_cache
from tests.depth import EXPLORE, examples, left_out

pytest_plugins = ["tests.leaks", "tests.loops"]

# Hypothesis judges the speed of examples by the clock, which says nothing on a busy machine.
settings.register_profile(
    "explore", max_examples=examples(20), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("steady", settings.get_profile("explore"), derandomize=True)
settings.load_profile("explore" if EXPLORE else "steady")

STATE = "PEGBOARD_STATE"


def pytest_configure(config: pytest.Config) -> None:
    # Keep the state of gateways out of the home of the person who runs the tests; workers inherit the folder.
    if STATE not in os.environ:
        folder = os.environ[STATE] = tempfile.mkdtemp(prefix="pegboard-state-")
        config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    # Last: out of those that the command line chooses.
    if rest := left_out(items):
        config.hook.pytest_deselected(items=list(rest))
        items[:] = [item for item in items if item not in rest]


def pytest_runtest_setup() -> None:
    """Forget the servers of other tests: one of another era may have had the same port."""
    era_cache._eras.clear()
