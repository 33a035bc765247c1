"""Records in a SQLite file."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Final

from pegboard.stores.identifiers import digest
from pegboard.stores.sqlite.reader_thread import ReaderThread
from pegboard.stores.sqlite.writer_thread import Transaction, WriterThread
from pegboard.stores.store import StoredRecord

_OVER_AT_ONCE: Final = 100
_FIND: Final = "SELECT value, version FROM records WHERE key = ? AND (until IS NULL OR until > ?)"


class SqliteRecords:
    """Values under digests of their keys; expired ones are deleted when others are written."""

    def __init__(self, writer: WriterThread, reader: ReaderThread, clock: Callable[[], float]) -> None:
        self._writer = writer
        self._reader = reader
        self._clock = clock

    async def get(self, key: str) -> StoredRecord | None:
        where = digest(key), self._clock()

        def read(connection: sqlite3.Connection) -> StoredRecord | None:
            found = connection.execute(_FIND, where).fetchone()
            return None if found is None else StoredRecord(*found)

        return await self._reader.run(read)

    async def put(
        self, key: str, value: bytes, *, ttl: float | None = None, if_version: int | None = None
    ) -> int | None:
        name = digest(key)

        def write(transaction: Transaction) -> int | None:
            now = self._clock()
            found = transaction.execute(_FIND, (name, now)).fetchone()
            version: int = 0 if found is None else found[1]
            if if_version is not None and if_version != version:
                return None
            _write(transaction, name, value, version + 1, None if ttl is None else now + ttl)
            _forget(transaction, now)
            return version + 1

        return await self._writer.run(write, len(value))

    async def add(self, key: str, amount: int, *, ttl: float | None = None) -> int:
        name = digest(key)

        def write(transaction: Transaction) -> int:
            now = self._clock()
            found = transaction.execute(_FIND, (name, now)).fetchone()
            if found is None:
                _write(transaction, name, b"%d" % amount, 1, None if ttl is None else now + ttl)
                _forget(transaction, now)
                return amount
            total = int(found[0]) + amount
            transaction.execute(
                "UPDATE records SET value = ?, version = version + 1 WHERE key = ?", (b"%d" % total, name)
            )
            return total

        return await self._writer.run(write)

    async def delete(self, key: str) -> bool:
        name = digest(key)

        def write(transaction: Transaction) -> bool:
            there = transaction.execute(_FIND, (name, self._clock())).fetchone() is not None
            transaction.execute("DELETE FROM records WHERE key = ?", (name,))
            return there

        return await self._writer.run(write)


def _write(transaction: Transaction, name: str, value: bytes, version: int, until: float | None) -> None:
    transaction.execute("INSERT OR REPLACE INTO records VALUES (?, ?, ?, ?)", (name, value, version, until))


def _forget(transaction: Transaction, now: float) -> None:
    """Delete some expired records: more than a write adds, but few enough to be quick."""
    transaction.execute(
        "DELETE FROM records WHERE key IN (SELECT key FROM records WHERE until <= ? LIMIT ?)", (now, _OVER_AT_ONCE)
    )
