"""Logs in a SQLite file."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from functools import lru_cache
from typing import Final

from pegboard.limits import Limits
from pegboard.stores.identifiers import digest
from pegboard.stores.sqlite.hint_poller import HintPoller, topic_number
from pegboard.stores.sqlite.reader_thread import ReaderThread
from pegboard.stores.sqlite.trimming import END_ENTRY, LAST_SEQ, REQUIRED, TRIMMABLE, Trimming
from pegboard.stores.sqlite.writer_thread import Topic, Transaction, WriterThread
from pegboard.stores.store import LogEntry, LogName, LogPage, Watcher

_TOUCH_SECONDS: Final = 60.0
_SWEEP_SECONDS: Final = 1.0
_OURS_KNOWN: Final = 4096


@lru_cache(4096)
def _place(log: LogName) -> tuple[str, Topic]:
    """The digest of the log's session, and the topic of the log."""
    session = digest(log[0])
    return session, topic_number("log", f"{session}:{log[1]}")


class SqliteLogs:
    """Logs as rows; the writer checks that each number is the next one, for all processes."""

    def __init__(
        self,
        limits: Limits,
        writer: WriterThread,
        reader: ReaderThread,
        hint_poller: HintPoller,
        clock: Callable[[], float],
    ) -> None:
        self._limits = limits
        self._writer = writer
        self._reader = reader
        self._hint_poller = hint_poller
        self._clock = clock
        self._trimming = Trimming(limits)
        self._swept = 0.0
        # The logs that this process opened, and will end: no other process appends to them.
        self._ours: set[LogName] = set()

    async def open(self, log: LogName, about: bytes = b"") -> bool:
        session, _ = _place(log)
        opened = await self._writer.run(lambda transaction: self._open(transaction, session, log[1], about))
        if opened:
            if len(self._ours) >= _OURS_KNOWN:
                # A forgotten log only costs polling for other processes.
                self._ours.clear()
            self._ours.add(log)
        return opened

    def _open(self, transaction: Transaction, session: str, name: str, about: bytes) -> bool:
        now = self._clock()
        self._trimming.expire(transaction, now)
        row = transaction.execute("SELECT id FROM sessions WHERE digest = ?", (session,)).fetchone()
        if row is None:
            values = session, now
            number = transaction.execute(
                "INSERT INTO sessions (digest, size, touched) VALUES (?, 0, ?)", values
            ).lastrowid
        else:
            number = row[0]
            transaction.execute("UPDATE sessions SET touched = ? WHERE id = ?", (now, number))
            names = [found for (found,) in transaction.execute("SELECT name FROM logs WHERE session = ?", (number,))]
            if name in names:
                return False
            if len(names) >= self._limits.session_streams and not self._trimming.remove_ended(transaction, number):
                return False
        transaction.execute(
            "INSERT INTO logs (session, name, about, last, entries, size) VALUES (?, ?, ?, 0, 0, 0)",
            (number, name, about),
        )
        return True

    async def append(self, log: LogName, seq: int, data: bytes, *, keep: bool = False, end: bool = False) -> bool:
        if not 0 < seq <= LAST_SEQ:
            return False
        mark = END_ENTRY if end else REQUIRED if keep else TRIMMABLE
        added = await self._writer.run(lambda transaction: self._append(transaction, log, seq, data, mark), len(data))
        if end or not added:
            self._ours.discard(log)
        return added

    def _append(self, transaction: Transaction, log: LogName, seq: int, data: bytes, mark: int) -> bool:
        now = self._clock()
        session, topic = _place(log)
        if not 0 <= now - self._swept < _SWEEP_SECONDS:
            self._swept = now
            self._trimming.expire(transaction, now)
        row = transaction.execute(
            "SELECT logs.id, logs.entries, logs.size, sessions.id, sessions.size, touched, total.size "
            "FROM sessions JOIN logs ON logs.session = sessions.id JOIN total "
            "WHERE digest = ? AND name = ? AND last = ? AND ended IS NULL",
            (session, log[1], seq - 1),
        ).fetchone()
        if row is None:
            return False
        number, entries, size, owner, session_size, touched, total = row
        transaction.execute("INSERT INTO entries (log, seq, keep, data) VALUES (?, ?, ?, ?)", (number, seq, mark, data))
        if touched < now - _TOUCH_SECONDS:
            transaction.execute("UPDATE sessions SET touched = ? WHERE id = ?", (now, owner))
        if mark == END_ENTRY:
            transaction.execute("UPDATE logs SET ended = ? WHERE id = ?", (now, number))
            transaction.execute("UPDATE entries SET keep = 0 WHERE log = ? AND keep = 1", (number,))
        more = len(data)
        transaction.notify(topic)
        self._trimming.trim(
            transaction, number, owner, (entries + 1, size + more, session_size + more, total + more), mark == END_ENTRY
        )
        return True

    async def release(self, log: LogName, seq: int) -> None:
        if 0 < seq <= LAST_SEQ:
            await self._writer.execute(
                "UPDATE entries SET keep = 0 WHERE seq = ? AND keep = 1 AND log = (SELECT logs.id "
                "FROM sessions JOIN logs ON logs.session = sessions.id WHERE digest = ? AND name = ?)",
                *(seq, _place(log)[0], log[1]),
            )

    async def read(self, log: LogName, after: int, limit: int) -> LogPage | None:
        session, _ = _place(log)
        oldest = self._clock() - self._limits.ended_seconds
        after = min(max(after, 0), LAST_SEQ)

        def read(connection: sqlite3.Connection) -> LogPage | None:
            row = connection.execute(
                "SELECT logs.id, last, ended IS NOT NULL, about FROM sessions JOIN logs ON logs.session = sessions.id "
                "WHERE digest = ? AND name = ? AND (ended IS NULL OR ended >= ?)",
                (session, log[1], oldest),
            ).fetchone()
            if row is None:
                return None
            number, last, ended, about = row
            rows = connection.execute(
                "SELECT seq, data FROM entries WHERE log = ? AND seq > ? ORDER BY seq LIMIT ?",
                (number, after, limit + 1),
            ).fetchall()
            entries = tuple(LogEntry(seq, data) for seq, data in rows[:limit])
            return LogPage(entries, last, len(rows) > limit, bool(ended), about)

        return await self._reader.run(read)

    async def drop(self, session: str) -> None:
        name = digest(session)
        self._ours = {log for log in self._ours if log[0] != session}
        await self._writer.run(lambda transaction: self._trimming.drop(transaction, name))

    async def touch(self, session: str) -> None:
        now = self._clock()
        await self._writer.execute("UPDATE sessions SET touched = ? WHERE digest = ?", now, digest(session))

    def watch(self, log: LogName, watcher: Watcher) -> Callable[[], None]:
        return self._hint_poller.watch(_place(log)[1], watcher, foreign=log not in self._ours)
