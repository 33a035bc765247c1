"""What is deleted first when the logs of a SQLite file reach a limit."""

from __future__ import annotations

from typing import Final

from pegboard.limits import Limits
from pegboard.stores.sqlite.hint_poller import topic_number
from pegboard.stores.sqlite.writer_thread import Transaction

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
