"""Splits text into search terms: stop words, synonyms, spelling."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final

_CAMEL_CASE: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
# Letters and digits of any script; everything else, including `_`, separates words. Longer sequences are not words.
_WORD: Final = re.compile(r"[^\W_]{1,40}")

_FILLER: Final = """
    a about all am an and any are as at be been by can could did do does for from had has have how i if in into is it its
    just like may me my need of on one or our please should so some somebody someone something that the their them then
    there these they this those to up us use want was way we were what when where which while who why will with would you
    your
"""
FILLER: Final = frozenset(_FILLER.split())
"""Stop words."""

_SYNONYM_LINES: Final = """
    delete remove erase drop destroy trash discard forget
    create make new add build set
    list show enumerate get see view display
    read open load view content get
    find search look query lookup locate
    send post write tell deliver share
    save write store put
    update change modify edit set adjust
    rename move
    copy duplicate clone
    folder directory
    file document
    image picture photo
    repository repo project
    issue ticket bug task
    email mail
    message chat
    meeting event appointment
    person user people member colleague
    cancel end stop abort terminate kill
    run execute launch start
    undo revert rollback restore
    fix repair edit
    changed changes diff modified
    url link address website site page
    web internet online
    database db sql
    regex regexp regular
    weather rain temperature
    temperature warm cold hot heat
    money payment pay balance
    invoice bill
    discount coupon
    refund reimburse
    log output
    download fetch get
    upload put push
    answer reply respond
    approve accept review
    decline reject refuse
    available free
    book reserve
    zone timezone
    button element click
    press click
    type enter
    fact observation
    light lamp
    route direction
    near around nearby
    history log past previous
    difference diff compare
    size big bytes
    summary summarize short
    ci continuous integration workflow
    pr pull request
    remember memory knowledge
    deploy apply deployment
    container pod
    cluster kubernetes k8s
    choose pick select
    warning alert
    vacation absence holiday
    silence mute
"""
"""Each line is a set of words that people use interchangeably when they search for a tool."""


_READING_WORDS: Final = """
    check count describe did diff display does download enumerate explain export fetch find get has have how
    inspect is list locate look lookup navigate query read retrieve search see show status tell view watch
    what when where which who whose why
"""
_READING: Final = frozenset(_READING_WORDS.split())
_CHANGING_WORDS: Final = """
    add append apply approve archive assign attach book build cancel change clean clear clone close comment
    commit connect copy create decline delete deploy disable discard drop edit enable erase execute fill
    forget fork insert install invite kill leave log make merge modify move mute pause pay post press publish
    push put refund reject release remember remove rename replace reply report reserve reset resize restart
    restore resume revert revoke roll run save schedule send set share stage start stop store submit switch
    transfer trash undo unstage update upload write
"""
_CHANGING: Final = frozenset(_CHANGING_WORDS.split())
# "Open an issue" asks for a new one, "open the issue" for one that exists.
_ARTICLES: Final = frozenset({"a", "an", "another", "new"})


def changes_something(words: Sequence[str]) -> bool | None:
    """Whether the first verb among the words of a question, or of a tool's name, is one of changing or of reading.

    None if there is no such verb.
    """
    for word, following in pairwise((*words, "")):
        if word == "open" and following in _ARTICLES:
            return True
        if word in _CHANGING:
            return True
        if word in _READING:
            return False
    return None


def _read_synonyms(lines: str) -> Mapping[str, tuple[str, ...]]:
    found: dict[str, dict[str, None]] = {}
    for line in filter(None, map(str.split, lines.splitlines())):
        for word in line:
            found.setdefault(word, {}).update(dict.fromkeys(other for other in line if other != word))
    return {word: tuple(others) for word, others in found.items()}


SYNONYMS: Final = _read_synonyms(_SYNONYM_LINES)


def split_words(text: str) -> list[str]:
    """The words of a text in lower case: `readFile_v2` is read, file, v2."""
    return _WORD.findall(_CAMEL_CASE.sub(" ", text).lower())


def significant_words(query: str, most: int) -> list[str]:
    """The words of a query without stop words, each once, in order; all of them if there are only stop words."""
    words = list(dict.fromkeys(split_words(query)))
    return ([word for word in words if word not in FILLER] or words)[:most]


def singular(word: str) -> str:
    """A word in the form in which synonyms are listed: without the plural s."""
    return word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith("ss") else word


class Spelling:
    """Finds the words of a vocabulary that are one typo away: a letter omitted, added, changed or swapped.

    Two such words have a form in common when one letter, or none, is removed from each.
    """

    def __init__(self, syntax: Iterable[str]) -> None:
        self._forms: dict[str, list[str]] = {}
        for word in syntax:
            for form in _forms(word):
                self._forms.setdefault(form, []).append(word)

    def near(self, word: str, most: int) -> list[str]:
        """The words that may have been meant, those with the same start first."""
        found = {known for form in _forms(word) for known in self._forms.get(form, ()) if _is_typo(word, known)}
        return sorted(found, key=lambda known: (known[0] != word[0], abs(len(known) - len(word)), known))[:most]


def _forms(word: str) -> Iterator[str]:
    yield word
    if len(word) > 2:
        yield from {word[:place] + word[place + 1 :] for place in range(len(word))}


def _is_typo(word: str, known: str) -> bool:
    """Whether they are one typo apart; words with a form in common may be two apart."""
    if len(word) != len(known):
        return True
    differ = [place for place, (one, other) in enumerate(zip(word, known, strict=True)) if one != other]
    if len(differ) == 2:
        first, second = differ
        return second == first + 1 and word[first] == known[second] and word[second] == known[first]
    return len(differ) < 2
