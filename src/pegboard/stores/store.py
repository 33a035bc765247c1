"""What every store promises, whichever backend keeps the things.

Logs and records are the truth; hints only say that it may be worth a look, and may be lost. Whoever waits for something
therefore watches first, reads then, and looks again after a while even if no hint has come.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeAlias

from msgspec import Struct

LogName: TypeAlias = tuple[str, str]
"""Whose log it is (a session), and which one (a stream of it)."""

Watcher: TypeAlias = Callable[[], object]
"""Called in the event loop of whoever watches; it takes note and returns, and reads later."""


class Entry(Struct, frozen=True):
    """One thing in a log, under its number."""

    seq: int
    data: bytes


class Page(Struct, frozen=True):
    """Some of the entries after a cursor, in order; numbers that are missing between them were trimmed.

    `last` is the newest number in the log, `more` whether entries follow that this page had no room for, `ended` whether
    nothing will ever be appended. `about` is what was said when the log was opened.
    """

    entries: tuple[Entry, ...]
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
        name: somebody else has written, or it is over.
        """

    async def release(self, log: LogName, seq: int) -> None:
        """An entry that was to be kept may be trimmed like others."""

    async def read(self, log: LogName, after: int, limit: int) -> Page | None:
        """The entries after that number, at most so many; None where there is no such log."""

    async def drop(self, session: str) -> None:
        """Forget all logs of a session."""

    def watch(self, log: LogName, watcher: Watcher) -> Callable[[], None]:
        """Be called when something was appended, or the log is gone; returns what ends the watch."""


class Record(Struct, frozen=True):
    """A value and how often it has been written."""

    value: bytes
    version: int


class Records(Protocol):
    """Values by key, each with a time to live in seconds, or without end."""

    async def get(self, key: str) -> Record | None:
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


class Store(Protocol):
    """All that is kept, by one backend."""

    @property
    def logs(self) -> Logs: ...

    @property
    def records(self) -> Records: ...

    @property
    def hints(self) -> Hints: ...
