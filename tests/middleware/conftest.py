"""Every test of middleware that has a client runs in process and over /ws."""

from __future__ import annotations

import pytest

from tests.over_ws import parametrize, road

__all__ = ["road"]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    parametrize(metafunc)
