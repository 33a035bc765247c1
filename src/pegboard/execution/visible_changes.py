"""Which changes of a board a caller is notified of: those of what it sees.

Theory of operation. A caller that does not see an item must not learn that it changed. Whether a list changed for a caller
is found by comparing a digest of the list it sees with the digest at its last notification. Callers with the same rights
share the digest, which is made of the digests of single definitions, so that a change costs each set of rights little.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeAlias

import msgspec

from pegboard.auth.principal import Principal
from pegboard.bounded_dict import BoundedDict
from pegboard.call import Change, ChangeKind, Json
from pegboard.catalog.resource import ResourceCatalog
from pegboard.errors import ResourceNotFound
from pegboard.rules.access_control import AccessControl
from pegboard.rules.rule import Item
from pegboard.rules.verdicts import VIEWS_KEPT, View

Shown: TypeAlias = Callable[[View, Principal], Iterable[Mapping[str, Json]]]
"""The definitions that a caller sees."""

_LISTS: Final[tuple[ChangeKind, ...]] = ("tools", "prompts", "resources")

_encode = msgspec.json.Encoder(order="sorted", enc_hook=str).encode


class ChangeVisibility:
    """Decides for each subscriber which changes it is notified of.

    `shared` says whether other processes publish changes, too: their lists may have changed before ours.
    """

    def __init__(
        self,
        access: AccessControl,
        shown: Mapping[ChangeKind, Shown],
        resources: ResourceCatalog,
        shared: Callable[[], bool],
    ) -> None:
        self._access = access
        self.shown: dict[ChangeKind, Shown] = dict(shown)
        self._resources = resources
        self._shared = shared
        # The definition is kept, too, so that its id is not used again.
        self._digests: dict[int, tuple[Mapping[str, Json], int]] = {}
        self._lists: dict[ChangeKind, BoundedDict[Any, int]] = {kind: BoundedDict(VIEWS_KEPT) for kind in _LISTS}

    def changed(self, kind: ChangeKind) -> None:
        """A list has changed."""
        if kind in self._lists:
            self._lists[kind].clear()
            self._digests.clear()

    def filter_for(self, principal: Principal) -> VisibleChanges | None:
        """The changes that a new subscriber is notified of; None for all."""
        return VisibleChanges(self, principal) if self._access.restricted else None

    def digest(self, kind: ChangeKind, principal: Principal) -> int | None:
        """A number that stays the same as long as the list that a caller sees; None if that cannot be known."""
        view = self._access.view(principal)
        if view is None or self._shared():
            return None
        digests = self._lists[kind]
        known = digests.get(view)
        if known is None:
            known = digests[view] = hash(tuple(map(self._digest, self.shown[kind](view, principal))))
        return known

    def _digest(self, definition: Mapping[str, Json]) -> int:
        known = self._digests.get(id(definition))
        if known is None:
            known = self._digests[id(definition)] = definition, hash(_encode(definition))
        return known[1]

    def may_read(self, uri: str, principal: Principal) -> bool:
        """Whether a caller may read a resource, and therefore learn that it changed."""
        view = self._access.view(principal)
        if view is None:
            return True
        try:
            verdict = self._resources.find(uri)[0].verdict(uri, view)
        except ResourceNotFound:
            verdict = view.verdict(Item(kind="resource", name=uri))
        return verdict.effect == "allow"


class VisibleChanges:
    """The changes that one subscriber is notified of."""

    __slots__ = ("_owner", "_principal", "_seen")

    def __init__(self, owner: ChangeVisibility, principal: Principal) -> None:
        self._owner = owner
        self._principal = principal
        self._seen = {kind: owner.digest(kind, principal) for kind in _LISTS}

    def admits(self, change: Change) -> bool:
        """Whether the subscriber is notified of a change."""
        if change.kind == "updated":
            return self._owner.may_read(change.uri, self._principal)
        if change.kind == "notification":
            # The author sends it to all clients, and decides what it says.
            return True
        seen, now = self._seen[change.kind], self._owner.digest(change.kind, self._principal)
        self._seen[change.kind] = now
        return now is None or now != seen

    def resume(self) -> None:
        """The subscriber continues from an earlier position: it may not know the lists as they are now."""
        self._seen = dict.fromkeys(self._seen)
