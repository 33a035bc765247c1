"""Leases as a sorted set of a Redis server."""

from __future__ import annotations

from collections.abc import Sequence

from pegboard.stores.redis.command_pipeline import CommandPipeline
from pegboard.stores.redis.key_names import KeyNames
from pegboard.stores.redis.scripts import HOLDERS, RENEW


class RedisLeases:
    """Names, and the time until which each is held."""

    def __init__(self, key_names: KeyNames, pipeline: CommandPipeline) -> None:
        self._key_names = key_names
        self._pipeline = pipeline

    async def renew(self, holder: str, seconds: float) -> None:
        keys = self._key_names
        await self._pipeline.run(RENEW([keys.leases], keys.now(), holder, int(seconds * 1000)), RENEW)

    async def release(self, holder: str) -> None:
        await self._pipeline.run(("ZREM", self._key_names.leases, holder))

    async def holders(self) -> Sequence[str]:
        names = await self._pipeline.run(HOLDERS([self._key_names.leases], self._key_names.now()), HOLDERS)
        return sorted(name.decode() for name in names)
