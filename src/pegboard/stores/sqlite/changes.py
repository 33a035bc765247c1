"""A board's change log in a SQLite file."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable

from pegboard.stores.sqlite.hints import HintWatcher, topic_number
from pegboard.stores.sqlite.reader_thread import ReaderThread
from pegboard.stores.sqlite.writer_thread import Transaction, WriterThread
from pegboard.stores.store import ChangePage, LogEntry, Watcher


class SqliteChanges:
    """The newest changes of one board."""

    def __init__(
        self,
        board: str,
        keep: int,
        writer: WriterThread,
        reader: ReaderThread,
        hint_watcher: HintWatcher,
        clock: Callable[[], float],
    ) -> None:
        self._board = board
        self._keep = keep
        self._writer = writer
        self._reader = reader
        self._hint_watcher = hint_watcher
        self._clock = clock
        self._topic = topic_number("changes", board)

    async def last(self) -> int:
        return await self._writer.run(self._last)

    def _last(self, transaction: Transaction) -> int:
        found = transaction.execute("SELECT last FROM boards WHERE name = ?", (self._board,)).fetchone()
        if found is None:
            # Milliseconds grow faster than changes come: no log that was here before can have got so far.
            found = (int(self._clock() * 1000),)
            transaction.execute("INSERT INTO boards VALUES (?, ?)", (self._board, *found))
        last: int = found[0]
        return last

    async def publish(self, change: bytes) -> int:
        def write(transaction: Transaction) -> int:
            number = self._last(transaction) + 1
            transaction.execute("INSERT INTO changes VALUES (?, ?, ?)", (self._board, number, change))
            transaction.execute("UPDATE boards SET last = ? WHERE name = ?", (number, self._board))
            over = self._board, number - self._keep
            transaction.execute("DELETE FROM changes WHERE board = ? AND number <= ?", over)
            transaction.notify(self._topic)
            return number

        return await self._writer.run(write, len(change))

    async def read(self, after: int, limit: int) -> ChangePage:
        return await self._reader.run(lambda connection: self._read(connection, after, limit))

    def _read(self, connection: sqlite3.Connection, after: int, limit: int) -> ChangePage:
        name = (self._board,)
        found = connection.execute("SELECT last FROM boards WHERE name = ?", name).fetchone()
        last: int = 0 if found is None else found[0]
        first = connection.execute("SELECT min(number) FROM changes WHERE board = ?", name).fetchone()[0]
        forgotten = last if first is None else first - 1
        lost = not forgotten <= after <= last
        rows = connection.execute(
            "SELECT number, data FROM changes WHERE board = ? AND number > ? ORDER BY number LIMIT ?",
            (self._board, forgotten if lost else after, limit),
        )
        entries = tuple(LogEntry(number, data) for number, data in rows)
        return ChangePage(entries, last, bool(entries) and entries[-1].seq < last, lost)

    def watch(self, watcher: Watcher) -> Callable[[], None]:
        return self._hint_watcher.watch(self._topic, watcher)
