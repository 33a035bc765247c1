"""Records as hashes of a Redis or Valkey server."""

from __future__ import annotations

import secrets
from typing import Any

from pegboard.stores.naming import digest
from pegboard.stores.redis.scripts import ADD, DELETE, GET, PUT
from pegboard.stores.redis.trips import Script, Trips
from pegboard.stores.redis.words import Words
from pegboard.stores.store import Record


class RedisRecords:
    """Values under digests of their keys; the server forgets those whose time is over."""

    def __init__(self, words: Words, trips: Trips) -> None:
        self._words = words
        self._trips = trips

    async def get(self, key: str) -> Record | None:
        found = await self._run(GET, key)
        return None if found is None else Record(*found)

    async def put(
        self, key: str, value: bytes, *, ttl: float | None = None, if_version: int | None = None
    ) -> int | None:
        asked = "" if if_version is None else if_version
        version: int = await self._run(PUT, key, value, _ttl(ttl), asked, secrets.token_bytes(8), weight=len(value))
        return version or None

    async def add(self, key: str, amount: int, *, ttl: float | None = None) -> int:
        return int(await self._run(ADD, key, amount, _ttl(ttl), secrets.token_bytes(8)))

    async def delete(self, key: str) -> bool:
        return bool(await self._run(DELETE, key))

    async def _run(self, script: Script, key: str, *arguments: str | bytes | int, weight: int = 0) -> Any:
        command = script([self._words.key(f"record:{digest(key)}")], self._words.now(), *arguments)
        return await self._trips.run(command, script, weight)


def _ttl(seconds: float | None) -> str | int:
    return "" if seconds is None else max(1, round(seconds * 1000))
