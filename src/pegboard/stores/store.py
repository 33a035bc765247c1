"""The contract of every store: logs, records, feeds and leases.

Every operation is atomic, also between processes; when it has returned, its effect is stored. Watchers get hints: a
hint only means that something may have changed, and it can be lost. A waiting process therefore watches first, then
reads, and reads again after a while even without a hint.

A store that cannot be reached or written raises StoreDown. The operation may have succeeded nevertheless: a process
that then finds its number taken reads the log to see which process wrote it.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import Final, Protocol, TypeAlias

from msgspec import Struct

LogName: TypeAlias = tuple[str, str]
"""The session that the log belongs to, and the stream of that session."""

Watcher: TypeAlias = Callable[[], object]
"""Called in the event loop in which the watch began; it must return at once, and read later."""


async def wait_for_hint(hint: asyncio.Event, seconds: float) -> None:
    """Wait for a hint and clear it; return after `seconds` without one, since a hint can be lost."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await hint.wait()
    hint.clear()


class LogEntry(Struct, frozen=True):
    """An entry of a log, with its number."""

    seq: int
    data: bytes


class LogPage(Struct, frozen=True):
    """Some of the entries after a cursor, in order; missing numbers were trimmed.

    `last` is the newest number in the log, `more` whether entries follow that did not fit, `ended` whether the log is
    complete. `about` is the data that was passed to `open`.
    """

    entries: tuple[LogEntry, ...]
    last: int
    more: bool
    ended: bool
    about: bytes


class Logs(Protocol):
    """Logs whose entries are numbered 1, 2, 3 …, written by one owner and read by any process at any pace.

    A log has limits in entries and bytes, and so have all logs of one session together. At a limit, the oldest entries
    go first, except those to be kept and the last one of an ended log; then whole logs, the earliest ended first. Ended
    logs are kept for a while, and only some of them.
    """

    async def open(self, log: LogName, about: bytes = b"") -> bool:
        """Create a log; False if the session has the maximum number of logs, or one of that name."""

    async def append(self, log: LogName, seq: int, data: bytes, *, keep: bool = False, end: bool = False) -> bool:
        """Add the next entry, and notify the watchers; True once it is stored.

        Returns False and adds nothing if the number is not the next one, the log has ended, or it does not exist:
        another process has written to it, or it was removed. A caller that is cancelled while it waits does not know
        whether the entry was added, so an owner that continues after a cancellation shields this.
        """

    async def release(self, log: LogName, seq: int) -> None:
        """Allow an entry that was to be kept to be trimmed like others."""

    async def read(self, log: LogName, after: int, limit: int) -> LogPage | None:
        """The entries after that number, at most `limit`; None if the log does not exist."""

    async def drop(self, session: str) -> None:
        """Delete all logs of a session."""

    async def touch(self, session: str) -> None:
        """Keep the logs of a session that is still used.

        Processes that share a store can die without cleaning up: logs that have not been written to or touched for
        twice the lifetime of a session are deleted.
        """

    def watch(self, log: LogName, watcher: Watcher) -> Callable[[], None]:
        """Call the watcher after an append, or when the log was removed; returns a function that ends the watch."""


class StoredRecord(Struct, frozen=True):
    """A value and the number of times it has been written."""

    value: bytes
    version: int


class Records(Protocol):
    """Values by key, with a time to live in seconds or unlimited."""

    async def get(self, key: str) -> StoredRecord | None:
        """The value; None if it does not exist or has expired."""

    async def put(
        self, key: str, value: bytes, *, ttl: float | None = None, if_version: int | None = None
    ) -> int | None:
        """Write a value and return its version; its time to live starts again.

        With `if_version`, write only if that is the current version (0: no value yet), and return None otherwise.
        """

    async def add(self, key: str, amount: int, *, ttl: float | None = None) -> int:
        """Add to a counter and return the sum; the time to live starts with the first addition."""

    async def delete(self, key: str) -> bool:
        """Delete a value; returns whether there was one."""


class FeedPage(Struct, frozen=True):
    """Some of the entries after a cursor, in order and without a gap.

    `last` is the newest number in the feed, 0 if it is empty; `more` whether entries follow that did not fit. `lost`
    means that entries after the cursor were deleted, or that the cursor belongs to an earlier feed of this name; the
    page then begins with the oldest entry.
    """

    entries: tuple[LogEntry, ...]
    last: int
    more: bool
    lost: bool


FEED_SECONDS: Final = 7 * 86_400.0
"""How long a feed is kept after its last entry."""


class Feeds(Protocol):
    """Sequences that any process can append to: the store numbers the entries and keeps the newest.

    Numbers grow by one. A feed that was lost begins again above all earlier numbers (with the time in milliseconds), so
    that a reader with an old cursor notices.
    """

    async def publish(self, feed: str, data: bytes, *, keep: int, holder: str | None = None) -> int | None:
        """Append an entry, keep the newest `keep`, and notify the watchers; returns its number once it is stored.

        With `holder`, append only while that lease is held, and return None otherwise.
        """

    async def read(self, feed: str, after: int, limit: int) -> FeedPage:
        """The entries after that number, at most `limit`."""

    async def trim(self, feed: str, upto: int) -> None:
        """Delete the entries up to that number."""

    def watch(self, feed: str, watcher: Watcher) -> Callable[[], None]:
        """Call the watcher after each entry; returns a function that ends the watch."""


class Leases(Protocol):
    """Names that are held for a limited time, by the clock of the store."""

    async def renew(self, holder: str, seconds: float) -> None:
        """Hold the name for that time from now on."""

    async def release(self, holder: str) -> None:
        """Give up the name."""

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
        """Open the store in the event loop that will use it; SetupError if that is not possible."""

    async def close(self) -> None:
        """Finish pending writes and release everything."""


def digest(secret: str) -> str:
    """The digest that replaces a session id, or a key that contains one, in a store or a message.

    A session id is a secret: anyone who knows it can act as its client. A digest is enough to find the data of a session,
    and useless for opening it. Ids are random, so no salt is needed.
    """
    return blake2b(secret.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def new_worker() -> str:
    """A unique random name for this process."""
    return secrets.token_hex(6)
