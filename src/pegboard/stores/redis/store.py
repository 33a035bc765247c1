"""All that a Redis or Valkey server keeps for us."""

from __future__ import annotations

from collections.abc import Callable

from pegboard.limits import Limits
from pegboard.stores.naming import digest, new_worker
from pegboard.stores.redis.changes import RedisChanges
from pegboard.stores.redis.hints import Ear
from pegboard.stores.redis.line import Server
from pegboard.stores.redis.logs import RedisLogs
from pegboard.stores.redis.records import RedisRecords
from pegboard.stores.redis.trips import Trips
from pegboard.stores.redis.words import Words
from pegboard.stores.redis.workers import RedisWorkers
from pegboard.stores.store import Watcher


class RedisHints:
    """Hints of any topic, to this process at once and to others through the server."""

    def __init__(self, words: Words, trips: Trips, ear: Ear) -> None:
        self._words = words
        self._trips = trips
        self._ear = ear

    def hint(self, topic: str) -> None:
        channel = self._words.channel("hint", digest(topic))
        self._ear.tell(channel)
        self._trips.post(("PUBLISH", channel, self._words.me))

    def watch(self, topic: str, watcher: Watcher) -> Callable[[], None]:
        return self._ear.watch(self._words.channel("hint", digest(topic)), watcher)


class RedisStore:
    """Three connections: for commands, for hints once anybody watches, for the inbox once anybody receives.

    How much may be kept in all is for the server to say (`maxmemory`, with the policy `noeviction`).
    """

    def __init__(
        self,
        url: str,
        limits: Limits | None = None,
        clock: Callable[[], float] | None = None,
        *,
        prefix: str = "pegboard",
    ) -> None:
        self._limits = limits = limits or Limits()
        server = Server(url)
        self._words = words = Words(new_worker(), prefix, clock)
        self._trips = trips = Trips(server, limits.unwritten_bytes)
        self._ear = ear = Ear(words.me, server)
        self.logs = RedisLogs(limits, words, trips, ear)
        self.records = RedisRecords(words, trips)
        self.hints = RedisHints(words, trips, ear)
        self.workers = RedisWorkers(limits, words, server, trips)

    def changes(self, board: str) -> RedisChanges:
        return RedisChanges(board, self._limits.changes, self._words, self._trips, self._ear)

    async def start(self) -> None:
        await self._trips.start()
        self._ear.start()

    async def close(self) -> None:
        await self.workers.close()
        await self._ear.close()
        await self._trips.close()
