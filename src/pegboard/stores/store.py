"""The contract of every store: logs, records, feeds and leases.

Every operation is atomic, also between processes, and what it returned is safe. Watchers get hints: a hint only means
that something may have changed, and it can be lost. A waiting process therefore watches first, then reads, and reads
again after a while even without a hint.

A store that cannot be reached or written raises StoreDown. The operation may have succeeded nevertheless: a process
that then finds its number taken reads the log to learn by whom.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from typing import Final, Protocol, TypeAlias

from msgspec import Struct

LogName: TypeAlias = tuple[str, str]
"""Whose log it is (a session), and which one (a stream of it)."""

Watcher: TypeAlias = Callable[[], object]
"""Called in the event loop that began the watch; it must return at once, and read later."""


async def wait_for_hint(hint: asyncio.Event, seconds: float) -> None:
    """Wait for a hint and clear it; return after so many seconds without one, since a hint can be lost."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await hint.wait()
    hint.clear()


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


class FeedPage(Struct, frozen=True):
    """Some of the entries after a cursor, in order and without a gap.

    `last` is the newest number in the feed, 0 if it has none; `more` whether entries follow that did not fit. `lost` means
    that entries after the cursor are gone, or that the cursor belongs to an earlier feed of this name; the page then
    begins with the oldest entry there is.
    """

    entries: tuple[LogEntry, ...]
    last: int
    more: bool
    lost: bool


FEED_SECONDS: Final = 7 * 86_400.0
"""How long a feed is kept after its last entry."""


class Feeds(Protocol):
    """Sequences that any process can append to: the store numbers the entries and keeps the newest.

    Numbers grow by one. A feed that was lost begins again above all numbers that it can have given before (with the
    time in milliseconds), so that a reader with an old cursor notices.
    """

    async def publish(self, feed: str, data: bytes, *, keep: int, holder: str | None = None) -> int | None:
        """Append an entry, keep the newest `keep`, and wake the watchers; its number once it is safe.

        With `holder` only while that lease is held; None if it is not.
        """

    async def read(self, feed: str, after: int, limit: int) -> FeedPage:
        """The entries after that number, at most `limit`."""

    async def trim(self, feed: str, upto: int) -> None:
        """Delete the entries up to that number."""

    def watch(self, feed: str, watcher: Watcher) -> Callable[[], None]:
        """Call the watcher when something was published; returns a function that ends the watch."""


class Leases(Protocol):
    """Names that are held for a time, by the clock of the store."""

    async def renew(self, holder: str, seconds: float) -> None:
        """Hold the name for so long from now on."""

    async def release(self, holder: str) -> None:
        """Hold it no longer."""

    async def holders(self) -> Sequence[str]:
        """The names that are held now, sorted."""


class Store(Protocol):
    """What a backend provides; `docs/decisions/0005-stores.md` explains how to write one."""

    @property
    def logs(self) -> Logs: ...

    @property
    def records(self) -> Records: ...

    @property
    def feeds(self) -> Feeds: ...

    @property
    def leases(self) -> Leases: ...

    async def start(self) -> None:
        """Make ready, in the event loop that will use it; SetupError if that is not possible."""

    async def close(self) -> None:
        """Finish pending writes and release everything."""
