"""A dict with a limit."""

from __future__ import annotations

from pegboard.bounded_dict import BoundedDict


def test_the_entries_set_longest_ago_are_dropped() -> None:
    numbers: BoundedDict[str, int] = BoundedDict(2)
    for number, name in enumerate("abac"):
        numbers[name] = number
    assert numbers == {"a": 2, "c": 3}


def test_a_limit_of_zero_keeps_nothing() -> None:
    numbers: BoundedDict[str, int] = BoundedDict(0)
    numbers["a"] = 1
    assert numbers == {}
