"""The database file: permissions, schema and opening."""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path
from typing import Final, Literal, TypeAlias

from pegboard.errors import SetupError
from pegboard.security.ownership import create_own_database
from pegboard.stores.store import digest

Sync: TypeAlias = Literal["normal", "full"]
"""What a written entry survives: `normal` a crash of every process, `full` also a power failure."""

_APPLICATION: Final = 0x50454742
_SCHEMA: Final = 2
LOCK_WAIT_SECONDS: Final = 10.0
# How many pages the write-ahead log may have before they are copied into the file; frequently written ones count once.
_CHECKPOINT_PAGES: Final = 4000

# Entries are stored in the order of arrival, not by log, so that a commit writes few pages. `keep` is 0 for an entry
# that may be trimmed, 1 for one that must be kept until it is released, 2 for the last one of a log. The triggers keep
# all sums correct on every insert and delete.
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
    """Create the file if it is missing, readable only by its owner; SetupError if it cannot be used."""
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
        raise SetupError(
            f"store sqlite:{path}: {problem.strerror or problem}; choose a file that you may write, or --store memory"
        ) from None
    except sqlite3.Error as problem:
        raise SetupError(f"store sqlite:{path}: {problem}; use another file, or repair or delete this one") from None


def connect(path: Path, sync: Sync = "normal") -> sqlite3.Connection:
    """A connection for any one thread; each statement commits by itself unless a transaction was begun."""
    connection = sqlite3.connect(path, timeout=LOCK_WAIT_SECONDS, isolation_level=None, check_same_thread=False)
    try:
        connection.execute(f"PRAGMA synchronous = {sync}")
        connection.execute(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT_PAGES}")
        connection.execute(f"PRAGMA journal_size_limit = {2 * 4096 * _CHECKPOINT_PAGES}")
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def remove_unused(path: Path, *kept: str) -> bool:
    """Remove the file if it is a store that no process has open and that has no content in the records `kept`.

    It must not be in use in this process.
    """
    try:
        connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=rw", uri=True, timeout=0, isolation_level=None)
        try:
            if _pragma(connection, "application_id") != _APPLICATION:
                return False
            for record in kept:
                if connection.execute(
                    "SELECT 1 FROM records WHERE key = ? AND length(value) > 1", (digest(record),)
                ).fetchone():
                    return False
            # Only the last connection can leave WAL mode; SQLite then removes the files beside it, too.
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
    # SQLite gives the files beside it the same mode.
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
            raise SetupError("this is the database of another program; use another file")
        elif schema != _SCHEMA:
            raise SetupError(
                f"its schema is {schema}, but this version of Pegboard supports {_SCHEMA}; "
                "use the version that wrote it, or another file"
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
            # Another process is switching at the same time, and SQLite does not wait for that by itself.
            if "locked" not in str(problem) or time.monotonic() > deadline:
                raise
            time.sleep(0.005)
    if mode != "wal":
        raise SetupError("its file system does not support shared memory; use a file on a local disk")


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
