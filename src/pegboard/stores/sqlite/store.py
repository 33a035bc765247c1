"""All that a SQLite file keeps."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path

from pegboard.limits import Limits
from pegboard.stores.naming import new_worker
from pegboard.stores.sqlite.changes import SqliteChanges
from pegboard.stores.sqlite.file import Sync, connect, prepare
from pegboard.stores.sqlite.hints import Lookout, topic_number
from pegboard.stores.sqlite.logs import SqliteLogs
from pegboard.stores.sqlite.reader import Reader
from pegboard.stores.sqlite.records import SqliteRecords
from pegboard.stores.sqlite.workers import SqliteWorkers
from pegboard.stores.sqlite.writer import Writer
from pegboard.stores.store import Watcher


class SqliteHints:
    """Hints of any topic, to this process at once and to others within their next look."""

    def __init__(self, writer: Writer, lookout: Lookout) -> None:
        self._writer = writer
        self._lookout = lookout

    def hint(self, topic: str) -> None:
        number = topic_number("hint", topic)
        self._lookout.tell(number)
        self._writer.post(lambda transaction: transaction.tell(number, here=False))

    def watch(self, topic: str, watcher: Watcher) -> Callable[[], None]:
        return self._lookout.watch(topic_number("hint", topic), watcher)


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
        me = new_worker()
        self._reader = reader = Reader()
        self._lookout = lookout = Lookout(me, reader)
        self._writer = writer = Writer(me, limits.unwritten_bytes, lookout.tell)
        self.logs = SqliteLogs(limits, writer, reader, lookout, clock)
        self.records = SqliteRecords(writer, reader, clock)
        self.hints = SqliteHints(writer, lookout)
        self.workers = SqliteWorkers(me, limits, writer, reader, lookout, clock)

    def changes(self, board: str) -> SqliteChanges:
        return SqliteChanges(board, self._limits.changes, self._writer, self._reader, self._lookout, self._clock)

    async def start(self) -> None:
        writing, reading, looking = await asyncio.to_thread(self._open)
        self._writer.start(writing)
        self._reader.start(reading)
        self._lookout.start(looking)

    def _open(self) -> tuple[sqlite3.Connection, ...]:
        prepare(self._path)
        return connect(self._path, self._sync), connect(self._path), connect(self._path)

    async def close(self) -> None:
        await self.workers.close()
        await self._lookout.close()
        await self._writer.close()
        await self._reader.close()
