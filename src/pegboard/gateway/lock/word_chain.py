"""Finds words near each other in linear time.

One regular expression `A.{0,30}B.{0,30}C` tries every combination of matches of A, B and C. A chain searches for each
link once over the whole text and then joins the matches: for a link only the nearest preceding match counts, because
any match that reaches from farther away also reaches from there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cached_property
from typing import Final, NamedTuple

from msgspec import Struct

_GAP: Final = re.compile(r"<(\d+)(?: ([a-z-]+))?>")

# What a gap may not contain, by the word in its notation; `<30>` alone stays within a sentence.
_BARRIERS: Final = {
    None: re.compile("[.。]"),
    "any": None,
    "no-example": re.compile(r"\be\.g\.|\bexample\b|\bsuch as\b"),
    "no-example-colon": re.compile(r"\be\.g\.|\bexample:"),
}


class Span(NamedTuple):
    """A part of a text."""

    start: int
    end: int


class _Link(Struct, frozen=True):
    """A link, and its largest distance from the end of the previous one."""

    pattern: re.Pattern[str]
    catch_up_to: int = 0
    barrier: re.Pattern[str] | None = None


class WordChain:
    """Links written as one pattern with gaps between them: `ignore<30>previous<25>instructions`.

    A link must not contain a repeat that can match the whole text from many positions.
    """

    def __init__(self, notation: str) -> None:
        self._notation = notation

    @cached_property
    def _links(self) -> tuple[_Link, ...]:
        # Compiled when first needed: all rules take 15 ms, and most starts scan nothing.
        first, *rest = _GAP.split(self._notation)
        return (
            _Link(_compile(first)),
            *(
                _Link(_compile(pattern), int(reach), _BARRIERS[kind])
                for reach, kind, pattern in zip(rest[::3], rest[1::3], rest[2::3], strict=True)
            ),
        )

    @property
    def patterns(self) -> list[re.Pattern[str]]:
        return [link.pattern for link in self._links]

    def search(self, text: str) -> Span | None:
        """The first match of the whole chain."""
        first, *rest = self._links
        found: Iterator[Span] = _places(first.pattern, text)
        for link in rest:
            # Sorted by their ends: of two matches, the one that starts later may end earlier.
            reached = sorted(found, key=lambda span: span.end)
            if not reached:
                return None
            found = _join(reached, link, text)
        return next(found, None)


def _compile(pattern: str) -> re.Pattern[str]:
    # A lookahead finds it at every position, also inside an earlier match.
    return re.compile(f"(?=({pattern}))")


def _places(pattern: re.Pattern[str], text: str) -> Iterator[Span]:
    return (Span(*match.span(1)) for match in pattern.finditer(text))


def _join(reached: list[Span], link: _Link, text: str) -> Iterator[Span]:
    """Each match of the link within reach of the chain so far, from the start of the chain."""
    near = 0
    for start, end in _places(link.pattern, text):
        while near < len(reached) and reached[near].end <= start:
            near += 1
        if near == 0:
            continue
        before = reached[near - 1]
        if start - before.end <= link.catch_up_to and not (
            link.barrier and link.barrier.search(text, before.end, start)
        ):
            yield Span(before.start, end)
