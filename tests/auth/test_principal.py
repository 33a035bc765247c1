"""The Principal as a value."""

from __future__ import annotations

from pegboard import Principal


def test_principals_are_the_same_if_their_ids_are() -> None:
    ann, other = Principal("ann", frozenset({"notes.read"})), Principal("ann")
    assert ann == other
    assert not ann != other  # noqa: SIM202 — both operators are tested
    assert ann != Principal("bob")
    assert len({ann, other}) == 1
