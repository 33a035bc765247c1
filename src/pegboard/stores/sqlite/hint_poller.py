"""Hints between the processes that share a SQLite file.

Theory of operation. Every write records the topics it touches in a table, in the same transaction. While a process
waits for others, it checks every 25 ms whether SQLite counted a commit, which reads one number in shared memory; only
then does it read the topics. A process that waits for nothing does not poll.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import weakref
from collections.abc import Callable
from hashlib import blake2b
from typing import Final

from pegboard.background_tasks import end_tasks
from pegboard.errors import StoreDown
from pegboard.stores.memory import Watchers
from pegboard.stores.sqlite.reader_thread import ReaderThread
from pegboard.stores.sqlite.writer_thread import Topic
from pegboard.stores.store import Watcher

_log = logging.getLogger("pegboard.stores")

_POLL_SECONDS: Final = 0.025


def topic_number(kind: str, name: str) -> Topic:
    """The number that stands for a topic in the file."""
    text = f"{kind}:{name}".encode("utf-8", "surrogatepass")
    return int.from_bytes(blake2b(text, digest_size=8).digest(), "big", signed=True)


class HintPoller:
    """Calls watchers for the writes of this process, and polls for those of others while a watcher needs them."""

    def __init__(self, me: str, reader: ReaderThread) -> None:
        self._me = me
        self._reader = reader
        self._here = Watchers[Topic]()
        self._anywhere = Watchers[Topic]()
        self._connection: sqlite3.Connection | None = None
        self._version = 0
        self._seen = 0
        self._polling: asyncio.Task[None] | None = None

    def start(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        weakref.finalize(self, connection.close)

    async def close(self) -> None:
        await end_tasks(self._polling)
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    @property
    def is_polling(self) -> bool:
        """Whether a watcher waits for another process."""
        return self._polling is not None and not self._polling.done()

    def notify_local(self, topic: Topic) -> None:
        """Call the watchers of this process."""
        self._here.notify(topic)
        self._anywhere.notify(topic)

    def watch(self, topic: Topic, watcher: Watcher, *, foreign: bool = True) -> Callable[[], None]:
        """Call the watcher at each hint; `foreign` if other processes may give it."""
        if not foreign:
            return self._here.watch(topic, watcher)
        end = self._anywhere.watch(topic, watcher)
        self._look()
        return end

    def _look(self) -> None:
        if self.is_polling or self._connection is None:
            return
        self._version = self._committed()
        self._seen = self._connection.execute("SELECT coalesce(max(id), 0) FROM hints").fetchone()[0]
        self._polling = asyncio.get_running_loop().create_task(self._poll_forever())

    def _committed(self) -> int:
        """A number that changes when any other connection commits."""
        assert self._connection is not None  # noqa: S101 — polling starts after the store is open
        version: int = self._connection.execute("PRAGMA data_version").fetchone()[0]
        return version

    async def _poll_forever(self) -> None:
        while self._anywhere.topics:
            await asyncio.sleep(_POLL_SECONDS)
            try:
                version = self._committed()
                if version == self._version:
                    continue
                topics = await self._reader.run(self._read)
            except (sqlite3.Error, StoreDown) as problem:
                _log.warning("hints of other processes could not be read: %s", problem)
                continue
            # The version from before the hints were read, so that later commits are seen the next time.
            self._version = version
            for topic in topics:
                self._anywhere.notify(topic)

    def _read(self, connection: sqlite3.Connection) -> list[Topic]:
        first, last = connection.execute("SELECT coalesce(min(id), 1), coalesce(max(id), 0) FROM hints").fetchone()
        after, self._seen = self._seen, last
        if after < first - 1:
            # Some hints were trimmed before they were read; they may have been about any topic.
            return list(self._anywhere.topics)
        rows = connection.execute("SELECT DISTINCT topic FROM hints WHERE id > ? AND sender <> ?", (after, self._me))
        return [topic for (topic,) in rows]
