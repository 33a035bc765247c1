"""Full-text search over tools: ranking by BM25, prefixes, trigrams and spelling.

Theory of operation. Two SQLite FTS5 tables are kept in memory: one page for each tool, with weighted fields; and the
vocabulary, each word once, split into trigrams. A query is split into words, and each word is looked up by itself: as
it is (stemmed), as a prefix if it is the last word, and by its synonyms, which count less. A word that no page contains
is looked up in the vocabulary: first with one typo, then as a part of a longer word. The score of a page is the sum of
the best match of each word. No part of a query becomes FTS syntax: words are letters and digits, and are quoted.
"""

from __future__ import annotations

import sqlite3
import threading
import weakref
from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import islice
from typing import Final

from msgspec import Struct

from pegboard.errors import SetupError
from pegboard.gateway.modes.search_words import (
    SYNONYMS,
    Spelling,
    changes_something,
    significant_words,
    singular,
    split_words,
)


class SearchDocument(Struct, frozen=True, kw_only=True):
    """The text of one tool, by fields with different weights."""

    name: str
    title: str = ""
    owner: str = ""
    description: str = ""
    arguments: str = ""
    tags: str = ""
    changes: bool | None = None
    """Whether the tool changes something, if its name does not tell."""


# The weight of a word by its field.
_WEIGHTS: Final = {"name": 4.0, "title": 3.0, "owner": 1.5, "description": 2.0, "arguments": 0.6, "tags": 2.5}
_FIELDS: Final = tuple(_WEIGHTS)

# The weight of a tool that reads where the query asks to change something, and the reverse.
_OTHER_INTENT: Final = 0.7

# The weight of a match by a similar word.
_BEGINNING, _SYNONYM, _SLIP, _PART = 0.7, 0.4, 0.8, 0.5

_MAX_WORDS: Final = 32
_MAX_NEAR: Final = 8
_MAX_PARTS: Final = 16
# A word on this many pages is not significant: no similar words are looked up for it.
_COMMON: Final = 1_000
# Servers control the text of their tools: a huge or artificial catalog must not fill our memory.
MAX_FIELD_LENGTH: Final = 4_000
MAX_TEXT: Final = 3_000_000
MAX_VOCABULARY: Final = 20_000
MAX_CACHED_ROWS: Final = 200_000

_MAKE: Final = f"""
    CREATE VIRTUAL TABLE pages USING fts5({", ".join(_FIELDS)}, content='', tokenize='porter unicode61');
    CREATE VIRTUAL TABLE vocabulary USING fts5(word, tokenize='trigram');
"""
_LOOK_UP: Final = f"SELECT rowid, -bm25(pages, {', '.join(map(str, _WEIGHTS.values()))}) FROM pages WHERE pages MATCH ?"  # noqa: S608 — the fields are our own words

Found = dict[int, float]


class SearchIndex:
    """Answers queries with the numbers of pages, best first."""

    def __init__(self, pages: Iterable[SearchDocument] = ()) -> None:
        self._pages = pages
        self._kept: dict[str, Found] = {}
        self._kept_rows = 0
        self._searching = threading.Lock()

    def search(self, query: str) -> list[int]:
        """The pages that match the query; any text is a query. From any thread."""
        words = significant_words(query[:MAX_FIELD_LENGTH], _MAX_WORDS)
        asks_to_change = changes_something(split_words(query[:MAX_FIELD_LENGTH])[:_MAX_WORDS])
        scores: Found = {}
        with self._searching:
            for place, word in enumerate(words):
                for page, score in self._find(word, last=place == len(words) - 1).items():
                    scores[page] = scores.get(page, 0.0) + score
            if asks_to_change is not None:
                for page in scores:
                    if self._changes[page] is (not asks_to_change):
                        scores[page] *= _OTHER_INTENT
        return sorted(scores, key=lambda page: (-scores[page], page))

    @property
    def is_ready(self) -> bool:
        """Whether the index is built."""
        return "_spelling" in self.__dict__

    def prepare(self) -> None:
        """Build the index, which the first search would do otherwise; from any thread."""
        _ = self._tables, self._spelling

    @cached_property
    def _changes(self) -> list[bool | None]:
        """Whether each tool changes something: by the verb of its name, else by what its server declares."""
        _ = self._texts
        return self._intents

    def _find(self, word: str, *, last: bool) -> Found:
        """The pages for one word of a query, with the best score for each."""
        kept = self._kept.get(key := f"{word} *" if last else word)
        if kept is not None:
            return kept
        found = dict(self._look_up(f'"{word}"'))
        if last and len(word) > 1 and len(found) < _COMMON:
            _merge(found, self._look_up(f'"{word}" *'), _BEGINNING)
        if not found:
            for near in self._spelling.near(word, _MAX_NEAR):
                _merge(found, self._look_up(f'"{near}"'), _SLIP)
        if not found:
            for longer in self._words_with(word):
                _merge(found, self._look_up(f'"{longer}"'), _PART)
        for other in SYNONYMS.get(word) or SYNONYMS.get(singular(word), ()):
            if len(found) >= _COMMON:
                break
            _merge(found, self._look_up(f'"{other}"'), _SYNONYM)
        self._kept_rows += len(found) + 1
        if self._kept_rows > MAX_CACHED_ROWS:
            self._kept.clear()
            self._kept_rows = len(found) + 1
        self._kept[key] = found
        return found

    def _look_up(self, expression: str) -> Sequence[tuple[int, float]]:
        rows: list[tuple[int, float]] = self._tables.execute(_LOOK_UP, (expression,)).fetchall()
        return rows

    def _words_with(self, part: str) -> list[str]:
        """The words that contain a part of three letters or more, shortest first."""
        asked = "SELECT word FROM vocabulary WHERE word MATCH ? ORDER BY length(word) LIMIT ?"
        return [word for (word,) in self._tables.execute(asked, (f'"{part}"', _MAX_PARTS))]

    @cached_property
    def _tables(self) -> sqlite3.Connection:
        # Used from one thread at a time: first the one that builds it, then the one that searches.
        tables = sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None)
        weakref.finalize(self, tables.close)
        try:
            tables.executescript(_MAKE)
        except sqlite3.OperationalError as problem:
            raise SetupError(
                f"Search needs SQLite with FTS5 and its trigram tokenizer (3.34 or later); this Python has SQLite "
                f"{sqlite3.sqlite_version}: {problem}. Use a Python that is built with a newer one"
            ) from None
        places = ", ".join("?" * (len(_FIELDS) + 1))
        tables.execute("BEGIN")
        tables.executemany(
            f"INSERT INTO pages(rowid, {', '.join(_FIELDS)}) VALUES ({places})",  # noqa: S608 — our own words again
            ((number, *fields) for number, fields in enumerate(self._texts)),
        )
        tables.executemany("INSERT INTO vocabulary(word) VALUES (?)", ((word,) for word in self._vocabulary))
        tables.execute("COMMIT")
        return tables

    @cached_property
    def _texts(self) -> list[tuple[str, ...]]:
        texts, room = [], MAX_TEXT
        self._intents: list[bool | None] = []
        for page in self._pages:
            named = changes_something(split_words(page.name[:MAX_FIELD_LENGTH]))
            self._intents.append(page.changes if named is None else named)
            text = _plain(page if room > 0 else SearchDocument(name=page.name, title=page.title, owner=page.owner))
            room -= sum(map(len, text))
            texts.append(text)
        return texts

    @cached_property
    def _vocabulary(self) -> list[str]:
        """The vocabulary, words of names first: these are kept if there are too many."""
        by_field = (fields[place] for place in range(len(_FIELDS)) for fields in self._texts)
        words = dict.fromkeys(word for text in by_field for word in text.split())
        return list(islice(words, MAX_VOCABULARY))

    @cached_property
    def _spelling(self) -> Spelling:
        return Spelling(self._vocabulary)


def _merge(found: Found, rows: Iterable[tuple[int, float]], weight: float) -> None:
    for page, score in rows:
        if (weighed := score * weight) > found.get(page, 0.0):
            found[page] = weighed


def _plain(page: SearchDocument) -> tuple[str, ...]:
    """The fields split into words like queries, so that `readFile` is found either way."""
    return tuple(" ".join(split_words(getattr(page, field)[:MAX_FIELD_LENGTH])) for field in _FIELDS)
