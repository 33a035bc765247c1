"""The Redis store as a whole."""

from __future__ import annotations

from collections.abc import Callable

from pegboard.limits import Limits
from pegboard.stores.identifiers import new_worker
from pegboard.stores.redis.command_pipeline import CommandPipeline
from pegboard.stores.redis.hint_subscriber import HintSubscriber
from pegboard.stores.redis.key_names import KeyNames
from pegboard.stores.redis.redis_connection import RedisServer
from pegboard.stores.redis.redis_feeds import RedisFeeds
from pegboard.stores.redis.redis_leases import RedisLeases
from pegboard.stores.redis.redis_logs import RedisLogs
from pegboard.stores.redis.redis_records import RedisRecords


class RedisStore:
    """Two connections: one for commands, and one for hints from the first watch on.

    The server limits how much is kept in all (`maxmemory`, with the policy `noeviction`).
    """

    def __init__(
        self,
        url: str,
        limits: Limits | None = None,
        clock: Callable[[], float] | None = None,
        *,
        prefix: str = "pegboard",
    ) -> None:
        limits = limits or Limits()
        server = RedisServer(url)
        self._key_names = key_names = KeyNames(new_worker(), prefix, clock)
        self._pipeline = pipeline = CommandPipeline(server, limits.unwritten_bytes)
        self._subscriber = subscriber = HintSubscriber(key_names.me, server)
        self.logs = RedisLogs(limits, key_names, pipeline, subscriber)
        self.records = RedisRecords(key_names, pipeline)
        self.feeds = RedisFeeds(key_names, pipeline, subscriber)
        self.leases = RedisLeases(key_names, pipeline)

    async def start(self) -> None:
        await self._pipeline.start()
        self._subscriber.start()

    async def close(self) -> None:
        await self._subscriber.close()
        await self._pipeline.close()
