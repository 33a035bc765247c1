"""Pauses between attempts."""

from __future__ import annotations

import pytest

from pegboard.backoff import backoff, jitter


def test_the_pause_doubles_after_each_failure_up_to_its_limit() -> None:
    assert [backoff(failures, 0.2, 1.0) for failures in range(6)] == [0.0, 0.2, 0.4, 0.8, 1.0, 1.0]


@pytest.mark.parametrize("failures", [1_025, 10**6])
def test_the_pause_stays_at_its_limit_after_any_number_of_failures(failures: int) -> None:
    assert backoff(failures, 0.2, 30.0) == 30.0


def test_jitter_changes_a_pause_by_at_most_a_half() -> None:
    pauses = [jitter(2.0) for _ in range(100)]
    assert all(1.0 <= pause <= 3.0 for pause in pauses)
    assert len(set(pauses)) > 1
