"""Whose work a server may still be at, after somebody gave up."""

from __future__ import annotations

from pegboard.client.links.abandoned_requests import KEPT_SECONDS, AbandonedRequests


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_what_was_given_up_is_strange_to_others_until_it_is_answered() -> None:
    abandoned = AbandonedRequests(Clock())
    assert not abandoned.may_belong_to_another("ada")
    abandoned.add(1, "bob")
    assert abandoned.may_belong_to_another("ada")
    assert not abandoned.may_belong_to_another("bob")
    abandoned.finished(2)
    abandoned.finished(None)
    assert abandoned.may_belong_to_another("ada")
    abandoned.finished(1)
    assert not abandoned.may_belong_to_another("ada")


def test_it_is_forgotten_when_no_work_would_go_on_for_so_long() -> None:
    clock = Clock()
    abandoned = AbandonedRequests(clock)
    abandoned.add(1, "bob")
    clock.now = KEPT_SECONDS - 1
    abandoned.add(2, "bob")
    assert abandoned.may_belong_to_another("ada")
    clock.now = KEPT_SECONDS
    assert abandoned.may_belong_to_another("ada")
    clock.now = 2 * KEPT_SECONDS
    assert not abandoned.may_belong_to_another("ada")


def test_a_flood_of_them_is_bounded_and_leaves_the_last() -> None:
    abandoned = AbandonedRequests(Clock())
    for number in range(5000):
        abandoned.add(number, "bob")
    assert len(abandoned._all) == 1000
    for number in range(4000):
        abandoned.finished(number)
    assert abandoned.may_belong_to_another("ada")
