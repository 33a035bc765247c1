"""Hints within a process: callbacks by topic, and waiting for one."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Hashable, KeysView
from functools import partial
from typing import Generic, TypeVar

from pegboard.stores.store import Watcher

_log = logging.getLogger("pegboard.stores")

TopicT = TypeVar("TopicT", bound=Hashable)


class Watchers(Generic[TopicT]):
    """The watchers of this process."""

    def __init__(self) -> None:
        self._watchers: dict[TopicT, tuple[Watcher, ...]] = {}

    @property
    def topics(self) -> KeysView[TopicT]:
        """The topics that have a watcher."""
        return self._watchers.keys()

    def notify(self, topic: TopicT) -> None:
        """Call the watchers of a topic."""
        for watcher in self._watchers.get(topic, ()):
            try:
                watcher()
            except Exception:  # noqa: BLE001 — a failing watcher must neither stop the others nor the writer
                _log.exception("a watcher failed")

    def watch(self, topic: TopicT, watcher: Watcher) -> Callable[[], None]:
        """Call the watcher at each notification; returns a function that ends the watch."""
        # Each watch has its own object, also if two have the same watcher.
        own = partial(watcher)
        self._watchers[topic] = (*self._watchers.get(topic, ()), own)

        def end() -> None:
            left = tuple(one for one in self._watchers.get(topic, ()) if one is not own)
            if left:
                self._watchers[topic] = left
            else:
                self._watchers.pop(topic, None)

        return end


async def wait_for_hint(hint: asyncio.Event, seconds: float) -> None:
    """Wait for a hint and clear it; return after so many seconds without one, since a hint can be lost."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await hint.wait()
    hint.clear()
