"""Distributes the change notifications of a legacy server to its listeners."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final

from pegboard.call import Channel, Json, Notification
from pegboard.protocol.revisions import CHANGE_METHODS, RESOURCE_UPDATED

_KINDS: Final = {
    CHANGE_METHODS["tools"]: "toolsListChanged",
    CHANGE_METHODS["prompts"]: "promptsListChanged",
    CHANGE_METHODS["resources"]: "resourcesListChanged",
}


class ChangeListeners:
    """The listeners of one link, each with the filter of its `subscriptions/listen`."""

    def __init__(self) -> None:
        self._all: dict[Channel, Mapping[str, Json]] = {}
        self._uris: Counter[str] = Counter()

    @property
    def uris(self) -> list[str]:
        """The resources somebody listens for."""
        return list(self._uris)

    def add(self, channel: Channel, wanted: Mapping[str, Json]) -> list[str]:
        """Tell a channel from now on; the URIs that nobody listened for yet."""
        self._all[channel] = wanted
        uris = list(dict.fromkeys(wanted.get("resourceSubscriptions") or ()))
        new = [uri for uri in uris if not self._uris[uri]]
        self._uris.update(uris)
        return new

    def remove(self, channel: Channel) -> list[str]:
        """Tell it no more; the URIs that nobody listens for now."""
        wanted = self._all.pop(channel, {})
        uris = list(dict.fromkeys(wanted.get("resourceSubscriptions") or ()))
        self._uris.subtract(uris)
        gone = [uri for uri in uris if not self._uris[uri]]
        self._uris += Counter()
        return gone

    async def notify(self, notice: Notification) -> None:
        """Hand a change to whoever asked for its kind."""
        for channel, wanted in list(self._all.items()):
            if _is_wanted(notice, wanted):
                await channel.emit(notice)

    async def notify_all(self) -> None:
        """Tell everybody that all they asked for may have changed: nobody knows what was missed."""
        for channel, wanted in list(self._all.items()):
            for method, member in _KINDS.items():
                if wanted.get(member):
                    await channel.emit(Notification(method, {}))
            for uri in wanted.get("resourceSubscriptions") or ():
                await channel.emit(Notification(RESOURCE_UPDATED, {"uri": uri}))


def _is_wanted(notice: Notification, wanted: Mapping[str, Json]) -> bool:
    member = _KINDS.get(notice.method)
    if member is not None:
        return bool(wanted.get(member))
    uri = notice.params.get("uri")
    # ResourceUpdatedNotification: "This might be a sub-resource of the one that the client actually subscribed to".
    return any(
        uri == one or str(uri).startswith(one.rstrip("/") + "/") for one in wanted.get("resourceSubscriptions") or ()
    )
