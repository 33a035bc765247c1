"""Full-text search over the tools of an endpoint: words by BM25, their parts by trigrams, slips by spelling."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct


class Page(Struct, frozen=True, kw_only=True):
    """What is known of one tool, by the fields that count differently."""

    name: str
    title: str = ""
    owner: str = ""
    description: str = ""
    arguments: str = ""
    tags: str = ""


class Index:
    """Answers queries with the numbers of pages, the best first."""

    def __init__(self, pages: Iterable[Page] = ()) -> None:
        self._pages = tuple(pages)

    def search(self, query: str) -> list[int]:
        """The pages that have to do with the query; any text is a query."""
        raise NotImplementedError(query)
