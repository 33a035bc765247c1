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
from pegboard.stores.sqlite.changes import SqliteChanges
from pegboard.stores.sqlite.database_file import Sync, connect, prepare
from pegboard.stores.sqlite.hints import HintWatcher, topic_number
from pegboard.stores.sqlite.logs import SqliteLogs
from pegboard.stores.sqlite.reader_thread import ReaderThread
from pegboard.stores.sqlite.records import SqliteRecords
from pegboard.stores.sqlite.workers import SqliteWorkers
from pegboard.stores.sqlite.writer_thread import WriterThread
from pegboard.stores.store import Watcher


class SqliteHints:
    """Hints of any topic, to this process at once and to others within their next look."""

    def __init__(self, writer: WriterThread, hint_watcher: HintWatcher) -> None:
        self._writer = writer
        self._hint_watcher = hint_watcher

    def hint(self, topic: str) -> None:
        number = topic_number("hint", topic)
        self._hint_watcher.notify_local(number)
        self._writer.post(lambda transaction: transaction.notify(number, here=False))

    def watch(self, topic: str, watcher: Watcher) -> Callable[[], None]:
        return self._hint_watcher.watch(topic_number("hint", topic), watcher)


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
        self._limits = limits = limits or Limits()
        self._clock = clock
        self._sync = sync
        self._is_open = False
        me = new_worker()
        self._reader = reader = ReaderThread()
        self._hint_watcher = hint_watcher = HintWatcher(me, reader)
        self._writer = writer = WriterThread(me, limits.unwritten_bytes, hint_watcher.notify_local)
        self.logs = SqliteLogs(limits, writer, reader, hint_watcher, clock)
        self.records = SqliteRecords(writer, reader, clock)
        self.hints = SqliteHints(writer, hint_watcher)
        self.workers = SqliteWorkers(me, limits, writer, reader, hint_watcher, clock)

    def changes(self, board: str) -> SqliteChanges:
        return SqliteChanges(board, self._limits.changes, self._writer, self._reader, self._hint_watcher, self._clock)

    async def start(self) -> None:
        writing, reading, looking = await asyncio.to_thread(self._open)
        self._writer.start(writing)
        self._reader.start(reading)
        self._hint_watcher.start(looking)
        self._is_open = True

    def _open(self) -> tuple[sqlite3.Connection, ...]:
        prepare(self._path)
        return connect(self._path, self._sync), connect(self._path), connect(self._path)

    def __del__(self) -> None:
        if getattr(self, "_is_open", False):
            warnings.warn(f"unclosed store sqlite:{self._path}", ResourceWarning, source=self, stacklevel=2)

    async def close(self) -> None:
        self._is_open = False
        await self.workers.close()
        await self._hint_watcher.close()
        await self._writer.close()
        await self._reader.close()
