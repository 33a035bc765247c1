"""Finds names that are spelled alike, in bounded work."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from heapq import nsmallest

# The names whose edits are counted: those with the most letter pairs in common.
MEASURED = 32


def likeliest(name: str, names: Iterable[str], most: int) -> list[str]:
    """The names that have the most letter pairs in common with another; a filter, not a ranking."""
    wanted = _pairs(name)
    return nsmallest(most, names, key=lambda other: len(wanted ^ _pairs(other)))


def find_near(folded: str, known: Mapping[str, str], reach: int) -> list[tuple[int, int, str]]:
    """The names within this number of edits, with their distance and index; only the likeliest are measured."""
    wanted = _pairs(folded)
    likely = []
    for place, (other, candidate) in enumerate(known.items()):
        if folded and abs(len(folded) - len(candidate)) <= reach:
            # One edit removes at most three pairs: when two letters are swapped.
            lost = len(wanted - _pairs(candidate))
            if lost <= 3 * reach:
                likely.append((lost, place, other))
    measured = (
        (_distance(folded, known[other], reach), place, other) for _, place, other in nsmallest(MEASURED, likely)
    )
    return [found for found in measured if found[0] <= reach]


def _pairs(word: str) -> set[tuple[str, str]]:
    """The pairs of neighbouring letters of a word, including its ends."""
    return set(zip(f" {word}", f"{word} ", strict=True))


def _distance(one: str, other: str, reach: int) -> int:
    """Edits (a swap counts once) between two words, or more than `reach` if there are more."""
    beyond = reach + 1
    if one == other:
        return 0
    before_last: list[int] = []
    last = [min(column, beyond) for column in range(len(other) + 1)]
    for row, letter in enumerate(one, 1):
        current = [beyond] * (len(other) + 1)
        current[0] = min(row, beyond)
        # Further than `reach` from the diagonal, every distance is greater.
        for column in range(max(1, row - reach), min(len(other), row + reach) + 1):
            opposite = other[column - 1]
            cost = min(last[column] + 1, current[column - 1] + 1, last[column - 1] + (letter != opposite))
            if row > 1 and column > 1 and letter == other[column - 2] and one[row - 2] == opposite:
                cost = min(cost, before_last[column - 2] + 1)
            current[column] = cost
        if min(current) > reach:
            return beyond
        before_last, last = last, current
    return min(last[-1], beyond)
