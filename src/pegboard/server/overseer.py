"""The process that binds the sockets, and starts and restarts the workers.

Theory of operation. The overseer loads the board, opens the listening sockets and forks; it serves nothing itself, so
only a signal ends it. Workers accept from sockets that it holds (`server/http/listener.py`): the port stays open
while workers come and go, and connections that wait when one dies are served by the next. Forked from a process that
has loaded everything, workers start in milliseconds, share its memory and have the same secret keys.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import selectors
import threading
import time
from collections.abc import Callable
from typing import Final

from msgspec import Struct

from pegboard.backoff import backoff
from pegboard.errors import SetupError
from pegboard.server.http.listener import WorkerSockets
from pegboard.server.worker_process import ParentSignals, WorkerControl, WorkerProcess

_log = logging.getLogger("pegboard")

_FIRST_WAIT_SECONDS: Final = 0.4
_LONGEST_WAIT_SECONDS: Final = 10.0
_STEADY_SECONDS: Final = 10.0


class _WorkerSlot(Struct, eq=False):
    """The slot of a worker, which is to be restarted at `due`."""

    number: int
    worker: WorkerProcess | None = None
    due: float = 0.0
    failures: int = 0


class Overseer:
    """Keeps a number of workers running until it is stopped; each runs `work` in its slot, and ends within
    `end_seconds`."""

    def __init__(
        self,
        count: int,
        work: Callable[[int, WorkerControl], None],
        doors: WorkerSockets,
        *,
        end_seconds: float,
        on_ready: Callable[[], object],
    ) -> None:
        self._places = [_WorkerSlot(number) for number in range(count)]
        self._work = work
        self._sockets = doors
        self._end_seconds = end_seconds
        self._on_ready = on_ready
        self._announced = False
        self._obeyed = 0
        self._closed = False
        self._deadline = 0.0
        self._selector = selectors.DefaultSelector()
        self._signals = ParentSignals(self._selector, "--workers", "use --workers 1, or several servers and a proxy")

    def run(self) -> None:
        """Start them, and return when all have ended; SetupError if they cannot start."""
        others = [thread.name for thread in threading.enumerate() if thread is not threading.current_thread()]
        if others:
            _log.warning("threads do not survive in workers: start %s when serving begins", ", ".join(others))
        try:
            with self._signals:
                self._oversee()
        finally:
            self._kill()
            self._selector.close()

    @property
    def _asked(self) -> int:
        return self._signals.stops

    def _oversee(self) -> None:
        gc.collect()
        # Existing objects stay shared: a garbage collection in a worker would write to each of them.
        gc.freeze()
        while True:
            self._reap_workers()
            self._forward_orders()
            if self._asked and not any(place.worker for place in self._places):
                return
            if not self._asked:
                for place in self._places:
                    if place.worker is None and place.due <= time.monotonic():
                        self._sockets.open(place.number)
                        self._start(place)
            for key, _ in self._selector.select(self._timeout_seconds()):
                if isinstance(key.data, WorkerProcess):
                    self._listen(key.data)
                else:
                    self._signals.clear()

    def _timeout_seconds(self) -> float | None:
        """How long to wait if nothing happens."""
        now = time.monotonic()
        if self._asked:
            return max(0.0, self._deadline - now)
        due = [place.due for place in self._places if place.worker is None]
        return max(0.0, min(due) - now) if due else None

    def _forward_orders(self) -> None:
        """Forward requests to stop, and kill the workers that ignore them."""
        while self._obeyed < self._asked:
            self._obeyed += 1
            if self._obeyed == 1:
                self._deadline = time.monotonic() + self._end_seconds
            for place in self._places:
                if place.worker is not None:
                    if self._obeyed == 1:
                        place.worker.drain()
                    else:
                        place.worker.hurry()
        if self._asked and not self._closed:
            left = [place.worker for place in self._places if place.worker is not None]
            if all(worker.drained for worker in left):
                self._closed = True
                for worker in left:
                    worker.release()
        if self._asked and time.monotonic() >= self._deadline:
            self._kill()

    # -- workers -----------------------------------------------------------------------------------------------------

    def _start(self, place: _WorkerSlot) -> None:
        worker = WorkerProcess.fork(lambda control: self._work(place.number, control), self._close_in_worker)
        place.worker = worker
        self._selector.register(worker.report, selectors.EVENT_READ, worker)

    def _close_in_worker(self) -> None:
        self._selector.close()
        self._signals.close()
        for other in self._places:
            if other.worker is not None:
                # Otherwise its end would not be seen while we live.
                other.worker.close()

    def _listen(self, worker: WorkerProcess) -> None:
        if not worker.listen():
            self._selector.unregister(worker.report)
            return
        if worker.drained and not self._asked:
            # Someone has stopped this worker alone.
            worker.release()
        if not self._announced and all(place.worker is not None and place.worker.ready for place in self._places):
            self._announced = True
            self._on_ready()

    def _reap_workers(self) -> None:
        """Handle workers that have ended."""
        for place in self._places:
            worker = place.worker
            code = None if worker is None else worker.poll()
            if worker is None or code is None:
                continue
            place.worker = None
            self._forget(worker)
            if self._asked:
                # New connections should go to a worker that still responds.
                self._sockets.give_up(place.number)
            else:
                self._schedule_restart(place, worker, code)

    def _schedule_restart(self, place: _WorkerSlot, worker: WorkerProcess, code: int) -> None:
        """Replace a worker that ended: at once, then after growing pauses."""
        how = f"by signal {-code}" if code < 0 else f"with code {code}"
        if not self._announced and not worker.ready:
            raise SetupError(worker.said or f"a worker ended {how} before it could serve")
        now = time.monotonic()
        place.failures = 0 if now - worker.began > _STEADY_SECONDS else place.failures + 1
        wait = backoff(place.failures - 1, _FIRST_WAIT_SECONDS, _LONGEST_WAIT_SECONDS)
        place.due = now + wait
        if wait:
            self._sockets.give_up(place.number)
        reason = f": {worker.said}" if worker.said else ""
        _log.error("worker %d ended %s%s; another starts in %.1f s", worker.pid, how, reason, wait)

    def _forget(self, worker: WorkerProcess) -> None:
        with contextlib.suppress(KeyError):
            self._selector.unregister(worker.report)
        worker.close()

    def _kill(self) -> None:
        for place in self._places:
            worker, place.worker = place.worker, None
            if worker is not None:
                worker.kill()
                self._forget(worker)
