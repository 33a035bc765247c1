"""Lists that differ between callers: each is made once for all callers that see the same items."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Final, Generic, TypeVar

from pegboard.bounded_dict import BoundedDict
from pegboard.rules.verdicts import VIEWS_KEPT

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
