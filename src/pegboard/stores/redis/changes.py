"""A board's change log in a Redis server."""

from __future__ import annotations

import secrets
from collections.abc import Callable

from pegboard.stores.redis.command_pipeline import CommandPipeline
from pegboard.stores.redis.hints import HintSubscriber
from pegboard.stores.redis.key_names import KeyNames, read_entries
from pegboard.stores.redis.scripts import LAST, PUBLISH, READ_CHANGES
from pegboard.stores.store import ChangePage, Watcher


class RedisChanges:
    """The newest changes of one board, as a stream."""

    def __init__(
        self, board: str, keep: int, key_names: KeyNames, pipeline: CommandPipeline, subscriber: HintSubscriber
    ) -> None:
        self._keep = keep
        self._key_names = key_names
        self._pipeline = pipeline
        self._subscriber = subscriber
        self._channel = key_names.channel("changed", board)
        where = key_names.key(f"{{changes:{board}}}")
        self._keys = [where, f"{where}:last"]

    async def last(self) -> int:
        number: int = await self._pipeline.run(LAST(self._keys, self._key_names.now()), LAST)
        return number

    async def publish(self, change: bytes) -> int:
        key_names = self._key_names
        command = PUBLISH(
            self._keys, key_names.now(), change, self._keep, self._channel, key_names.me, secrets.token_bytes(8)
        )
        number: int = await self._pipeline.run(command, PUBLISH, len(change))
        self._subscriber.notify_local(self._channel)
        return number

    async def read(self, after: int, limit: int) -> ChangePage:
        last, lost, rows = await self._pipeline.run(READ_CHANGES(self._keys, after, limit), READ_CHANGES)
        entries = read_entries(rows)
        return ChangePage(entries, last, bool(entries) and entries[-1].seq < last, bool(lost))

    def watch(self, watcher: Watcher) -> Callable[[], None]:
        return self._subscriber.watch(self._channel, watcher)
