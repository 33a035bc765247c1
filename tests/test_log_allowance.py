"""Log lines that others cause are limited."""

from __future__ import annotations

import logging

import pytest

from pegboard.log_allowance import LogAllowance


def test_lines_beyond_the_allowance_are_counted_and_reported_in_the_next_period(
    caplog: pytest.LogCaptureFixture,
) -> None:
    now = [0.0]
    allowance = LogAllowance(logging.getLogger("test"), "sign-ins", lines=2, seconds=10, clock=lambda: now[0])
    for number in range(5):
        allowance.log(logging.WARNING, "line %d", number)
    now[0] = 10.0
    allowance.log(logging.WARNING, "later")
    assert caplog.messages == ["line 0", "line 1", "sign-ins: 3 log messages were omitted", "later"]
