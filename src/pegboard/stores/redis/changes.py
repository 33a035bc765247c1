"""The log of a board's changes in a Redis or Valkey server."""

from __future__ import annotations

import secrets
from collections.abc import Callable

from pegboard.stores.redis.hints import Ear
from pegboard.stores.redis.scripts import LAST, PUBLISH, READ_CHANGES
from pegboard.stores.redis.trips import Trips
from pegboard.stores.redis.words import Words, read_entries
from pegboard.stores.store import ChangePage, Watcher


class RedisChanges:
    """The newest changes of one board, as a stream."""

    def __init__(self, board: str, keep: int, words: Words, trips: Trips, ear: Ear) -> None:
        self._keep = keep
        self._words = words
        self._trips = trips
        self._ear = ear
        self._channel = words.channel("changed", board)
        where = words.key(f"{{changes:{board}}}")
        self._keys = [where, f"{where}:last"]

    async def last(self) -> int:
        number: int = await self._trips.run(LAST(self._keys, self._words.now()), LAST)
        return number

    async def publish(self, change: bytes) -> int:
        words = self._words
        command = PUBLISH(self._keys, words.now(), change, self._keep, self._channel, words.me, secrets.token_bytes(8))
        number: int = await self._trips.run(command, PUBLISH, len(change))
        self._ear.tell(self._channel)
        return number

    async def read(self, after: int, limit: int) -> ChangePage:
        last, lost, rows = await self._trips.run(READ_CHANGES(self._keys, after, limit), READ_CHANGES)
        entries = read_entries(rows)
        return ChangePage(entries, last, bool(entries) and entries[-1].seq < last, bool(lost))

    def watch(self, watcher: Watcher) -> Callable[[], None]:
        return self._ear.watch(self._channel, watcher)
