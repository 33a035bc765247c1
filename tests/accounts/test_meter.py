"""A meter lets a period's amount pass, and no more, whatever the steps."""

from __future__ import annotations

import math
import random

from hypothesis import given
from hypothesis import strategies as st

from pegboard.accounts.meter import Meter
from pegboard.accounts.quota import FlowLimit


def passes(meter: Meter, now: float, tries: int) -> int:
    passed = 0
    for _ in range(tries):
        allowed = not meter.wait(now)
        assert meter.take(now, 1) == allowed
        passed += allowed
    return passed


@given(st.integers(1, 1000), st.sampled_from([1, 60, 3600, 86400]), st.floats(0, 1e7))
def test_exactly_the_amount_passes_at_once(amount: int, seconds: int, now: float) -> None:
    meter = Meter(FlowLimit(amount, seconds), amount)
    assert passes(meter, now, amount + 10) == amount
    assert 0 < meter.wait(now) <= seconds
    assert meter.left(now) == 0


@given(st.integers(1, 50), st.randoms(use_true_random=False))
def test_in_any_time_no_more_passes_than_one_amount_and_what_the_time_earns(amount: int, dice: random.Random) -> None:
    meter, now, passed = Meter(FlowLimit(amount, 60), amount), 0.0, 0
    for _ in range(200):
        now += dice.choice([0, 0, 0.1, 1, 7])
        passed += passes(meter, now, dice.randrange(5))
    assert passed <= amount + amount * now / 60 + 1


def test_the_time_to_wait_is_exact() -> None:
    meter = Meter(FlowLimit(2, 60), 2)
    passes(meter, 0.0, 2)
    assert meter.wait(0.0) == 30
    assert meter.wait(29.9)
    assert not meter.wait(30.0)


def test_one_use_above_the_amount_passes_once_nothing_is_owed_and_blocks_for_a_period_at_most() -> None:
    meter = Meter(FlowLimit(100, 60), 100)
    assert not meter.wait(0.0, 10**9)
    meter.charge(0.0, 10**9)
    assert meter.wait(0.0, 0) == 60
    assert not meter.wait(60.0, 0)
    assert meter.wait(60.0, 1)


def test_a_clock_that_stands_still_or_jumps_ahead_gives_one_amount_at_most() -> None:
    meter = Meter(FlowLimit(5, 60), 5)
    assert passes(meter, 100.0, 50) == 5
    assert passes(meter, 1e12, 50) == 5
    # Back: the debt is longer than any that can be earned, and passes when the clock is where it was.
    assert passes(meter, 100.0, 50) == 0


def test_a_share_of_an_amount_is_slower_and_none_is_never() -> None:
    meter = Meter(FlowLimit(100, 60), 25)
    assert passes(meter, 0.0, 100) == 25
    meter.set_units(100)
    assert passes(meter, 0.0, 100) == 0, "units that were added carry no credit"
    assert passes(meter, 6.0, 100) == 10
    meter.set_units(0)
    assert meter.wait(1000.0) == math.inf
    assert not meter.take(1000.0, 0)
    assert not meter.take(1000.0, 1)
    meter.set_units(100)
    assert meter.take(1000.0, 1)
