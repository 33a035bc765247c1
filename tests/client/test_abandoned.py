"""Whose work a server may still be at, after somebody gave up."""

from __future__ import annotations

from pegboard.client.abandoned import SECONDS, Abandoned


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_what_was_given_up_is_strange_to_others_until_it_is_answered() -> None:
    abandoned = Abandoned(Clock())
    assert not abandoned.is_strange_to("ada")
    abandoned.add(1, "bob")
    assert abandoned.is_strange_to("ada")
    assert not abandoned.is_strange_to("bob")
    abandoned.settle(2)
    abandoned.settle(None)
    assert abandoned.is_strange_to("ada")
    abandoned.settle(1)
    assert not abandoned.is_strange_to("ada")


def test_it_is_forgotten_when_no_work_would_go_on_for_so_long() -> None:
    clock = Clock()
    abandoned = Abandoned(clock)
    abandoned.add(1, "bob")
    clock.now = SECONDS - 1
    abandoned.add(2, "bob")
    assert abandoned.is_strange_to("ada")
    clock.now = SECONDS
    assert abandoned.is_strange_to("ada")
    clock.now = 2 * SECONDS
    assert not abandoned.is_strange_to("ada")


def test_a_flood_of_them_is_bounded_and_leaves_the_last() -> None:
    abandoned = Abandoned(Clock())
    for number in range(5000):
        abandoned.add(number, "bob")
    assert len(abandoned._all) == 1000
    for number in range(4000):
        abandoned.settle(number)
    assert abandoned.is_strange_to("ada")
