"""One subscription to a server, which tells of its lists and of the resources that somebody follows."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Final

from pegboard.call import Json, Notice, Question
from pegboard.client.sayings import plain
from pegboard.errors import LinkLost, Refusal
from pegboard.gateway.servers.catalogue import Catalogue
from pegboard.gateway.servers.lane import Lane

ACKNOWLEDGED_SECONDS: Final = 5.0

_log = logging.getLogger("pegboard.gateway")

_LISTS: Final = frozenset(
    {
        "notifications/tools/list_changed",
        "notifications/prompts/list_changed",
        "notifications/resources/list_changed",
    }
)


class _Ear:
    """The channel of one subscription."""

    def __init__(self, changed: Callable[[], None], updated: Callable[[str], None]) -> None:
        self.acknowledged = asyncio.Event()
        self._changed = changed
        self._updated = updated

    async def emit(self, notice: Notice) -> None:
        if notice.method in _LISTS:
            self._changed()
        elif notice.method == "notifications/resources/updated":
            uri = notice.params.get("uri")
            if isinstance(uri, str):
                self._updated(uri)
        elif notice.method == "notifications/subscriptions/acknowledged":
            self.acknowledged.set()

    async def ask(self, asks: Mapping[str, Question]) -> Mapping[str, Json]:
        """Nobody is asked on a subscription."""
        return {}

    async def close_stream(self, retry_ms: int) -> None:
        """There is none."""


class Listening:
    """Keeps one subscription open; when what is followed changes, the new one begins before the old one ends."""

    def __init__(self, changed: Callable[[], None], updated: Callable[[str], None]) -> None:
        self._changed = changed
        self._updated = updated
        self._uris: frozenset[str] = frozenset()
        self._moved = asyncio.Event()
        self._missed = False

    @property
    def uris(self) -> frozenset[str]:
        return self._uris

    def follow(self, uris: frozenset[str]) -> None:
        """Follow these resources from now on, and no others."""
        if uris != self._uris:
            self._uris = uris
            self._moved.set()

    async def run(self, lane: Lane, catalogue: Catalogue) -> None:
        """Listen until that is not possible any more, and raise why."""
        if self._missed:
            # Nobody knows what was missed meanwhile.
            for uri in self._uris:
                self._updated(uri)
        self._missed = True
        current: asyncio.Task[None] | None = None
        try:
            while True:
                self._moved.clear()
                newer = await self._begin(lane, _filter(catalogue, self._uris))
                if current is not None:
                    current.cancel()
                    await asyncio.wait([current])
                current = newer
                await self._until_moved(current)
        finally:
            if current is not None:
                current.cancel()
                await asyncio.wait([current])

    async def _begin(self, lane: Lane, wanted: Mapping[str, Json]) -> asyncio.Task[None] | None:
        """A subscription that the server has taken note of; None where there is nothing to subscribe to."""
        if not any(wanted.values()):
            return None
        ear = _Ear(self._changed, self._updated)
        task = asyncio.create_task(self._listen(lane, wanted, ear))
        heard = asyncio.create_task(ear.acknowledged.wait())
        try:
            await asyncio.wait([task, heard], timeout=ACKNOWLEDGED_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        except BaseException:
            task.cancel()
            raise
        finally:
            heard.cancel()
        return task

    async def _listen(self, lane: Lane, wanted: Mapping[str, Json], ear: _Ear) -> None:
        try:
            await lane.listen({"notifications": wanted}, ear)
        except Refusal as refusal:
            _log.info("%s: refuses to tell changes: %s", lane.link.name, plain(refusal.message, 200))
            less = {**wanted, "resourceSubscriptions": []}
            if not wanted["resourceSubscriptions"] or not any(less.values()):
                await asyncio.get_running_loop().create_future()
            # One resource that cannot be followed does not cost us the changes of the lists.
            await self._listen(lane, less, ear)
        raise LinkLost(f"{lane.link.name}: ended the subscription")

    async def _until_moved(self, current: asyncio.Task[None] | None) -> None:
        moved = asyncio.create_task(self._moved.wait())
        try:
            await asyncio.wait([moved] if current is None else [moved, current], return_when=asyncio.FIRST_COMPLETED)
        finally:
            moved.cancel()
        if current is not None and current.done():
            current.result()


def _filter(catalogue: Catalogue, uris: frozenset[str]) -> dict[str, Json]:
    return {
        "toolsListChanged": catalogue.tells_changes("tools"),
        "promptsListChanged": catalogue.tells_changes("prompts"),
        "resourcesListChanged": catalogue.tells_changes("resources"),
        "resourceSubscriptions": sorted(uris) if catalogue.tells_updates() else [],
    }
