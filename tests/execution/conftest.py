"""The tests of hooks that have a client run in process and over /ws."""

from __future__ import annotations

import pytest

from tests.over_ws import parametrize, road

__all__ = ["road"]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if metafunc.module.__name__.endswith(("test_hooks", "test_pipeline")):
        parametrize(metafunc)
