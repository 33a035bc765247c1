"""Distributes the change notifications of a legacy server to its listeners."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

from pegboard.call import Channel, Json, Notification
from pegboard.protocol.json_values import texts_in
from pegboard.protocol.revisions import CHANGE_METHODS, RESOURCE_UPDATED

_KINDS: Final = {
    CHANGE_METHODS["tools"]: "toolsListChanged",
    CHANGE_METHODS["prompts"]: "promptsListChanged",
    CHANGE_METHODS["resources"]: "resourcesListChanged",
}


MAX_URI_LENGTH: Final = 8192
"""The maximum length of a URI that is accepted from a server."""


class FollowedUris:
    """The URIs that a listener subscribed to; finds out in one lookup whether a change belongs to one of them."""

    def __init__(self, uris: Iterable[str] = ()) -> None:
        self._uris = frozenset(uris)
        self._stems = frozenset(uri.rstrip("/") for uri in self._uris)
        self._lengths = sorted({len(stem) for stem in self._stems})

    def covers(self, uri: Json) -> bool:
        """Whether the URI is one of them, or below one; False for anything that is not a URI.

        ResourceUpdatedNotification: "This might be a sub-resource of the one that the client actually subscribed to".
        """
        if not isinstance(uri, str) or len(uri) > MAX_URI_LENGTH:
            return False
        return uri in self._uris or any(
            uri[length : length + 1] == "/" and uri[:length] in self._stems for length in self._lengths
        )


class ChangeListeners:
    """The listeners of one link, each with the filter of its `subscriptions/listen`."""

    def __init__(self) -> None:
        self._all: dict[Channel, Mapping[str, Json]] = {}
        self._followed: dict[Channel, FollowedUris] = {}
        self._uris: Counter[str] = Counter()

    @property
    def uris(self) -> list[str]:
        """The URIs that have a listener."""
        return list(self._uris)

    def add(self, channel: Channel, wanted: Mapping[str, Json]) -> list[str]:
        """Notify a channel from now on; returns the URIs that did not have a listener before."""
        self._all[channel] = wanted
        uris = _uris_in(wanted)
        self._followed[channel] = FollowedUris(uris)
        new = [uri for uri in uris if not self._uris[uri]]
        self._uris.update(uris)
        return new

    def remove(self, channel: Channel) -> list[str]:
        """Stop notifying a channel; returns the URIs that have no listener now."""
        wanted = self._all.pop(channel, {})
        self._followed.pop(channel, None)
        uris = _uris_in(wanted)
        self._uris.subtract(uris)
        gone = [uri for uri in uris if not self._uris[uri]]
        self._uris += Counter()
        return gone

    async def notify(self, notice: Notification) -> None:
        """Forward a change to all channels that listen for its kind or its resource."""
        member, uri = _KINDS.get(notice.method), notice.params.get("uri")
        for channel, wanted in list(self._all.items()):
            if wanted.get(member) if member is not None else self._followed[channel].covers(uri):
                await channel.emit(notice)

    async def notify_all(self) -> None:
        """Notify all channels of every possible change, since it is unknown what they missed."""
        for channel, wanted in list(self._all.items()):
            for method, member in _KINDS.items():
                if wanted.get(member):
                    await channel.emit(Notification(method, {}))
            for uri in _uris_in(wanted):
                await channel.emit(Notification(RESOURCE_UPDATED, {"uri": uri}))


def _uris_in(wanted: Mapping[str, Json]) -> list[str]:
    """The resources of a filter, each once."""
    return list(dict.fromkeys(texts_in(wanted.get("resourceSubscriptions"))))
