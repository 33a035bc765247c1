"""Pages of a long list, each with a sealed cursor to the next."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from pegboard.bounded_dict import BoundedDict
from pegboard.call import EncodedResult, Json
from pegboard.catalog.caching import Caching
from pegboard.errors import InvalidParams
from pegboard.protocol.json_values import as_list
from pegboard.security.seal import Seal

# The results of one list that are split into pages at a time: one for each transport.
_MAX_RESULTS: Final = 8


class _CachedPages:
    """The pages of a list since its last change."""

    __slots__ = ("items", "pages")

    def __init__(self) -> None:
        self.items: list[Json] | None = None
        self.pages: dict[int, EncodedResult] = {}


class Listing:
    """One list of the protocol, split into pages that are cached until a change."""

    def __init__(
        self,
        member: str,
        items: Callable[[], Iterable[Json]],
        seal: Seal,
        size: int,
        caching: Caching = Caching(scope="public"),  # noqa: B008 — it cannot be changed
    ) -> None:
        self._member = member
        self._items = items
        self._seal = seal
        self._size = size
        self._caching = caching
        self._made: _CachedPages | None = None

    def forget(self) -> None:
        """Something changed: build the pages again."""
        # Replaced, not cleared, since another thread may be filling it with old items.
        self._made = None

    def page(self, cursor: str | None) -> EncodedResult:
        """The page behind a cursor, or the first."""
        start = 0 if cursor is None else self._read(cursor)
        made = self._made
        if made is None:
            made = self._made = _CachedPages()
        kept = made.pages.get(start)
        if kept is None:
            kept = made.pages[start] = self._make(made, start)
        return kept

    def _read(self, cursor: str) -> int:
        # A cursor does not expire: it names a position in a list that exists as long as the board.
        value = self._seal.open(cursor, now=0.0)
        if not isinstance(value, list) or len(value) != 2 or value[0] != self._member or not isinstance(value[1], int):
            raise InvalidParams("Invalid cursor: it belongs to another list")
        return value[1]

    def _make(self, made: _CachedPages, start: int) -> EncodedResult:
        if made.items is None:
            made.items = list(self._items())
        end = start + self._size
        result: dict[str, Json] = {self._member: made.items[start:end], **self._caching.hints()}
        if end < len(made.items):
            result["nextCursor"] = self._seal.close([self._member, end])
        return EncodedResult(result)


class PagedResults:
    """Pages of results that are kept whole: the tools of a board, which may have a list for each transport."""

    def __init__(self, member: str, seal: Seal, size: int, caching: Caching) -> None:
        self._member = member
        self._seal = seal
        self._size = size
        self._caching = caching
        self._listings: BoundedDict[int, tuple[EncodedResult, Listing]] = BoundedDict(_MAX_RESULTS)

    def page(self, whole: EncodedResult, cursor: str | None) -> EncodedResult:
        """The page of a result behind a cursor, or the first; a result that fits on one page is returned as it is."""
        items = as_list(whole.value[self._member])
        if cursor is None and len(items) <= self._size:
            return whole
        # By identity: a result is one object until its list changes, and is kept alive here.
        kept = self._listings.get(id(whole))
        if kept is None:
            listing = Listing(self._member, lambda: items, self._seal, self._size, self._caching)
            kept = self._listings[id(whole)] = whole, listing
        return kept[1].page(cursor)
