"""Append-only files whose records are on disk before `put` returns.

Theory of operation. One thread writes. `put` adds a record to the pending ones and waits; the thread takes all pending
records, writes and syncs them together, and wakes their callers: the slower the disk, the larger the batches, and the
loop is never blocked. The number of pending records is limited; beyond it, `put` waits for room.

A crash can only tear records that were being written, for which no caller has been answered. The torn end of a file of
lines is removed, with a note in the log, when it is next opened; SQLite rolls back such a transaction itself.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import msgspec

from pegboard.call import Json
from pegboard.errors import DeclarationError
from pegboard.security.ownership import create_own_database, create_own_file

if sys.platform != "win32":
    import fcntl

Row: TypeAlias = Mapping[str, Json]
Waiter: TypeAlias = "asyncio.Future[None]"

_log = logging.getLogger("pegboard.audit")
_encode = msgspec.json.Encoder().encode
_sync = getattr(os, "fdatasync", os.fsync)
_CHUNK_BYTES = 65536


class JournalSink(Protocol):
    """Where the thread of a journal writes."""

    def open(self) -> None:
        """Make ready to append, in the thread, before the first write; SetupError if another user controls the file."""

    def append(self, rows: Sequence[Row]) -> None:
        """Write the rows and return when they are on disk; raises OSError or sqlite3.Error."""

    def close(self) -> None: ...


class LinesFile:
    """A file with one JSON object per line; several processes may append to it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = -1

    def open(self) -> None:
        is_new = not self._path.exists()
        create_own_file(self._path)
        self._file = os.open(self._path, os.O_RDWR | os.O_APPEND)
        if is_new and sys.platform != "win32":
            # The directory entry has to be on disk, too.
            folder = os.open(self._path.parent, os.O_RDONLY)
            os.fsync(folder)
            os.close(folder)
        self._lock(True)
        try:
            self._drop_partial_record()
        finally:
            self._lock(False)

    def append(self, rows: Sequence[Row]) -> None:
        lines = b"".join([_encode(row) + b"\n" for row in rows])
        self._lock(True)
        try:
            # A partial line of another process that was killed must not corrupt our first one.
            if self._last_byte() != b"\n":
                lines = b"\n" + lines
            rest = memoryview(lines)
            while rest:
                rest = rest[os.write(self._file, rest) :]
            _sync(self._file)
        finally:
            self._lock(False)

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _last_byte(self) -> bytes:
        size = os.lseek(self._file, 0, os.SEEK_END)
        if size == 0:
            return b"\n"
        os.lseek(self._file, size - 1, os.SEEK_SET)
        return os.read(self._file, 1)

    def _drop_partial_record(self) -> None:
        if self._last_byte() == b"\n":
            return
        size = end = os.lseek(self._file, 0, os.SEEK_END)
        kept = 0
        while end and not kept:
            begin = max(0, end - _CHUNK_BYTES)
            os.lseek(self._file, begin, os.SEEK_SET)
            found = os.read(self._file, end - begin).rfind(b"\n")
            kept = begin + found + 1 if found >= 0 else 0
            end = begin
        os.ftruncate(self._file, kept)
        _sync(self._file)
        _log.warning(
            "%s: dropped the last record, which was incomplete after a crash (%d bytes)", self._path, size - kept
        )

    def _lock(self, taken: bool) -> None:
        if sys.platform != "win32":
            fcntl.flock(self._file, fcntl.LOCK_EX if taken else fcntl.LOCK_UN)


class SqliteFile:
    """A table of an SQLite database that rejects changes; several processes may append to it."""

    def __init__(self, path: Path, table: str, columns: Mapping[str, str]) -> None:
        self._path = path
        self._table = table
        self._columns = columns
        self._database: sqlite3.Connection | None = None
        marks = ", ".join(f":{name}" for name in columns)
        # The names come from our own code only.
        self._insert = f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks})"  # noqa: S608

    def open(self) -> None:
        create_own_database(self._path)
        database = sqlite3.connect(self._path, timeout=10, isolation_level=None, check_same_thread=False)
        try:
            self._prepare(database)
        except BaseException:
            database.close()
            raise
        self._database = database

    def _prepare(self, database: sqlite3.Connection) -> None:
        database.execute("PRAGMA journal_mode=WAL")
        # In WAL mode only FULL syncs at each commit.
        database.execute("PRAGMA synchronous=FULL")
        declared = ", ".join(f"{name} {kind}" for name, kind in self._columns.items())
        database.execute(f"CREATE TABLE IF NOT EXISTS {self._table} (number INTEGER PRIMARY KEY, {declared})")
        self._add_missing_columns(database)
        for verb in ("UPDATE", "DELETE"):
            database.execute(
                f"CREATE TRIGGER IF NOT EXISTS {self._table}_no_{verb.lower()} BEFORE {verb} ON {self._table} "
                f"BEGIN SELECT RAISE(ABORT, '{self._table} is append-only'); END"
            )

    def _add_missing_columns(self, database: sqlite3.Connection) -> None:
        """Add the columns that the table of an earlier version lacks."""
        database.execute("BEGIN IMMEDIATE")
        present = {row[1] for row in database.execute(f"PRAGMA table_info({self._table})")}
        for name, kind in self._columns.items():
            if name not in present:
                database.execute(f"ALTER TABLE {self._table} ADD COLUMN {name} {kind}")
        database.execute("COMMIT")

    def append(self, rows: Sequence[Row]) -> None:
        database = self._database
        if database is None:
            raise OSError(f"{self._path} is closed")
        database.execute("BEGIN IMMEDIATE")
        try:
            database.executemany(self._insert, [dict.fromkeys(self._columns) | dict(row) for row in rows])
            database.execute("COMMIT")
        except BaseException:
            if database.in_transaction:
                database.execute("ROLLBACK")
            raise

    def close(self) -> None:
        if self._database is not None:
            self._database.close()
            self._database = None


class Journal:
    """Records that wait to be written, at most `pending` of them."""

    def __init__(self, sink: JournalSink, pending: int = 4096) -> None:
        if pending < 1:
            raise DeclarationError(f"pending={pending}: must be at least 1")
        self._sink = sink
        self._limit = pending
        self._changed = threading.Condition()
        self._rows: list[Row] = []
        self._waiters: list[Waiter] = []
        self._wanting_room: list[Waiter] = []
        self._thread: threading.Thread | None = None
        self._closing = False
        self._resting = False

    async def put(self, row: Row) -> None:
        """Append a record; returns when it is on the disk, raises OSError, sqlite3.Error or SetupError if it cannot be."""
        loop = asyncio.get_running_loop()
        while True:
            waiter = loop.create_future()
            with self._changed:
                room = len(self._rows) < self._limit
                if room:
                    self._add(row, waiter)
                else:
                    self._wanting_room.append(waiter)
            await waiter
            if room:
                return

    def close(self) -> None:
        """Write pending records and end the thread for good."""
        with self._changed:
            self._closing = True
        self.rest()

    def rest(self) -> None:
        """Write pending records and end the thread; the next record starts a new one."""
        thread = self.release()
        if thread is not None:
            thread.join()

    def release(self) -> threading.Thread | None:
        """The same without waiting for the thread, which is returned."""
        with self._changed:
            self._resting = self._thread is not None
            self._changed.notify()
            return self._thread

    def _add(self, row: Row, waiter: Waiter) -> None:
        if self._closing:
            raise OSError("the journal is closed")
        self._rows.append(row)
        self._waiters.append(waiter)
        if self._thread is None:
            self._thread = threading.Thread(target=self._write, name="pegboard-audit", daemon=True)
            self._thread.start()
        self._changed.notify()

    def _write(self) -> None:
        is_open = False
        while True:
            with self._changed:
                while not self._rows and not self._resting:
                    self._changed.wait()
                if not self._rows:
                    # Under the lock, so that a record added now finds that the file has been released.
                    self._thread, self._resting = None, False
                    self._sink.close()
                    return
                rows, self._rows = self._rows, []
                waiters, self._waiters = self._waiters, []
                room, self._wanting_room = self._wanting_room, []
            problem: BaseException | None = None
            try:
                if not is_open:
                    self._sink.open()
                    is_open = True
                self._sink.append(rows)
            except Exception as raised:  # noqa: BLE001 — whatever it is, those who wait have to hear it
                problem = raised
            _wake(waiters, problem)
            _wake(room, None)


def _wake(waiters: Sequence[Waiter], problem: BaseException | None) -> None:
    by_loop: dict[Any, list[Waiter]] = {}
    for waiter in waiters:
        by_loop.setdefault(waiter.get_loop(), []).append(waiter)
    for loop, group in by_loop.items():
        try:
            loop.call_soon_threadsafe(_resolve_waiters, group, problem)
        except RuntimeError:
            continue  # the loop is closed, so no caller waits for it


def _resolve_waiters(waiters: Sequence[Waiter], problem: BaseException | None) -> None:
    for waiter in waiters:
        if waiter.done():
            continue
        if problem is None:
            waiter.set_result(None)
        else:
            waiter.set_exception(problem)
