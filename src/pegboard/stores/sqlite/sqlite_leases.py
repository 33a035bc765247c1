"""Leases as rows of a SQLite file."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence

from pegboard.stores.sqlite.reader_thread import ReaderThread
from pegboard.stores.sqlite.writer_thread import Transaction, WriterThread


class SqliteLeases:
    """Names, and the time until which each is held."""

    def __init__(self, writer: WriterThread, reader: ReaderThread, clock: Callable[[], float]) -> None:
        self._writer = writer
        self._reader = reader
        self._clock = clock

    async def renew(self, holder: str, seconds: float) -> None:
        def write(transaction: Transaction) -> None:
            now = self._clock()
            transaction.execute("DELETE FROM leases WHERE until <= ?", (now,))
            transaction.execute("INSERT OR REPLACE INTO leases VALUES (?, ?)", (holder, now + seconds))

        await self._writer.run(write)

    async def release(self, holder: str) -> None:
        await self._writer.run(
            lambda transaction: transaction.execute("DELETE FROM leases WHERE name = ?", (holder,)).close()
        )

    async def holders(self) -> Sequence[str]:
        now = self._clock()

        def read(connection: sqlite3.Connection) -> list[str]:
            rows = connection.execute("SELECT name FROM leases WHERE until > ? ORDER BY name", (now,))
            return [name for (name,) in rows]

        return await self._reader.run(read)
