"""Tools for tests of tools and middleware."""

from __future__ import annotations

from pegboard.lazy_names import lazy_names

_HOMES = {
    "Expectation": "pegboard.testing.expectation",
    "FakeCall": "pegboard.testing.fake_server",
    "FakeClock": "pegboard.testing.fake_rates",
    "FakeRates": "pegboard.testing.fake_rates",
    "FakeServer": "pegboard.testing.fake_server",
    "MemoryServer": "pegboard.testing.memory_server",
    "Recorder": "pegboard.testing.recorder",
    "Recording": "pegboard.testing.recording",
    "Run": "pegboard.testing.single_call",
    "Step": "pegboard.testing.recorder",
    "expect": "pegboard.testing.expectation",
    "fake_gateway": "pegboard.testing.fake_server",
    "fixed_tokens": "pegboard.testing.fixed_tokens",
    "make_call": "pegboard.testing.single_call",
    "run_alone": "pegboard.testing.single_call",
}

__all__ = list(_HOMES)

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
