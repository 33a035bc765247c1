"""Records as Redis hashes."""

from __future__ import annotations

import secrets
from typing import Any

from pegboard.stores.identifiers import digest
from pegboard.stores.redis.command_pipeline import CommandPipeline, Script
from pegboard.stores.redis.key_names import KeyNames
from pegboard.stores.redis.scripts import ADD, DELETE, GET, PUT
from pegboard.stores.store import StoredRecord


class RedisRecords:
    """Values under digests of their keys; the server deletes expired ones."""

    def __init__(self, key_names: KeyNames, pipeline: CommandPipeline) -> None:
        self._key_names = key_names
        self._pipeline = pipeline

    async def get(self, key: str) -> StoredRecord | None:
        found = await self._run(GET, key)
        return None if found is None else StoredRecord(*found)

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
        command = script([self._key_names.key(f"record:{digest(key)}")], self._key_names.now(), *arguments)
        return await self._pipeline.run(command, script, weight)


def _ttl(seconds: float | None) -> str | int:
    return "" if seconds is None else max(1, round(seconds * 1000))
