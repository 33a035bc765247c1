"""Pages of a long list, each with a sealed cursor to the next."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from pegboard.call import Json, Kept
from pegboard.errors import InvalidParams
from pegboard.seal import Seal


class Listing:
    """One list of the protocol, cut into pages that are kept until something changes."""

    def __init__(self, member: str, items: Callable[[], Iterable[Json]], seal: Seal, size: int) -> None:
        self._member = member
        self._items = items
        self._seal = seal
        self._size = size
        self._pages: dict[int, Kept] = {}
        self._all: list[Json] | None = None

    def forget(self) -> None:
        """Something changed: the pages are made anew."""
        self._pages.clear()
        self._all = None

    def page(self, cursor: str | None) -> Kept:
        """The page behind a cursor, or the first."""
        start = 0 if cursor is None else self._read(cursor)
        kept = self._pages.get(start)
        if kept is None:
            kept = self._pages[start] = self._make(start)
        return kept

    def _read(self, cursor: str) -> int:
        # A cursor does not expire: it names a place in a list that is there as long as the board is.
        value = self._seal.open(cursor, now=0.0)
        if not isinstance(value, list) or len(value) != 2 or value[0] != self._member or not isinstance(value[1], int):
            raise InvalidParams("Invalid cursor: it belongs to another list")
        return value[1]

    def _make(self, start: int) -> Kept:
        if self._all is None:
            self._all = list(self._items())
        end = start + self._size
        result: dict[str, Json] = {self._member: self._all[start:end], "ttlMs": 0, "cacheScope": "public"}
        if end < len(self._all):
            result["nextCursor"] = self._seal.close([self._member, end])
        return Kept(result)
