"""The subscription to the changes of one server."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Final

from pegboard.background_tasks import end_tasks
from pegboard.call import Json, Notification, Question
from pegboard.client.links.legacy_session import FollowedUris
from pegboard.client.links.server_output import shorten_output
from pegboard.errors import ConnectionLost, Refusal
from pegboard.gateway.servers.server_catalog import ServerCatalog
from pegboard.gateway.servers.server_connection import ServerConnection
from pegboard.protocol.json_values import texts_in
from pegboard.protocol.revisions import CHANGE_KINDS, RESOURCE_UPDATED

ACKNOWLEDGED_SECONDS: Final = 5.0

_log = logging.getLogger("pegboard.gateway")


class _SubscriptionChannel:
    """The channel of one subscription."""

    def __init__(self, changed: Callable[[], None], updated: Callable[[str], None], followed: FollowedUris) -> None:
        self.acknowledged = asyncio.Event()
        self._changed = changed
        self._updated = updated
        self._followed = followed

    async def emit(self, notice: Notification) -> None:
        if notice.method == RESOURCE_UPDATED:
            uri = notice.params.get("uri")
            # A server may only report subscribed resources: anything else would fill the log of changes.
            if isinstance(uri, str) and self._followed.covers(uri):
                self._updated(uri)
        elif notice.method in CHANGE_KINDS:
            self._changed()
        elif notice.method == "notifications/subscriptions/acknowledged":
            self.acknowledged.set()

    async def ask(self, questions: Mapping[str, Question]) -> Mapping[str, Json]:
        """Answer nothing: a subscription has no caller to ask."""
        return {}

    async def close_stream(self, retry_ms: int) -> None:
        """Nothing to do: there is no stream."""


class ChangeSubscription:
    """Keeps one subscription open; when the followed URIs change, the new one begins before the old one ends."""

    def __init__(self, changed: Callable[[], None], updated: Callable[[str], None]) -> None:
        self._changed = changed
        self._updated = updated
        self._uris: frozenset[str] = frozenset()
        self._uris_moved = asyncio.Event()
        self._missed = False

    @property
    def uris(self) -> frozenset[str]:
        return self._uris

    def follow(self, uris: frozenset[str]) -> None:
        """Subscribe to these resources from now on, and to no others."""
        if uris != self._uris:
            self._uris = uris
            self._uris_moved.set()

    async def run(self, connection: ServerConnection, catalog: ServerCatalog) -> None:
        """Listen until that fails, and raise the reason."""
        if self._missed:
            # It is unknown what was missed meanwhile.
            for uri in self._uris:
                self._updated(uri)
        self._missed = True
        previous: asyncio.Task[None] | None = None
        current: asyncio.Task[None] | None = None
        try:
            while True:
                self._uris_moved.clear()
                newer = await self._begin(connection, _filter(catalog, self._uris))
                if current is None and newer is not None and not newer.done():
                    # A change after the lists were read and before this began was not reported: read them again.
                    self._changed()
                previous, current = current, newer
                await end_tasks(previous)
                await self._until_uris_change(current)
        finally:
            await end_tasks(previous, current)

    async def _begin(self, connection: ServerConnection, wanted: Mapping[str, Json]) -> asyncio.Task[None] | None:
        """Start a subscription and wait for its acknowledgement; None if there is nothing to subscribe to."""
        if not any(wanted.values()):
            return None
        ear = _SubscriptionChannel(
            self._changed, self._updated, FollowedUris(texts_in(wanted["resourceSubscriptions"]))
        )
        task = asyncio.create_task(self._listen(connection, wanted, ear))
        acknowledged = asyncio.create_task(ear.acknowledged.wait())
        try:
            await asyncio.wait([task, acknowledged], timeout=ACKNOWLEDGED_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        except BaseException:
            await end_tasks(task)
            raise
        finally:
            acknowledged.cancel()
        return task

    async def _listen(
        self, connection: ServerConnection, wanted: Mapping[str, Json], ear: _SubscriptionChannel
    ) -> None:
        try:
            await connection.listen({"notifications": wanted}, ear)
        except Refusal as refusal:
            _log.info("%s: rejected the subscription: %s", connection.link.name, shorten_output(refusal.message, 200))
            less = {**wanted, "resourceSubscriptions": []}
            if not wanted["resourceSubscriptions"] or not any(less.values()):
                await asyncio.get_running_loop().create_future()
            # A resource that cannot be subscribed to must not cost us the changes of the lists.
            await self._listen(connection, less, ear)
        raise ConnectionLost(f"{connection.link.name}: ended the subscription")

    async def _until_uris_change(self, current: asyncio.Task[None] | None) -> None:
        moved = asyncio.create_task(self._uris_moved.wait())
        try:
            await asyncio.wait([moved] if current is None else [moved, current], return_when=asyncio.FIRST_COMPLETED)
        finally:
            moved.cancel()
        if current is not None and current.done():
            current.result()


def _filter(catalog: ServerCatalog, uris: frozenset[str]) -> dict[str, Json]:
    return {
        "toolsListChanged": catalog.announces_changes("tools"),
        "promptsListChanged": catalog.announces_changes("prompts"),
        "resourcesListChanged": catalog.announces_changes("resources"),
        "resourceSubscriptions": sorted(uris) if catalog.announces_updates() else [],
    }
