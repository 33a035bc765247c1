"""Logs in a SQLite file, and what is deleted first when they reach a limit."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from functools import lru_cache
from typing import Final

from pegboard.limits import Limits
from pegboard.stores.sqlite.hint_poller import HintPoller, topic_number
from pegboard.stores.sqlite.reader_thread import ReaderThread
from pegboard.stores.sqlite.writer_thread import Topic, Transaction, WriterThread
from pegboard.stores.store import LogEntry, LogName, LogPage, Watcher, digest

_TOUCH_SECONDS: Final = 60.0
_SWEEP_SECONDS: Final = 1.0
_OURS_KNOWN: Final = 4096

# The values of `entries.keep`.
TRIMMABLE: Final = 0
REQUIRED: Final = 1
END_ENTRY: Final = 2
LAST_SEQ: Final = 2**53

_Sizes = tuple[int, int, int, int]


class Trimming:
    """The trimming rules of `Logs`, as SQL statements."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._life = 2 * limits.session_seconds + limits.ended_seconds

    def trim(self, transaction: Transaction, log: int, session: int, sizes: _Sizes, ended: bool) -> None:
        """Enforce the limits after an entry: of its log (entries, bytes), of its session, and of the whole store."""
        limits = self._limits
        entries, size, session_size, total = sizes
        if entries > limits.stream_events or size > limits.stream_bytes:
            self._cut(transaction, log, entries - limits.stream_events, size - limits.stream_bytes)
        if ended:
            self._trim_ended(transaction, session)
        if session_size > limits.session_bytes:
            self._trim_session(transaction, session)
        if total > limits.stored_bytes:
            self._trim_all(transaction)

    def expire(self, transaction: Transaction, now: float) -> None:
        """Remove logs that ended long ago, and sessions that have not been touched for longer."""
        over = transaction.execute(
            "SELECT id FROM logs WHERE ended < ?", (now - self._limits.ended_seconds,)
        ).fetchall()
        for (log,) in over:
            _remove(transaction, log)
        idle = transaction.execute("SELECT digest FROM sessions WHERE touched < ?", (now - self._life,)).fetchall()
        for (session,) in idle:
            self.drop(transaction, session)

    def drop(self, transaction: Transaction, session: str) -> None:
        """Remove a session and its logs."""
        logs = transaction.execute(
            "SELECT logs.id FROM sessions JOIN logs ON logs.session = sessions.id WHERE digest = ?", (session,)
        ).fetchall()
        for (log,) in logs:
            _remove(transaction, log)
        transaction.execute("DELETE FROM sessions WHERE digest = ?", (session,))

    def remove_ended(self, transaction: Transaction, session: int) -> bool:
        """Remove the log of a session that ended first; returns whether there was one."""
        ended = _ended(transaction, session)
        if ended:
            _remove(transaction, ended[0])
        return bool(ended)

    def _trim_ended(self, transaction: Transaction, session: int) -> None:
        ended = _ended(transaction, session)
        for log in ended[: max(0, len(ended) - self._limits.ended_streams)]:
            _remove(transaction, log)

    def _trim_session(self, transaction: Transaction, session: int) -> None:
        limit = self._limits.session_bytes
        logs = transaction.execute("SELECT id FROM logs WHERE session = ? ORDER BY id", (session,)).fetchall()
        for (log,) in logs:
            over = _size(transaction, session) - limit
            if over <= 0:
                return
            self._cut(transaction, log, 0, over)
        # Keep the newest ended log: its client is about to read it.
        for log in _ended(transaction, session)[:-1]:
            if _size(transaction, session) > limit:
                _remove(transaction, log)

    def _trim_all(self, transaction: Transaction) -> None:
        over = _total(transaction) - self._limits.stored_bytes
        while over > 0:
            ended = transaction.execute(
                "SELECT id FROM logs WHERE ended IS NOT NULL ORDER BY ended, id LIMIT 2"
            ).fetchall()
            if len(ended) < 2:
                break
            _remove(transaction, ended[0][0])
            over = _total(transaction) - self._limits.stored_bytes
        # The ids of entries follow their arrival, across all logs.
        found = transaction.execute("SELECT id, length(data) FROM entries WHERE keep = 0 ORDER BY id")
        last = 0
        for entry, weight in found:
            if over <= 0:
                break
            over, last = over - weight, entry
        found.close()
        transaction.execute("DELETE FROM entries WHERE id <= ? AND keep = 0", (last,))

    def _cut(self, transaction: Transaction, log: int, entries: int, size: int) -> None:
        """Delete the oldest entries of a log that may be trimmed: that many entries and that many bytes."""
        found = transaction.execute(
            "SELECT seq, length(data) FROM entries WHERE log = ? AND keep = 0 ORDER BY seq", (log,)
        )
        last = 0
        for seq, weight in found:
            if entries <= 0 and size <= 0:
                break
            entries, size, last = entries - 1, size - weight, seq
        found.close()
        transaction.execute("DELETE FROM entries WHERE log = ? AND seq <= ? AND keep = 0", (log, last))


def _ended(transaction: Transaction, session: int) -> list[int]:
    rows = transaction.execute(
        "SELECT id FROM logs WHERE session = ? AND ended IS NOT NULL ORDER BY ended, id", (session,)
    )
    return [log for (log,) in rows]


def _size(transaction: Transaction, session: int) -> int:
    size: int = transaction.execute("SELECT size FROM sessions WHERE id = ?", (session,)).fetchone()[0]
    return size


def _total(transaction: Transaction) -> int:
    size: int = transaction.execute("SELECT size FROM total").fetchone()[0]
    return size


def _remove(transaction: Transaction, log: int) -> None:
    name, session = transaction.execute(
        "SELECT name, digest FROM logs JOIN sessions ON sessions.id = logs.session WHERE logs.id = ?", (log,)
    ).fetchone()
    transaction.notify(topic_number("log", f"{session}:{name}"))
    # First delete the entries: the triggers then subtract their size from the session and the total.
    transaction.execute("DELETE FROM entries WHERE log = ?", (log,))
    transaction.execute("DELETE FROM logs WHERE id = ?", (log,))


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
