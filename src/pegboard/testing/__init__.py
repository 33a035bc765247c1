"""Tools for tests of tools and middleware."""

from __future__ import annotations

from importlib import import_module
from typing import Any

# Names load when they are first used, as those of `pegboard` do.
_HOMES = {
    "FakeClock": "pegboard.testing.fake_clock",
    "FakeRates": "pegboard.testing.fake_rates",
    "Recorder": "pegboard.testing.recorder",
    "Run": "pegboard.testing.single_call",
    "Step": "pegboard.testing.recorder",
    "make_call": "pegboard.testing.single_call",
    "run_alone": "pegboard.testing.single_call",
}

__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'pegboard.testing' has no attribute {name!r}")
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return list(__all__)
