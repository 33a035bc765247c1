"""The changes of a server as an async iterator, across reconnections."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from typing import Final, TypeAlias

from pegboard.background_tasks import end_tasks
from pegboard.backoff import backoff, jitter
from pegboard.call import Change, Channel, Json, Notification, Question
from pegboard.client.links.legacy_session import MAX_URI_LENGTH
from pegboard.client.list_cache import ListCache
from pegboard.errors import ConnectionLost, Refusal, ServerFault, Unreachable
from pegboard.logs.printable import printable
from pegboard.protocol.revisions import CHANGE_KINDS, OWN_NOTIFICATIONS

_log = logging.getLogger("pegboard.client")

MAX_CHANGES: Final = 10_000
"""How many changes wait to be taken; beyond that those of single resources become one of all."""
_RECONNECTS: Final = 10

Listen: TypeAlias = Callable[[Mapping[str, Json], Channel], Awaitable[object]]
"""Sends `subscriptions/listen` with these params, and passes what comes to the channel until it ends."""


class ChangeQueue:
    """The channel of a subscription: changes wait here, each once, until they are read."""

    def __init__(self, lists: ListCache) -> None:
        self._lists = lists
        self._changed = asyncio.Event()
        self._waiting: dict[Change, None] = {}
        self._ended = False
        self.acknowledged = False

    async def ask(self, questions: Mapping[str, Question]) -> Mapping[str, Json]:
        """A subscription cannot ask."""
        return {}

    async def close_stream(self, retry_ms: int) -> None:
        """Nothing to close."""

    async def emit(self, notice: Notification) -> None:
        if notice.method == "notifications/subscriptions/acknowledged":
            self.acknowledged = True
        elif notice.method in CHANGE_KINDS:
            kind, uri = CHANGE_KINDS[notice.method], notice.params.get("uri")
            named = kind == "updated" and isinstance(uri, str) and len(uri) <= MAX_URI_LENGTH
            change = Change(kind, str(uri) if named else "")
            self._lists.drop(notice.method, change.uri)
            self.put(change)

    def put(self, change: Change) -> None:
        if len(self._waiting) >= MAX_CHANGES:
            # Of no one URI, so of each.
            self._waiting = {waiting: None for waiting in self._waiting if waiting.kind != "updated"}
            self._waiting[Change("updated")] = None
        if change.kind != "updated" or Change("updated") not in self._waiting:
            self._waiting[change] = None
        self._changed.set()

    def end(self) -> None:
        """No more changes will come."""
        self._ended = True
        self._changed.set()

    async def next(self) -> Change | None:
        """The oldest waiting change; None once no more will come."""
        while not self._waiting:
            if self._ended:
                return None
            self._changed.clear()
            await self._changed.wait()
        change = next(iter(self._waiting))
        del self._waiting[change]
        return change


async def subscribe(
    listen: Listen, lists: ListCache, *, tools: bool, prompts: bool, resources: bool, uris: Iterable[str]
) -> AsyncIterator[Change]:
    """The changes of these kinds from now on."""
    listed = list(uris)
    wanted = {
        "toolsListChanged": tools,
        "promptsListChanged": prompts,
        "resourcesListChanged": resources,
        "resourceSubscriptions": listed,
    }
    kinds = [Change("tools")] * tools + [Change("prompts")] * prompts + [Change("resources")] * resources
    kinds += [Change("updated", uri) for uri in listed]
    channel = ChangeQueue(lists)
    hearing = asyncio.create_task(_run_listen(listen, {"notifications": wanted}, channel, kinds))
    hearing.add_done_callback(lambda _: channel.end())
    try:
        while (change := await channel.next()) is not None:
            yield change
        hearing.result()
    finally:
        await end_tasks(hearing)


async def follow_notifications(listen: Listen, channel: Channel) -> None:
    """Pass every notification of a server to a channel, across reconnections; ends if the server has none."""
    wanted = {
        "toolsListChanged": True,
        "promptsListChanged": True,
        "resourcesListChanged": True,
        OWN_NOTIFICATIONS: True,
    }
    failures = 0
    while failures < _RECONNECTS:
        try:
            await listen({"notifications": wanted}, channel)
        except (ConnectionLost, Unreachable):
            failures += 1
        except (Refusal, ServerFault) as problem:
            _log.info("the server sends no notifications: %s", printable(str(problem)[:200]))
            return
        else:
            return
        await asyncio.sleep(jitter(backoff(failures, 0.2, 30.0)))


async def _run_listen(
    listen: Listen, params: Mapping[str, Json], channel: ChangeQueue, kinds: Iterable[Change]
) -> None:
    failures = 0
    while True:
        try:
            await listen(params, channel)
        except (ConnectionLost, Unreachable):
            failures = 1 if channel.acknowledged else failures + 1
            if not channel.acknowledged and (failures == 1 or failures > _RECONNECTS):
                raise
        else:
            return
        channel.acknowledged = False
        await asyncio.sleep(jitter(backoff(failures, 0.2, 30.0)))
        for kind in kinds:
            channel.put(kind)
