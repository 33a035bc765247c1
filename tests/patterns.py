"""Judges from a regular expression's parse tree whether a text can make it slow.

`re` backtracks and does not count its steps, and time measured on a busy machine proves little. The tree does: a pattern
takes time in proportion to the text if

1. no repeat without a bound can give characters back to what follows it (it is possessive, nothing after it can fail,
   or what follows cannot begin with a character of the repeat), and repeats with a bound that can do so multiply to a
   small number;
2. where it is searched for, an attempt from the middle of such a repeat cannot run over it again: something before the
   repeat (`\\b`, a lookbehind, a character that it does not match) holds at its beginning alone, or nothing after it
   can fail, so that the first attempt succeeds and the search goes on behind it.

Both are sufficient, not necessary. Sets of characters are compared by a sample: ASCII, and the ends of every range.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from re import _constants as ops  # type: ignore[attr-defined]  # the parser of the standard library has no types
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

LONG = 256
"""A repeat with a higher bound counts as one without."""
COMBINATIONS = 2_000
"""What the bounded repeats of a pattern may multiply to."""

Node = tuple[Any, Any]
Letters = frozenset[str]

_CATEGORIES = {
    ops.CATEGORY_DIGIT: r"\d", ops.CATEGORY_NOT_DIGIT: r"\D", ops.CATEGORY_SPACE: r"\s",
    ops.CATEGORY_NOT_SPACE: r"\S", ops.CATEGORY_WORD: r"\w", ops.CATEGORY_NOT_WORD: r"\W",
}  # fmt: skip
_REPEATS = (ops.MAX_REPEAT, ops.MIN_REPEAT, ops.POSSESSIVE_REPEAT)
# Nothing is given back to what follows a lookahead or an atomic group, though it can fail.
_SEALED: list[Node] = [(ops.AT, ops.AT_END_STRING)]
_EXTRA = "\x85\xa0\u00e9\u4e2d\u2003\u3000\u200b\ufeff\U0001f600"


def find_slow(pattern: re.Pattern[Any], way: str = "search") -> list[str]:
    """Why a text can make a pattern slow that is used this way (`search`, `match`, `fullmatch`); empty if none can."""
    source = pattern.pattern if isinstance(pattern.pattern, str) else pattern.pattern.decode("latin-1")
    judge = _Judge(source, pattern.flags, searched=way not in ("match", "fullmatch"))
    return list(judge.problems([(ops.AT, ops.AT_END_STRING)] if way == "fullmatch" else []))


class _Judge:
    def __init__(self, source: str, flags: int, *, searched: bool) -> None:
        self._tree: list[Node] = list(parser.parse(source, flags & ~re.UNICODE if flags & re.ASCII else flags))
        self._flags = flags
        self._searched = searched
        self._sample = frozenset({*map(chr, range(128)), *_EXTRA, *_ends(self._tree)})
        self._combinations = 1

    def problems(self, after: list[Node]) -> Iterator[str]:
        yield from self._walk(self._tree, [], after)
        if self._combinations > COMBINATIONS:
            yield f"its bounded repeats can be combined in {self._combinations} ways"

    # Which characters.

    def _letters(self, node: Node) -> Letters:
        """The characters that one node of a single character matches."""
        op, argument = node
        if op is ops.LITERAL:
            found = {chr(argument)}
            if self._flags & re.IGNORECASE:
                found |= {chr(argument).lower(), chr(argument).upper()}
            return frozenset(found)
        if op is ops.NOT_LITERAL:
            return self._sample - {chr(argument)}
        if op is ops.ANY:
            return self._sample if self._flags & re.DOTALL else self._sample - {"\n"}
        found = set()
        for kind, value in argument:
            if kind is ops.LITERAL:
                found |= self._letters((kind, value))
            elif kind is ops.RANGE:
                within = {one for one in self._sample if value[0] <= ord(one) <= value[1]}
                found |= within
                if self._flags & re.IGNORECASE:
                    found |= {one.swapcase() for one in within}
            elif kind is ops.CATEGORY:
                found |= {one for one in self._sample if re.match(_CATEGORIES[value], one)}
        return self._sample - found if argument[0][0] is ops.NEGATE else frozenset(found & self._sample | found)

    def _consumed(self, nodes: list[Node]) -> Letters:
        """Every character that a match of these nodes can hold."""
        return frozenset().union(*(self._one_consumed(node) for node in nodes))

    def _one_consumed(self, node: Node) -> Letters:
        op, _ = node
        if op in (ops.AT, ops.ASSERT, ops.ASSERT_NOT):
            return frozenset()
        if op is ops.GROUPREF:
            return self._sample
        inner = _inner(node)
        return self._letters(node) if inner is None else self._consumed([one for part in inner for one in part])

    def _first(self, nodes: list[Node]) -> tuple[Letters, bool]:
        """The characters that a match can begin with, and whether it can be empty and never fail."""
        found: Letters = frozenset()
        for node in nodes:
            op, argument = node
            if node in ((ops.AT, ops.AT_END_STRING), (ops.AT, ops.AT_END)):
                return found | ({"\n"} if argument is ops.AT_END else frozenset()), False
            if op in (ops.AT, ops.ASSERT, ops.ASSERT_NOT, ops.GROUPREF):
                # An assertion takes nothing and can fail: whatever follows may stand here.
                return self._sample, False
            inner = _inner(node)
            if inner is None:
                return found | self._letters(node), False
            firsts = [self._first(part) for part in inner]
            found |= frozenset().union(*(letters for letters, _ in firsts))
            skipped = op in _REPEATS and argument[0] == 0
            if not skipped and not any(empty for _, empty in firsts):
                return found, False
        return found, True

    # The two rules.

    def _walk(self, nodes: list[Node], before: list[Node], after: list[Node]) -> Iterator[str]:
        for index, node in enumerate(nodes):
            op, argument = node
            earlier, later = [*before, *nodes[:index]], [*nodes[index + 1 :], *after]
            if op in (ops.ASSERT, ops.ASSERT_NOT):
                yield from self._walk(list(argument[1]), earlier, _SEALED)
            elif op in _REPEATS:
                yield from self._repeat(node, earlier, later)
            else:
                for part in _inner(node) or ():
                    yield from self._walk(part, earlier, _SEALED if op is ops.ATOMIC_GROUP else later)

    def _repeat(self, node: Node, before: list[Node], after: list[Node]) -> Iterator[str]:
        op, (_, most, body) = node
        parts = list(body)
        follow, cannot_fail = self._first(after)
        first, empty = self._first(parts)
        endless = most is ops.MAXREPEAT or most > LONG
        gives_back = op is not ops.POSSESSIVE_REPEAT and not cannot_fail and bool(first & follow)
        shown = "".join(sorted(first & follow))[:8]
        if endless and empty:
            yield "an unbounded repeat of what can be empty"
        if endless and gives_back:
            yield f"an unbounded repeat that can give back {shown!r} to what follows"
        elif gives_back and most > 8:
            self._combinations *= int(most) + 1
        if endless and self._searched and not cannot_fail and not self._begins_once(parts, before):
            yield "an unbounded repeat that can be tried from many places within itself"
        again = [] if most == 1 else [(ops.MAX_REPEAT, (0, ops.MAXREPEAT, parts))]
        yield from self._walk(parts, [*before, *again], [*again, *after])

    def _begins_once(self, body: list[Node], before: list[Node]) -> bool:
        run = self._consumed(body)
        for node in reversed(before):
            op, argument = node
            if op is ops.AT:
                if argument in (ops.AT_BEGINNING, ops.AT_BEGINNING_STRING):
                    return not self._flags & re.MULTILINE or "\n" not in run
                if argument is ops.AT_BOUNDARY:
                    return all(re.match(r"\w", one) for one in run)
                continue
            if op is ops.ASSERT_NOT and argument[0] < 0:
                if run <= self._consumed(list(argument[1])):
                    return True
                continue
            if op in (ops.ASSERT, ops.ASSERT_NOT):
                continue
            taken = self._one_consumed(node)
            must = op not in _REPEATS or argument[0] > 0
            if must and taken and not taken & run:
                return True
            run |= taken
        return False


def _inner(node: Node) -> list[list[Node]] | None:
    """The alternatives within a node; None for a single character."""
    op, argument = node
    if op in _REPEATS:
        return [list(argument[2])]
    if op is ops.SUBPATTERN:
        return [list(argument[3])]
    if op is ops.ATOMIC_GROUP:
        return [list(argument)]
    if op is ops.BRANCH:
        return [list(part) for part in argument[1]]
    return None


def _ends(nodes: list[Node]) -> Iterator[str]:
    """The ends of the ranges in a tree, and single characters."""
    for node in nodes:
        op, argument = node
        if op is ops.LITERAL or op is ops.NOT_LITERAL:
            yield chr(argument)
        elif op is ops.IN:
            for kind, value in argument:
                if kind is ops.RANGE:
                    yield from map(chr, value)
                elif kind is ops.LITERAL:
                    yield chr(value)
        elif op in (ops.ASSERT, ops.ASSERT_NOT):
            yield from _ends(list(argument[1]))
        else:
            for part in _inner(node) or ():
                yield from _ends(part)


def sample_words(pattern: re.Pattern[str]) -> list[str]:
    """A text that matches each alternative of a pattern, if assertions are left out."""
    return list(_samples(list(parser.parse(pattern.pattern, pattern.flags))))


def _samples(nodes: list[Node]) -> Iterator[str]:
    found = [""]
    for node in nodes:
        op, argument = node
        if op is ops.ASSERT and argument[0] > 0:
            endings = list(_samples(list(argument[1])))
        elif op in (ops.AT, ops.ASSERT, ops.ASSERT_NOT):
            continue
        elif (inner := _inner(node)) is not None:
            endings = [text for part in inner for text in _samples(part)]
            if op in _REPEATS:
                endings = [text * max(1, argument[0]) for text in endings]
        elif op is ops.LITERAL:
            endings = [chr(argument)]
        elif op is ops.IN and argument[0][0] is ops.RANGE:
            endings = [chr(argument[0][1][0])]
        else:
            endings = ["x"]
        # Each alternative once is enough: not all combinations of all.
        most = max(len(found), len(endings))
        found = [found[index % len(found)] + endings[index % len(endings)] for index in range(most)]
    yield from found
