"""Pages of a long list, each with a sealed cursor to the next; a list is made once for all callers that see the same."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Final, Generic, TypeVar

from msgspec import Struct, field

from pegboard.bounded_dict import BoundedDict
from pegboard.call import EncodedResult, Json
from pegboard.catalog.caching import Caching
from pegboard.errors import InvalidParams
from pegboard.protocol.json_values import as_list, objects_in
from pegboard.rules.verdicts import VIEWS_KEPT, View
from pegboard.security.seal import Seal

# The results of one list that are split into pages at a time: for each transport, and each set of tools that callers see.
_MAX_RESULTS: Final = 64


_KEYS: Final = {"resources": "uri", "resourceTemplates": "uriTemplate"}

T = TypeVar("T")

_LISTS_KEPT: Final = 256


class ShownLists(Generic[T]):
    """The lists of one kind since their last change, by caller and by content."""

    __slots__ = ("_by_caller", "_by_content")

    def __init__(self) -> None:
        self._by_caller: BoundedDict[Hashable, T] = BoundedDict(VIEWS_KEPT)
        self._by_content: BoundedDict[Hashable, T] = BoundedDict(_LISTS_KEPT)

    def get(self, caller: Hashable) -> T | None:
        """The list of callers with these rights, if it was made."""
        return self._by_caller.get(caller)

    def add(self, caller: Hashable, content: Hashable, make: Callable[[], T]) -> T:
        """The list with this content, for callers with these rights."""
        made = self._by_content.get(content)
        if made is None:
            made = self._by_content[content] = make()
        self._by_caller[caller] = made
        return made


class _CachedPages(Struct, eq=False):
    """The pages of a list since its last change."""

    items: list[Mapping[str, Json]]
    caching: Caching
    pages: dict[int, EncodedResult] = {}


class Listing(Struct, eq=False):
    """One list of the protocol, split into pages that are cached until a change.

    `items` returns what callers with a view see; None is the view of callers that see everything.
    """

    member: str
    items: Callable[[View | None], Iterable[Mapping[str, Json]]]
    seal: Seal
    size: int
    caching: Caching = Caching(scope="public")
    _made: ShownLists[_CachedPages] = field(default_factory=ShownLists)

    def forget(self) -> None:
        """Something changed: build the pages again."""
        # Replaced, not cleared, since another thread may be filling it with old items.
        self._made = ShownLists()

    def page(self, cursor: str | None, view: View | None = None) -> EncodedResult:
        """The page behind a cursor, or the first, of the list that callers with this view see."""
        start = 0 if cursor is None else self._read(cursor)
        made = self._made
        pages = made.get(view) or self._list(made, view)
        kept = pages.pages.get(start)
        if kept is None:
            kept = pages.pages[start] = self._make(pages, start)
        return kept

    def _list(self, made: ShownLists[_CachedPages], view: View | None) -> _CachedPages:
        items, key = list(self.items(view)), _KEYS.get(self.member, "name")
        if view is None:
            return made.add(view, None, lambda: _CachedPages(items, self.caching))
        content = tuple(str(item.get(key)) for item in items)
        return made.add(view, content, lambda: _CachedPages(items, self.caching.private()))

    def _read(self, cursor: str) -> int:
        # A cursor does not expire: it names a position in a list that exists as long as the board.
        value = self.seal.open(cursor, now=0.0)
        if not isinstance(value, list) or len(value) != 2 or value[0] != self.member or not isinstance(value[1], int):
            raise InvalidParams("Invalid cursor: it belongs to another list")
        return value[1]

    def _make(self, made: _CachedPages, start: int) -> EncodedResult:
        end = start + self.size
        result: dict[str, Json] = {self.member: made.items[start:end], **made.caching.hints()}
        if end < len(made.items):
            result["nextCursor"] = self.seal.close([self.member, end])
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
            private = whole.value["cacheScope"] == "private"
            caching = self._caching.private() if private else self._caching
            listing = Listing(self._member, lambda _: objects_in(items), self._seal, self._size, caching)
            kept = self._listings[id(whole)] = whole, listing
        return kept[1].page(cursor)
