"""The one thread that writes to the file, many jobs in one transaction.

Theory of operation. A transaction costs more than its contents, and there can be only one at a time. So all jobs that
wait when the thread is free are written in one transaction, and their results are returned once it is committed: a
single append takes one commit, a hundred share one. If a job fails, the transaction is rolled back and each job is
repeated in a transaction of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import sqlite3
import threading
import time
import weakref
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any, Final, TypeAlias, TypeVar

from msgspec import Struct

from pegboard.errors import StoreDown
from pegboard.stores.sqlite.database_file import LOCK_WAIT_SECONDS

_log = logging.getLogger("pegboard.stores")

T = TypeVar("T")
Topic: TypeAlias = int

_REPORT_SECONDS: Final = 60.0
_MAX_BATCH: Final = 512
_HINTS_KEPT: Final = 10_000
_LOCKED_SECONDS: Final = (0.0001, 0.0005)


class Transaction:
    """Executes the statements of jobs, and collects the topics to notify after the commit."""

    __slots__ = ("connection", "execute", "topics")

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        self.execute = connection.execute
        self.topics: set[Topic] = set()

    def notify(self, topic: Topic) -> None:
        """Notify the watchers of a topic in every process."""
        self.topics.add(topic)


Job: TypeAlias = Callable[[Transaction], T]


class _QueuedJob(Struct, eq=False):
    job: Job[Any]
    weight: int
    future: asyncio.Future[Any]
    result: Any = None
    problem: Exception | None = None


class WriterThread:
    """Runs jobs in the order they came, and calls `notify` in the event loop with the topics they touched.

    The thread does not refer to this object: it ends when the object is closed or collected.
    """

    def __init__(self, sender: str, limit: int, notify: Callable[[Topic], None]) -> None:
        self._sender = sender
        self._limit = limit
        self._notify = notify
        self._jobs: SimpleQueue[_QueuedJob | None] = SimpleQueue()
        self._weight = 0
        self._room = asyncio.Event()
        self._thread: threading.Thread | None = None
        weakref.finalize(self, self._jobs.put, None)

    def start(self, connection: sqlite3.Connection) -> None:
        loop = asyncio.get_running_loop()
        resolve = weakref.WeakMethod(self._resolve)

        def deliver(done: list[_QueuedJob], topics: set[Topic]) -> None:
            callback = resolve()
            if callback is not None:
                # If the loop is closed, no caller waits.
                with contextlib.suppress(RuntimeError):
                    loop.call_soon_threadsafe(callback, done, topics)

        batches = _BatchWriter(connection, self._sender, deliver)
        self._thread = threading.Thread(target=batches.work, args=(self._jobs,), name="pegboard-store", daemon=True)
        self._thread.start()

    async def close(self) -> None:
        """Run the queued jobs, and stop."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self._jobs.put(None)
            await asyncio.to_thread(thread.join)

    async def run(self, job: Job[T], weight: int = 0) -> T:
        """Run a job and return its result after the commit. Waits first while too many bytes are queued."""
        while self._weight and self._weight + weight > self._limit:
            self._room.clear()
            await self._room.wait()
        if self._thread is None:
            raise StoreDown("The store is not open")
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._weight += weight
        self._jobs.put(_QueuedJob(job, weight, future))
        return await future

    async def execute(self, statement: str, *values: str | float) -> None:
        """Run one statement."""
        await self.run(lambda transaction: transaction.execute(statement, values).close())

    def _resolve(self, done: list[_QueuedJob], topics: set[Topic]) -> None:
        for job in done:
            self._weight -= job.weight
            if job.future.done():
                continue
            if job.problem is None:
                job.future.set_result(job.result)
            else:
                job.future.set_exception(job.problem)
        self._room.set()
        for topic in topics:
            self._notify(topic)


class _BatchWriter:
    """The part of the writer that runs in its thread."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        sender: str,
        deliver: Callable[[list[_QueuedJob], set[Topic]], None],
    ) -> None:
        self._connection = connection
        self._sender = sender
        self._deliver = deliver
        self._hints_trimmed = 0
        self._logged = -_REPORT_SECONDS

    def work(self, queue: SimpleQueue[_QueuedJob | None]) -> None:
        # `_begin` decides how long to wait for other processes.
        self._connection.execute("PRAGMA busy_timeout = 0")
        ended = False
        while not ended:
            batch = [queue.get()]
            try:
                while len(batch) < _MAX_BATCH and batch[-1] is not None:
                    batch.append(queue.get_nowait())
            except Empty:
                pass
            ended = batch[-1] is None
            jobs = [job for job in batch if job is not None]
            if jobs:
                self._commit(jobs)
            # While the queue is empty, no reference here may keep the store alive.
            batch.clear()
            jobs.clear()
        self._connection.close()

    def _commit(self, jobs: list[_QueuedJob]) -> None:
        connection = self._connection
        transaction = Transaction(connection)
        try:
            _begin(connection)
            for job in jobs:
                job.result = job.job(transaction)
            self._write_hints(transaction)
            connection.execute("COMMIT")
        except Exception as problem:  # noqa: BLE001 — the caller of the job gets its exception
            _undo(connection)
            transaction.topics.clear()
            if len(jobs) > 1:
                for job in jobs:
                    self._commit([job])
                return
            jobs[0].problem = self._explain(problem)
        self._deliver(list(jobs), transaction.topics)

    def _explain(self, problem: Exception) -> Exception:
        """What the caller gets; the reason is logged now and then, not for every job."""
        if not isinstance(problem, sqlite3.Error):
            return problem
        now = time.monotonic()
        if now - self._logged >= _REPORT_SECONDS:
            self._logged = now
            _log.error("the store could not be written: %s", problem)
        return StoreDown("The store cannot be written; try again later", retry_after=5)

    def _write_hints(self, transaction: Transaction) -> None:
        last = 0
        for topic in transaction.topics:
            row = transaction.execute("INSERT INTO hints (topic, sender) VALUES (?, ?)", (topic, self._sender))
            last = row.lastrowid or 0
        if last > self._hints_trimmed + _HINTS_KEPT // 10:
            self._hints_trimmed = last
            transaction.execute("DELETE FROM hints WHERE id <= ?", (last - _HINTS_KEPT,))


def _begin(connection: sqlite3.Connection) -> None:
    """Wait until no other process writes; SQLite would wait too, but retries at ever longer intervals."""
    deadline = time.monotonic() + LOCK_WAIT_SECONDS
    while True:
        try:
            connection.execute("BEGIN IMMEDIATE")
            return
        except sqlite3.OperationalError as problem:
            if "locked" not in str(problem) or time.monotonic() > deadline:
                raise
            time.sleep(random.uniform(*_LOCKED_SECONDS))


def _undo(connection: sqlite3.Connection) -> None:
    try:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
    except sqlite3.Error:
        _log.exception("a transaction could not be rolled back")
