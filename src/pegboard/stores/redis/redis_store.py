"""The Redis store as a whole."""

from __future__ import annotations

from collections.abc import Callable

from pegboard.limits import Limits
from pegboard.stores.identifiers import digest, new_worker
from pegboard.stores.redis.changes import RedisChanges
from pegboard.stores.redis.command_pipeline import CommandPipeline
from pegboard.stores.redis.hints import HintSubscriber
from pegboard.stores.redis.key_names import KeyNames
from pegboard.stores.redis.logs import RedisLogs
from pegboard.stores.redis.records import RedisRecords
from pegboard.stores.redis.redis_connection import RedisServer
from pegboard.stores.redis.workers import RedisWorkers
from pegboard.stores.store import Watcher


class RedisHints:
    """Hints of any topic, to this process at once and to others through the server."""

    def __init__(self, key_names: KeyNames, pipeline: CommandPipeline, subscriber: HintSubscriber) -> None:
        self._key_names = key_names
        self._pipeline = pipeline
        self._subscriber = subscriber

    def hint(self, topic: str) -> None:
        channel = self._key_names.channel("hint", digest(topic))
        self._subscriber.notify_local(channel)
        self._pipeline.post(("PUBLISH", channel, self._key_names.me))

    def watch(self, topic: str, watcher: Watcher) -> Callable[[], None]:
        return self._subscriber.watch(self._key_names.channel("hint", digest(topic)), watcher)


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
        server = RedisServer(url)
        self._key_names = key_names = KeyNames(new_worker(), prefix, clock)
        self._pipeline = pipeline = CommandPipeline(server, limits.unwritten_bytes)
        self._subscriber = subscriber = HintSubscriber(key_names.me, server)
        self.logs = RedisLogs(limits, key_names, pipeline, subscriber)
        self.records = RedisRecords(key_names, pipeline)
        self.hints = RedisHints(key_names, pipeline, subscriber)
        self.workers = RedisWorkers(limits, key_names, server, pipeline)

    def changes(self, board: str) -> RedisChanges:
        return RedisChanges(board, self._limits.changes, self._key_names, self._pipeline, self._subscriber)

    async def start(self) -> None:
        await self._pipeline.start()
        self._subscriber.start()

    async def close(self) -> None:
        await self.workers.close()
        await self._subscriber.close()
        await self._pipeline.close()
