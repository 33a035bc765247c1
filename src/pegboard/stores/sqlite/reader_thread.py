"""The thread that reads from the file."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from pegboard.errors import StoreDown

_log = logging.getLogger("pegboard.stores")

T = TypeVar("T")


class ReaderThread:
    """Runs each read in a transaction, so that it sees one state of the file."""

    def __init__(self) -> None:
        self._connection: sqlite3.Connection | None = None
        self._thread: ThreadPoolExecutor | None = None

    def start(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        weakref.finalize(self, connection.close)
        self._thread = ThreadPoolExecutor(1, "pegboard-store-reader")

    async def close(self) -> None:
        thread, self._thread = self._thread, None
        if thread is not None and self._connection is not None:
            await asyncio.get_running_loop().run_in_executor(thread, self._connection.close)
            thread.shutdown()

    async def run(self, reading: Callable[[sqlite3.Connection], T]) -> T:
        if self._thread is None:
            raise StoreDown("The store is not open")
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._read, reading)

    async def rows(self, query: str, *values: str | float) -> list[Any]:
        """The rows of one query."""
        return await self.run(lambda connection: connection.execute(query, values).fetchall())

    def _read(self, reading: Callable[[sqlite3.Connection], T]) -> T:
        connection = self._connection
        assert connection is not None  # noqa: S101 — start() sets it before it creates the thread
        try:
            connection.execute("BEGIN")
            try:
                return reading(connection)
            finally:
                connection.execute("COMMIT")
        except sqlite3.Error as problem:
            _log.error("the store could not be read: %s", problem)
            raise StoreDown("The store cannot be read; try again later", retry_after=5) from None
