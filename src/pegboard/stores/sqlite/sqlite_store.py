"""The SQLite store as a whole."""

from __future__ import annotations

import asyncio
import sqlite3
import time
import warnings
from collections.abc import Callable
from pathlib import Path

from pegboard.limits import Limits
from pegboard.stores.identifiers import new_worker
from pegboard.stores.sqlite.database_file import Sync, connect, prepare
from pegboard.stores.sqlite.hint_poller import HintPoller
from pegboard.stores.sqlite.reader_thread import ReaderThread
from pegboard.stores.sqlite.sqlite_feeds import SqliteFeeds
from pegboard.stores.sqlite.sqlite_leases import SqliteLeases
from pegboard.stores.sqlite.sqlite_logs import SqliteLogs
from pegboard.stores.sqlite.sqlite_records import SqliteRecords
from pegboard.stores.sqlite.writer_thread import WriterThread


class SqliteStore:
    """One file, written by one thread of each process that uses it."""

    def __init__(
        self,
        path: str | Path,
        limits: Limits | None = None,
        clock: Callable[[], float] = time.time,
        sync: Sync = "normal",
    ) -> None:
        self._path = Path(path).absolute()
        limits = limits or Limits()
        self._sync = sync
        self._is_open = False
        process = new_worker()
        self._reader = reader = ReaderThread()
        self._hint_poller = hint_poller = HintPoller(process, reader)
        self._writer = writer = WriterThread(process, limits.unwritten_bytes, hint_poller.notify_local)
        self.logs = SqliteLogs(limits, writer, reader, hint_poller, clock)
        self.records = SqliteRecords(writer, reader, clock)
        self.feeds = SqliteFeeds(writer, reader, hint_poller, clock)
        self.leases = SqliteLeases(writer, reader, clock)

    async def start(self) -> None:
        writing, reading, looking = await asyncio.to_thread(self._open)
        self._writer.start(writing)
        self._reader.start(reading)
        self._hint_poller.start(looking)
        self._is_open = True

    def _open(self) -> tuple[sqlite3.Connection, ...]:
        prepare(self._path)
        return connect(self._path, self._sync), connect(self._path), connect(self._path)

    def __del__(self) -> None:
        if getattr(self, "_is_open", False):
            warnings.warn(f"unclosed store sqlite:{self._path}", ResourceWarning, source=self, stacklevel=2)

    async def close(self) -> None:
        self._is_open = False
        await self._hint_poller.close()
        await self._writer.close()
        await self._reader.close()
