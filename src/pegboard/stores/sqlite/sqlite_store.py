"""The SQLite store: one file, written by one thread of each process that uses it."""

from __future__ import annotations

import asyncio
import sqlite3
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pegboard.limits import Limits
from pegboard.stores.sqlite.database_file import Sync, connect, prepare
from pegboard.stores.sqlite.hint_poller import HintPoller, topic_number
from pegboard.stores.sqlite.reader_thread import ReaderThread
from pegboard.stores.sqlite.sqlite_logs import SqliteLogs
from pegboard.stores.sqlite.writer_thread import Transaction, WriterThread
from pegboard.stores.store import FEED_SECONDS, FeedPage, LogEntry, StoredRecord, Watcher, digest, new_worker

_OVER_AT_ONCE: Final = 100
_FIND: Final = "SELECT value, version FROM records WHERE key = ? AND (until IS NULL OR until > ?)"


@dataclass(eq=False)
class _StorePart:
    """What the parts of one store share."""

    writer: WriterThread
    reader: ReaderThread
    hint_poller: HintPoller
    clock: Callable[[], float]


class SqliteRecords(_StorePart):
    """Values under digests of their keys; expired ones are deleted when others are written."""

    async def get(self, key: str) -> StoredRecord | None:
        found = await self.reader.rows(_FIND, digest(key), self.clock())
        return StoredRecord(*found[0]) if found else None

    async def put(
        self, key: str, value: bytes, *, ttl: float | None = None, if_version: int | None = None
    ) -> int | None:
        name = digest(key)

        def write(transaction: Transaction) -> int | None:
            now = self.clock()
            found = transaction.execute(_FIND, (name, now)).fetchone()
            version: int = 0 if found is None else found[1]
            if if_version is not None and if_version != version:
                return None
            _write(transaction, name, value, version + 1, None if ttl is None else now + ttl)
            _forget(transaction, now)
            return version + 1

        return await self.writer.run(write, len(value))

    async def add(self, key: str, amount: int, *, ttl: float | None = None) -> int:
        name = digest(key)

        def write(transaction: Transaction) -> int:
            now = self.clock()
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

        return await self.writer.run(write)

    async def delete(self, key: str) -> bool:
        name = digest(key)

        def write(transaction: Transaction) -> bool:
            there = transaction.execute(_FIND, (name, self.clock())).fetchone() is not None
            transaction.execute("DELETE FROM records WHERE key = ?", (name,))
            return there

        return await self.writer.run(write)


class SqliteFeeds(_StorePart):
    """The newest entries of each feed, and its last number."""

    async def publish(self, feed: str, data: bytes, *, keep: int, holder: str | None = None) -> int | None:
        def write(transaction: Transaction) -> int | None:
            now = self.clock()
            held = "SELECT 1 FROM leases WHERE name = ? AND until > ?"
            if holder is not None and transaction.execute(held, (holder, now)).fetchone() is None:
                return None
            number = _next_number(transaction, feed, now)
            transaction.execute("INSERT OR REPLACE INTO feeds VALUES (?, ?, ?)", (feed, number, now + FEED_SECONDS))
            transaction.execute("INSERT INTO feed_entries VALUES (?, ?, ?)", (feed, number, data))
            transaction.execute("DELETE FROM feed_entries WHERE feed = ? AND number <= ?", (feed, number - keep))
            transaction.notify(topic_number("feed", feed))
            return number

        return await self.writer.run(write, len(data))

    async def read(self, feed: str, after: int, limit: int) -> FeedPage:
        def read(connection: sqlite3.Connection) -> FeedPage:
            found = connection.execute("SELECT last FROM feeds WHERE name = ?", (feed,)).fetchone()
            last: int = 0 if found is None else found[0]
            first = connection.execute("SELECT min(number) FROM feed_entries WHERE feed = ?", (feed,)).fetchone()[0]
            forgotten = last if first is None else first - 1
            lost = not forgotten <= after <= last
            rows = connection.execute(
                "SELECT number, data FROM feed_entries WHERE feed = ? AND number > ? ORDER BY number LIMIT ?",
                (feed, forgotten if lost else after, limit),
            )
            entries = tuple(LogEntry(number, data) for number, data in rows)
            return FeedPage(entries, last, bool(entries) and entries[-1].seq < last, lost)

        return await self.reader.run(read)

    async def trim(self, feed: str, upto: int) -> None:
        await self.writer.execute("DELETE FROM feed_entries WHERE feed = ? AND number <= ?", feed, upto)

    def watch(self, feed: str, watcher: Watcher) -> Callable[[], None]:
        return self.hint_poller.watch(topic_number("feed", feed), watcher)


class SqliteLeases(_StorePart):
    """Names, and the time until which each is held."""

    async def renew(self, holder: str, seconds: float) -> None:
        def write(transaction: Transaction) -> None:
            now = self.clock()
            transaction.execute("DELETE FROM leases WHERE until <= ?", (now,))
            transaction.execute("INSERT OR REPLACE INTO leases VALUES (?, ?)", (holder, now + seconds))

        await self.writer.run(write)

    async def release(self, holder: str) -> None:
        await self.writer.execute("DELETE FROM leases WHERE name = ?", holder)

    async def holders(self) -> Sequence[str]:
        query = "SELECT name FROM leases WHERE until > ? ORDER BY name"
        return [name for (name,) in await self.reader.rows(query, self.clock())]


class SqliteStore:
    """A file; `sync` says what its entries survive."""

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
        self.records = SqliteRecords(writer, reader, hint_poller, clock)
        self.feeds = SqliteFeeds(writer, reader, hint_poller, clock)
        self.leases = SqliteLeases(writer, reader, hint_poller, clock)

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


def _write(transaction: Transaction, name: str, value: bytes, version: int, until: float | None) -> None:
    transaction.execute("INSERT OR REPLACE INTO records VALUES (?, ?, ?, ?)", (name, value, version, until))


def _forget(transaction: Transaction, now: float) -> None:
    """Delete some expired records: more than a write adds, but few enough to be quick."""
    transaction.execute(
        "DELETE FROM records WHERE key IN (SELECT key FROM records WHERE until <= ? LIMIT ?)", (now, _OVER_AT_ONCE)
    )


def _next_number(transaction: Transaction, feed: str, now: float) -> int:
    found = transaction.execute("SELECT last FROM feeds WHERE name = ?", (feed,)).fetchone()
    if found is not None:
        last: int = found[0]
        return last + 1
    # A new feed is rare: the time to delete those that are no longer used. Milliseconds grow faster than a feed does,
    # so its numbers are above those of an earlier feed of this name.
    transaction.execute("DELETE FROM feed_entries WHERE feed IN (SELECT name FROM feeds WHERE until <= ?)", (now,))
    transaction.execute("DELETE FROM feeds WHERE until <= ?", (now,))
    return int(now * 1000) + 1
