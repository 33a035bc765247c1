"""Every test of middleware that has a client runs in process, over /ws, and behind a gateway."""

from __future__ import annotations

import pytest

from tests.client_variants import parametrize, road

__all__ = ["road"]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    parametrize(metafunc)
