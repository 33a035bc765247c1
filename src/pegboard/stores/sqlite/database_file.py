"""The database file: permissions, schema and opening."""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path
from typing import Final, Literal, TypeAlias

from pegboard.errors import SetupError
from pegboard.security.ownership import create_own_database

Sync: TypeAlias = Literal["normal", "full"]
"""What a written entry survives: the death of every process, or the machine's loss of power too."""

_APPLICATION: Final = 0x50454742
_SCHEMA: Final = 2
LOCK_WAIT_SECONDS: Final = 10.0
# Pages that are written again and again are copied into the file once for so many writes.
_CHECKPOINT_PAGES: Final = 4000

# Entries lie in the order they came, whichever log they are of: what is committed together is written to few pages. `keep`
# is 0 for what may be trimmed, 1 for what may not until it is released, 2 for the end. The triggers keep every sum true,
# whoever adds or deletes.
_TABLES: Final = """
CREATE TABLE total (size INTEGER NOT NULL);
INSERT INTO total VALUES (0);
CREATE TABLE sessions (
    id INTEGER PRIMARY KEY, digest TEXT NOT NULL UNIQUE, size INTEGER NOT NULL, touched REAL NOT NULL
);
CREATE INDEX idle_sessions ON sessions (touched);
CREATE TABLE logs (
    id INTEGER PRIMARY KEY AUTOINCREMENT, session INTEGER NOT NULL, name TEXT NOT NULL, about BLOB NOT NULL,
    last INTEGER NOT NULL, entries INTEGER NOT NULL, size INTEGER NOT NULL, ended REAL, UNIQUE (session, name)
);
CREATE INDEX ended_logs ON logs (ended) WHERE ended IS NOT NULL;
CREATE TABLE entries (
    id INTEGER PRIMARY KEY, log INTEGER NOT NULL, seq INTEGER NOT NULL, keep INTEGER NOT NULL, data BLOB NOT NULL
);
CREATE UNIQUE INDEX entries_of ON entries (log, seq);
CREATE TRIGGER entry_added AFTER INSERT ON entries BEGIN
    UPDATE logs SET last = new.seq, entries = entries + 1, size = size + length(new.data) WHERE id = new.log;
END;
CREATE TRIGGER entry_deleted AFTER DELETE ON entries BEGIN
    UPDATE logs SET entries = entries - 1, size = size - length(old.data) WHERE id = old.log;
END;
CREATE TRIGGER log_weighed AFTER UPDATE OF size ON logs BEGIN
    UPDATE sessions SET size = size + new.size - old.size WHERE id = new.session;
    UPDATE total SET size = size + new.size - old.size;
END;
CREATE TABLE records (key TEXT PRIMARY KEY, value BLOB NOT NULL, version INTEGER NOT NULL, until REAL) WITHOUT ROWID;
CREATE INDEX due_records ON records (until) WHERE until IS NOT NULL;
CREATE TABLE leases (name TEXT PRIMARY KEY, until REAL NOT NULL) WITHOUT ROWID;
CREATE TABLE feeds (name TEXT PRIMARY KEY, last INTEGER NOT NULL, until REAL NOT NULL) WITHOUT ROWID;
CREATE TABLE feed_entries (
    feed TEXT NOT NULL, number INTEGER NOT NULL, data BLOB NOT NULL, PRIMARY KEY (feed, number)
) WITHOUT ROWID;
CREATE TABLE hints (id INTEGER PRIMARY KEY AUTOINCREMENT, topic INTEGER NOT NULL, sender TEXT NOT NULL);
"""


def prepare(path: Path) -> None:
    """Make the file if there is none, for nobody's eyes but the user's; SetupError where it is not ours to use."""
    try:
        _make_private(path)
        connection = connect(path)
        try:
            _check(connection)
        finally:
            connection.close()
    except SetupError as problem:
        raise SetupError(f"store sqlite:{path}: {problem}") from None
    except OSError as problem:
        raise SetupError(f"store sqlite:{path}: {problem.strerror or problem}; name a file you may write") from None
    except sqlite3.Error as problem:
        raise SetupError(f"store sqlite:{path}: {problem}; name another file, or mend or delete this one") from None


def connect(path: Path, sync: Sync = "normal") -> sqlite3.Connection:
    """A connection for one thread, whichever; each statement is by itself unless a transaction was begun."""
    connection = sqlite3.connect(path, timeout=LOCK_WAIT_SECONDS, isolation_level=None, check_same_thread=False)
    try:
        connection.execute(f"PRAGMA synchronous = {sync}")
        connection.execute(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT_PAGES}")
        connection.execute(f"PRAGMA journal_size_limit = {2 * 4096 * _CHECKPOINT_PAGES}")
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def remove_unused(path: Path) -> bool:
    """Remove the file, if it is one of ours that nobody has open; it must not be in use in this process."""
    try:
        connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=rw", uri=True, timeout=0, isolation_level=None)
        try:
            if _pragma(connection, "application_id") != _APPLICATION:
                return False
            # Only who is alone may leave WAL, and then the files beside it are gone, too.
            if connection.execute("PRAGMA journal_mode = delete").fetchone()[0] != "delete":
                return False
            connection.execute("BEGIN EXCLUSIVE")
            path.unlink()
        finally:
            connection.close()
    except (OSError, sqlite3.Error):
        return False
    return True


def _make_private(path: Path) -> None:
    missing = [folder for folder in path.parents if not folder.exists()]
    for folder in reversed(missing):
        folder.mkdir(0o700, exist_ok=True)
    create_own_database(path)
    # The files that SQLite puts beside it get the same mode.
    if path.stat().st_mode & 0o077:
        path.chmod(0o600)


def _check(connection: sqlite3.Connection) -> None:
    _use_wal(connection)
    connection.execute("BEGIN IMMEDIATE")
    try:
        application = _pragma(connection, "application_id")
        schema = _pragma(connection, "user_version")
        if not application and not connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            _create(connection)
        elif application != _APPLICATION:
            raise SetupError("this is some other program's database; name another file")
        elif schema != _SCHEMA:
            raise SetupError(
                f"its schema is {schema}, this version of Pegboard knows {_SCHEMA}; "
                "use the version that wrote it, or name another file"
            )
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def _use_wal(connection: sqlite3.Connection) -> None:
    deadline = time.monotonic() + LOCK_WAIT_SECONDS
    mode = ""
    while not mode:
        try:
            mode = connection.execute("PRAGMA journal_mode = wal").fetchone()[0]
        except sqlite3.OperationalError as problem:
            # Another process is doing the same, which SQLite does not wait for by itself.
            if "locked" not in str(problem) or time.monotonic() > deadline:
                raise
            time.sleep(0.005)
    if mode != "wal":
        raise SetupError("its file system cannot share memory; name a file on a local disk")


def _create(connection: sqlite3.Connection) -> None:
    statement = ""
    for line in _TABLES.splitlines():
        statement += line + "\n"
        if sqlite3.complete_statement(statement):
            connection.execute(statement)
            statement = ""
    connection.execute(f"PRAGMA application_id = {_APPLICATION}")
    connection.execute(f"PRAGMA user_version = {_SCHEMA}")


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    value: int = connection.execute(f"PRAGMA {name}").fetchone()[0]
    return value
