"""Records that are on disk before `put` returns.

Theory of operation. One thread writes. `put` adds a record to the pending ones and waits; the thread takes all pending
records, writes and syncs them together, and wakes their callers: the slower the disk, the larger the batches, and the
loop is never blocked. The number of pending records is limited; beyond it, `put` waits for room.

A crash can only tear records that were being written, for which no caller has been answered.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias

from pegboard.errors import DeclarationError

Waiter: TypeAlias = "asyncio.Future[None]"


class JournalSink(Protocol):
    """Where the thread of a journal writes."""

    def append(self, rows: Sequence[bytes]) -> None:
        """Write the rows and return when they are on disk; OSError, or SetupError if another user controls a file."""

    def close(self) -> None: ...


class Journal:
    """Records that wait to be written, at most `pending` of them."""

    def __init__(self, sink: JournalSink, pending: int = 4096) -> None:
        if pending < 1:
            raise DeclarationError(f"pending={pending}: must be at least 1")
        self._sink = sink
        self._limit = pending
        self._changed = threading.Condition()
        self._rows: list[bytes] = []
        self._waiters: list[Waiter] = []
        self._wanting_room: list[Waiter] = []
        self._thread: threading.Thread | None = None
        self._closing = False
        self._resting = False

    async def put(self, row: bytes) -> None:
        """Append a record; returns when it is on the disk, raises OSError or SetupError if it cannot be."""
        loop = asyncio.get_running_loop()
        while True:
            waiter = loop.create_future()
            with self._changed:
                room = len(self._rows) < self._limit
                if room:
                    self._add(row, waiter)
                else:
                    self._wanting_room.append(waiter)
            await waiter
            if room:
                return

    def close(self) -> None:
        """Write pending records and end the thread for good."""
        with self._changed:
            self._closing = True
        self.rest()

    def rest(self) -> None:
        """Write pending records and end the thread; the next record starts a new one."""
        thread = self.release()
        if thread is not None:
            thread.join()

    def release(self) -> threading.Thread | None:
        """The same without waiting for the thread, which is returned."""
        with self._changed:
            self._resting = self._thread is not None
            self._changed.notify()
            return self._thread

    def _add(self, row: bytes, waiter: Waiter) -> None:
        if self._closing:
            raise OSError("the journal is closed")
        self._rows.append(row)
        self._waiters.append(waiter)
        if self._thread is None:
            self._thread = threading.Thread(target=self._write, name="pegboard-audit", daemon=True)
            self._thread.start()
        self._changed.notify()

    def _write(self) -> None:
        while True:
            with self._changed:
                while not self._rows and not self._resting:
                    self._changed.wait()
                if not self._rows:
                    # Under the lock, so that a record added now finds that the file has been released.
                    self._thread, self._resting = None, False
                    self._sink.close()
                    return
                rows, self._rows = self._rows, []
                waiters, self._waiters = self._waiters, []
                room, self._wanting_room = self._wanting_room, []
            problem: BaseException | None = None
            try:
                self._sink.append(rows)
            except Exception as raised:  # noqa: BLE001 — whatever it is, those who wait have to hear it
                problem = raised
            _wake(waiters, problem)
            _wake(room, None)


def _wake(waiters: Sequence[Waiter], problem: BaseException | None) -> None:
    by_loop: dict[Any, list[Waiter]] = {}
    for waiter in waiters:
        by_loop.setdefault(waiter.get_loop(), []).append(waiter)
    for loop, group in by_loop.items():
        try:
            loop.call_soon_threadsafe(_resolve_waiters, group, problem)
        except RuntimeError:
            continue  # the loop is closed, so no caller waits for it


def _resolve_waiters(waiters: Sequence[Waiter], problem: BaseException | None) -> None:
    for waiter in waiters:
        if waiter.done():
            continue
        if problem is None:
            waiter.set_result(None)
        else:
            waiter.set_exception(problem)
