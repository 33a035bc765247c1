"""The chains of prompts, resources and completions: each is composed at the first request after a change."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, TypeAlias

from pegboard.call import Call, Handler, Reply
from pegboard.call_target import UNKNOWN_ITEM, CalledItem, Kind
from pegboard.errors import AccessDenied, InvalidParams

Found: TypeAlias = tuple[CalledItem, Callable[[], Handler]]
Surround: TypeAlias = Callable[[Kind, CalledItem, Handler], Handler]


class ItemChains:
    """The Handler of one method: finds the item of a request and runs it with the item's middleware around it.

    `find` returns the item and a function that makes the Handler for it. It raises InvalidParams for an unknown name, and
    AccessDenied for an item that the caller may not use.
    `generation` returns a number that changes with the middleware and the items.
    """

    def __init__(
        self, kind: Kind, find: Callable[[Call], Found], surround: Surround, generation: Callable[[], int]
    ) -> None:
        self._kind: Kind = kind
        self._find = find
        self._surround = surround
        self._generation = generation
        self._composed_at = -1
        # The item is kept, too, so that its id is not used again.
        self._chains: dict[int, tuple[CalledItem, Handler]] = {}

    def __call__(self, call: Call) -> Coroutine[Any, Any, Reply]:
        """Run a request with the middleware of its item."""
        generation = self._generation()
        if self._composed_at != generation:
            self._chains.clear()
            self._composed_at = generation
        try:
            item, make = self._find(call)
        except (InvalidParams, AccessDenied):
            item, make = UNKNOWN_ITEM, lambda: self._reject
        call.tool = item
        found = self._chains.get(id(item))
        if found is None:
            found = self._chains[id(item)] = item, self._surround(self._kind, item, make())
        return found[1](call)

    async def _reject(self, call: Call) -> Reply:
        """The innermost Handler for unknown names: looks for the item again, to raise the error inside the hooks."""
        _, make = self._find(call)
        return await make()(call)

    def clear(self) -> None:
        """Drop all chains, and with them the items that were removed."""
        self._chains.clear()
