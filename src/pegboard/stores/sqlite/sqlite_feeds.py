"""Feeds as rows of a SQLite file."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable

from pegboard.stores.sqlite.hint_poller import HintPoller, topic_number
from pegboard.stores.sqlite.reader_thread import ReaderThread
from pegboard.stores.sqlite.writer_thread import Transaction, WriterThread
from pegboard.stores.store import FEED_SECONDS, FeedPage, LogEntry, Watcher


class SqliteFeeds:
    """The newest entries of each feed, and its last number."""

    def __init__(
        self, writer: WriterThread, reader: ReaderThread, hint_poller: HintPoller, clock: Callable[[], float]
    ) -> None:
        self._writer = writer
        self._reader = reader
        self._hint_poller = hint_poller
        self._clock = clock

    async def publish(self, feed: str, data: bytes, *, keep: int, holder: str | None = None) -> int | None:
        def write(transaction: Transaction) -> int | None:
            now = self._clock()
            held = "SELECT 1 FROM leases WHERE name = ? AND until > ?"
            if holder is not None and transaction.execute(held, (holder, now)).fetchone() is None:
                return None
            number = _next_number(transaction, feed, now)
            transaction.execute("INSERT OR REPLACE INTO feeds VALUES (?, ?, ?)", (feed, number, now + FEED_SECONDS))
            transaction.execute("INSERT INTO feed_entries VALUES (?, ?, ?)", (feed, number, data))
            transaction.execute("DELETE FROM feed_entries WHERE feed = ? AND number <= ?", (feed, number - keep))
            transaction.notify(topic_number("feed", feed))
            return number

        return await self._writer.run(write, len(data))

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

        return await self._reader.run(read)

    async def trim(self, feed: str, upto: int) -> None:
        delete = "DELETE FROM feed_entries WHERE feed = ? AND number <= ?"
        await self._writer.run(lambda transaction: transaction.execute(delete, (feed, upto)).close())

    def watch(self, feed: str, watcher: Watcher) -> Callable[[], None]:
        return self._hint_poller.watch(topic_number("feed", feed), watcher)


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
