"""Hints between processes, by publish and subscribe.

Theory of operation. A process notifies its own watchers directly; others are notified through the server, by a message
that only names its sender. Subscriptions follow the watches a moment later. When a subscription becomes active, and
after every reconnection, the watchers are called once, since something may have changed before.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from pegboard.background_tasks import end_tasks
from pegboard.backoff import backoff, jitter
from pegboard.stores.memory import Watchers
from pegboard.stores.redis.redis_connection import RedisConnection, RedisServer
from pegboard.stores.store import Watcher

_log = logging.getLogger("pegboard.stores")

_PING_SECONDS: Final = 10.0


class HintSubscriber:
    """Calls the watchers of each channel."""

    def __init__(self, me: str, server: RedisServer) -> None:
        self._me = me.encode()
        self._server = server
        self._watchers = Watchers[str]()
        self._subscribed: set[str] = set()
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._open = False

    def start(self) -> None:
        self._open = True

    async def close(self) -> None:
        self._open = False
        task, self._task = self._task, None
        await end_tasks(task)

    def notify_local(self, channel: str) -> None:
        """Call the watchers of this process."""
        self._watchers.notify(channel)

    def watch(self, channel: str, watcher: Watcher) -> Callable[[], None]:
        end_here = self._watchers.watch(channel, watcher)
        self._follow()

        def end() -> None:
            end_here()
            if channel not in self._watchers.topics:
                self._follow()

        return end

    def _follow(self) -> None:
        self._changed.set()
        if self._task is None and self._open:
            self._task = asyncio.get_running_loop().create_task(self._listen())

    async def _listen(self) -> None:
        failed = 0
        while True:
            line = self._server.line(patient=True)
            try:
                await line.connect()
                failed = 0
                self._subscribed.clear()
                self._changed.set()
                async with asyncio.TaskGroup() as tasks:
                    tasks.create_task(self._subscribe(line))
                    tasks.create_task(self._hear(line))
            except* (*self._server.failures, self._server.refusal) as problems:
                failed += 1
                if failed == 1:
                    _log.warning("hints of other processes cannot be received: %s", problems.exceptions[0])
            finally:
                await line.disconnect()
            await asyncio.sleep(jitter(backoff(failed, 0.04, 1.0)))

    async def _subscribe(self, line: RedisConnection) -> None:
        """Keep the subscriptions in line with the watches."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            wanted = self._watchers.topics
            more, fewer = wanted - self._subscribed, self._subscribed - wanted
            self._subscribed = set(wanted)
            if more:
                await line.send([("SUBSCRIBE", *more)])
            if fewer:
                await line.send([("UNSUBSCRIBE", *fewer)])

    async def _hear(self, line: RedisConnection) -> None:
        silent = False
        while True:
            message = await line.read(_PING_SECONDS)
            if message is None:
                if silent:
                    raise ConnectionResetError("the server stopped responding")
                silent = True
                await line.send([("PING",)])
                continue
            silent = False
            if not isinstance(message, list):
                # The reply to a ping while there are no subscriptions.
                continue
            kind, channel, *rest = message
            if kind == b"subscribe" or (kind == b"message" and rest[0] != self._me):
                self._watchers.notify(channel.decode())
