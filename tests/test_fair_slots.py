"""Owners get slots in turn, whatever one of them asks for."""

from __future__ import annotations

import random
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from pegboard.fair_slots import SHARE, FairSlots


def served(slots: FairSlots[str], count: int) -> list[str]:
    """The items that get the only slot, one after the other."""
    order = []
    owner = "first"
    for _ in range(count):
        slots.free(owner)
        granted = slots.grant()
        assert granted is not None
        owner, item = granted
        order.append(item)
    return order


def one_taken(waiting: int = 1000) -> FairSlots[str]:
    slots = FairSlots[str](1, waiting)
    assert slots.take("first")
    return slots


def test_an_owner_with_many_items_delays_another_by_one() -> None:
    slots = one_taken()
    for number in range(500):
        assert slots.wait("flood", f"flood {number}")
    for owner in ("ada", "bob"):
        assert slots.wait(owner, owner)
    assert served(slots, 5) == ["flood 0", "ada", "bob", "flood 1", "flood 2"]


def test_items_of_one_owner_are_served_in_order() -> None:
    slots = one_taken()
    for number in range(20):
        slots.wait("ada", str(number))
    assert served(slots, 20) == [str(number) for number in range(20)]


def test_one_owner_leaves_some_of_many_slots_to_others_and_uses_all_of_few() -> None:
    for size in (1, 2, SHARE):
        few = FairSlots[str](size, 0)
        assert all(few.take("flood") for _ in range(size))
    many = FairSlots[str](64, 1000)
    while many.take("flood"):
        pass
    assert many.taken == 52, "four fifths"
    assert many.take("ada"), "a newcomer does not wait, however long the others hold their slots"


def test_items_without_an_owner_may_have_every_slot() -> None:
    slots = FairSlots[str](64, 0)
    assert all(slots.take("") for _ in range(64))
    assert not slots.take("")


def test_a_full_queue_makes_room_for_an_owner_with_few_items() -> None:
    slots = one_taken(waiting=4)
    for number in range(4):
        slots.wait("flood", f"flood {number}")
    assert slots.displace("flood") is None
    assert not slots.wait("flood", "one more")
    for item, newest in (("ada", "flood 3"), ("ada again", "flood 2")):
        assert slots.displace("ada") == newest, "the newest item of the owner with the most"
        assert slots.wait("ada", item)
    assert slots.displace("ada") is None, "both have two"
    assert served(slots, 4) == ["flood 0", "ada", "flood 1", "ada again"]


def test_no_queue_means_that_everything_beyond_the_slots_is_rejected() -> None:
    assert not one_taken(waiting=0).wait("ada", "ada")


@given(st.integers(1, 12), st.integers(0, 6), st.randoms(use_true_random=False))
def test_slots_and_items_balance_in_any_order_of_steps(size: int, waiting: int, dice: random.Random) -> None:
    slots = FairSlots[int](size, waiting)
    held: list[str] = []
    queued: dict[int, str] = {}
    for number in range(60):
        owner = dice.choice(["", "ada", "bob", "cleo"])
        match dice.randrange(4):
            case 0 | 1:
                if slots.take(owner):
                    held.append(owner)
                    continue
                removed = slots.displace(owner)
                if removed is not None:
                    del queued[removed]
                if slots.wait(owner, number):
                    queued[number] = owner
            case 2 if held:
                slots.free(held.pop(dice.randrange(len(held))))
            case 3 if queued:
                item = dice.choice(list(queued))
                assert slots.leave(queued.pop(item), item)
        while (granted := slots.grant()) is not None:
            assert queued.pop(granted[1]) == granted[0]
            held.append(granted[0])
        assert slots.taken == len(held) <= size
        assert slots.waiting == len(queued) <= waiting
        assert not queued or slots.taken, "somebody waits only while another one has a slot"
    assert Counter(held).total() == slots.taken
