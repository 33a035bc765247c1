"""The tests of hooks that have a client run in process, over /ws, and behind a gateway."""

from __future__ import annotations

import pytest

from tests.client_variants import parametrize, road

__all__ = ["road"]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if metafunc.module.__name__.endswith(("test_middleware", "test_pipeline")):
        parametrize(metafunc)
