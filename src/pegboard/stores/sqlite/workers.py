"""Heartbeats and inboxes of the processes that share a SQLite file."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Callable, Sequence
from typing import Final

from pegboard.errors import StoreDown
from pegboard.limits import Limits
from pegboard.stores.memory import MemoryInbox
from pegboard.stores.sqlite.hints import HintWatcher, topic_number
from pegboard.stores.sqlite.reader_thread import ReaderThread
from pegboard.stores.sqlite.writer_thread import Transaction, WriterThread
from pegboard.stores.store import Delivery, Receiver

_log = logging.getLogger("pegboard.stores")

_MAX_BATCH: Final = 100


class SqliteWorkers:
    """Heartbeats and inboxes as rows."""

    def __init__(
        self,
        me: str,
        limits: Limits,
        writer: WriterThread,
        reader: ReaderThread,
        hint_watcher: HintWatcher,
        clock: Callable[[], float],
    ) -> None:
        self.me = me
        self._limits = limits
        self._writer = writer
        self._reader = reader
        self._hint_watcher = hint_watcher
        self._clock = clock
        self._inbox = MemoryInbox(limits.worker_messages)
        self._came = asyncio.Event()
        self._heard = 0
        self._fetching: asyncio.Task[None] | None = None

    async def close(self) -> None:
        if self._fetching is not None:
            self._fetching.cancel()
            await asyncio.wait([self._fetching])

    async def beat(self) -> None:
        def write(transaction: Transaction) -> None:
            now = self._clock()
            until = now + self._limits.worker_seconds
            transaction.execute("INSERT OR REPLACE INTO workers VALUES (?, ?)", (self.me, until))
            # Not at once: one that was held up beats again, and finds what it was told meanwhile.
            forgotten = (now - 10 * self._limits.worker_seconds,)
            transaction.execute("DELETE FROM workers WHERE until < ?", forgotten)
            transaction.execute("DELETE FROM inbox WHERE worker NOT IN (SELECT name FROM workers)")

        await self._writer.run(write)

    async def leave(self) -> None:
        def write(transaction: Transaction) -> None:
            transaction.execute("DELETE FROM workers WHERE name = ?", (self.me,))
            transaction.execute("DELETE FROM inbox WHERE worker = ?", (self.me,))

        await self._writer.run(write)
        self._inbox.clear()

    async def alive(self, worker: str) -> bool:
        return worker in await self.living()

    async def living(self) -> Sequence[str]:
        now = self._clock()

        def read(connection: sqlite3.Connection) -> list[str]:
            rows = connection.execute("SELECT name FROM workers WHERE until > ? ORDER BY name", (now,))
            return [name for (name,) in rows]

        return await self._reader.run(read)

    async def send(self, worker: str, message: bytes) -> Delivery:
        def write(transaction: Transaction) -> Delivery:
            where = worker, self._clock()
            if transaction.execute("SELECT 1 FROM workers WHERE name = ? AND until > ?", where).fetchone() is None:
                return "gone"
            waiting = transaction.execute("SELECT count(*) FROM inbox WHERE worker = ?", (worker,)).fetchone()[0]
            over = waiting + 1 - self._limits.worker_messages
            if over > 0:
                transaction.execute(
                    "DELETE FROM inbox WHERE id IN (SELECT id FROM inbox WHERE worker = ? ORDER BY id LIMIT ?)",
                    (worker, over),
                )
            transaction.execute("INSERT INTO inbox (worker, data) VALUES (?, ?)", (worker, message))
            transaction.notify(topic_number("inbox", worker))
            return "full" if over > 0 else "sent"

        return await self._writer.run(write, len(message))

    def receive(self, receiver: Receiver) -> Callable[[], None]:
        end_inbox = self._inbox.receive(receiver)
        end_watch = self._hint_watcher.watch(topic_number("inbox", self.me), self._came.set)
        self._came.set()
        if self._fetching is None:
            self._fetching = asyncio.get_running_loop().create_task(self._fetch())

        def end() -> None:
            end_watch()
            end_inbox()

        return end

    async def _fetch(self) -> None:
        while True:
            await self._came.wait()
            self._came.clear()
            try:
                while rows := await self._reader.run(self._read):
                    for number, message in rows:
                        self._heard = number
                        self._take(message)
                    await self._writer.run(self._forget)
            except StoreDown as problem:
                _log.warning("the inbox of this process could not be read: %s", problem)

    def _take(self, message: bytes) -> None:
        try:
            self._inbox.put(message)
        except Exception:  # noqa: BLE001 — one message that cannot be taken must not stop the next
            _log.exception("a message of another process could not be taken")

    def _read(self, connection: sqlite3.Connection) -> list[tuple[int, bytes]]:
        what = "SELECT id, data FROM inbox WHERE worker = ? AND id > ? ORDER BY id LIMIT ?"
        return connection.execute(what, (self.me, self._heard, _MAX_BATCH)).fetchall()

    def _forget(self, transaction: Transaction) -> None:
        transaction.execute("DELETE FROM inbox WHERE worker = ? AND id <= ?", (self.me, self._heard))
