"""The contract of every store: logs, records, hints, workers and change logs.

Logs and records are the truth; hints only say that something may have changed, and may be lost or wrong. A waiting
process therefore watches first, then reads, and reads again after a while even without a hint.

A store that cannot be reached or written raises StoreDown. The operation may have succeeded nevertheless: a process
that then finds its number taken reads the log to learn by whom.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, Protocol, TypeAlias

from msgspec import Struct

LogName: TypeAlias = tuple[str, str]
"""Whose log it is (a session), and which one (a stream of it)."""

Watcher: TypeAlias = Callable[[], object]
"""Called in the event loop of whoever watches; it takes note and returns, and reads later."""


class LogEntry(Struct, frozen=True):
    """One thing in a log, under its number."""

    seq: int
    data: bytes


class LogPage(Struct, frozen=True):
    """Some of the entries after a cursor, in order; numbers that are missing between them were trimmed.

    `last` is the newest number in the log, `more` whether entries follow that this page had no room for, `ended` whether
    nothing will ever be appended. `about` is what was said when the log was opened.
    """

    entries: tuple[LogEntry, ...]
    last: int
    more: bool
    ended: bool
    about: bytes


class Logs(Protocol):
    """Logs whose entries are numbered 1, 2, 3 …, written by one owner and read by anybody at any pace.

    A log is bounded in entries and bytes, and so are all logs of one session. What goes first at a bound: the oldest
    entries that are neither to be kept nor the end; then whole logs, those that ended longest ago. Logs that have ended
    are kept for a while, and only some of them.
    """

    async def open(self, log: LogName, about: bytes = b"") -> bool:
        """Begin a log; False where the session has as many as it may, or one of that name."""

    async def append(self, log: LogName, seq: int, data: bytes, *, keep: bool = False, end: bool = False) -> bool:
        """Add the next entry, and hint to whoever watches; True once it is safe.

        False, and nothing is added, where the number is not the next one, the log has ended, or there is none of that
        name: somebody else has written, or it is over. Whoever is cancelled while it waits does not learn whether the
        entry was added, so an owner that wants to go on after a cancellation shields this.
        """

    async def release(self, log: LogName, seq: int) -> None:
        """An entry that was to be kept may be trimmed like others."""

    async def read(self, log: LogName, after: int, limit: int) -> LogPage | None:
        """The entries after that number, at most so many; None where there is no such log."""

    async def drop(self, session: str) -> None:
        """Forget all logs of a session."""

    async def touch(self, session: str) -> None:
        """The session lives on, and so do its logs.

        Where processes share a store, any of them may die without a word: what nobody has written to or touched for
        twice the time of a session goes.
        """

    def watch(self, log: LogName, watcher: Watcher) -> Callable[[], None]:
        """Be called when something was appended, or the log is gone; returns what ends the watch."""


class StoredRecord(Struct, frozen=True):
    """A value and how often it has been written."""

    value: bytes
    version: int


class Records(Protocol):
    """Values by key, each with a time to live in seconds, or without end."""

    async def get(self, key: str) -> StoredRecord | None:
        """The value, unless there is none or its time is over."""

    async def put(
        self, key: str, value: bytes, *, ttl: float | None = None, if_version: int | None = None
    ) -> int | None:
        """Write a value and return its version; its time starts anew.

        With `if_version` only where that is the version there is (0: where there is none); None where it is not.
        """

    async def add(self, key: str, amount: int, *, ttl: float | None = None) -> int:
        """Count up and return the sum; the time is that of the first addition."""

    async def delete(self, key: str) -> bool:
        """Forget a value; whether there was one."""


class Hints(Protocol):
    """Word that something of a topic has changed, for whoever watches at that moment, in any process."""

    def hint(self, topic: str) -> None: ...

    def watch(self, topic: str, watcher: Watcher) -> Callable[[], None]:
        """Be called at each hint; returns what ends the watch."""


Delivery: TypeAlias = Literal["sent", "full", "gone"]
"""What became of a message: it is in the inbox; so it is, but the oldest one there had to go; nobody reads there."""

Receiver: TypeAlias = Callable[[bytes], object]
"""Called with a message in the event loop of whoever receives; it takes note and returns."""


class Workers(Protocol):
    """The processes that share a store: who lives, and a way to tell one of them something.

    A worker lives for `worker_seconds` after each beat, and hears of what it is told in the order it was sent. Messages
    to one that dies are lost with it.
    """

    @property
    def me(self) -> str:
        """The name of this process, which no other has or had."""

    async def beat(self) -> None:
        """Say that this process lives; due every third of `worker_seconds`."""

    async def leave(self) -> None:
        """Say that it does not any more; its inbox is forgotten."""

    async def alive(self, worker: str) -> bool: ...

    async def living(self) -> Sequence[str]:
        """All that live, this one among them once it has beaten."""

    async def send(self, worker: str, message: bytes) -> Delivery:
        """Put a message into a worker's inbox. It is kept as it is: name a session in it by its digest."""

    def receive(self, receiver: Receiver) -> Callable[[], None]:
        """Be called with each message to this process; returns what ends it. Without a receiver they wait."""


class ChangePage(Struct, frozen=True):
    """Some of the changes after a cursor, in order and without a gap.

    `last` is the newest number in the log, `more` whether changes follow that this page had no room for. `lost` says
    that what followed the cursor is not kept any more, or that its number is another log's: anything may have changed.
    """

    entries: tuple[LogEntry, ...]
    last: int
    more: bool
    lost: bool


class ChangeStore(Protocol):
    """What has changed of one board, by whichever process, numbered by the store; the newest are kept.

    Numbers grow by one. A log that was lost begins anew above every number it can have given before, so that a cursor
    of old is seen to be behind.
    """

    async def last(self) -> int:
        """The newest number; 0 where there is none yet."""

    async def publish(self, change: bytes) -> int:
        """Add a change, and hint to whoever watches; its number, once it is safe."""

    async def read(self, after: int, limit: int) -> ChangePage:
        """The changes after that number, at most so many."""

    def watch(self, watcher: Watcher) -> Callable[[], None]:
        """Be called when something was published; returns what ends the watch."""


class Store(Protocol):
    """All that is kept, by one backend."""

    @property
    def logs(self) -> Logs: ...

    @property
    def records(self) -> Records: ...

    @property
    def hints(self) -> Hints: ...

    @property
    def workers(self) -> Workers: ...

    def changes(self, board: str) -> ChangeStore:
        """The log of what changes of the board of that name."""

    async def start(self) -> None:
        """Make ready, in the event loop that will use it; SetupError where that cannot be."""

    async def close(self) -> None:
        """Finish what was begun, and let go of everything."""
