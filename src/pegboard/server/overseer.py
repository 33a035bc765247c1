"""The process that binds the sockets, and starts and restarts the workers.

Theory of operation. The overseer loads the board, opens the listening sockets and forks; it serves nothing itself, so
only a signal ends it. Workers accept from sockets that it holds (`server/http/listener.py`): the port stays open
while workers come and go, and connections that wait when one dies are served by the next. Forked from a process that
has loaded everything, workers start in milliseconds, share its memory and have the same secret keys.

Each worker has a pair of pipes. One brings commands, and its end tells the worker that the overseer is gone. The other
reports that the worker is ready, or why it cannot start. Signals to a whole process group, such as Ctrl+C, reach the
workers too; they ignore them and wait for the overseer's command.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import selectors
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any, Final, NoReturn

from msgspec import Struct

from pegboard.backoff import backoff
from pegboard.errors import SetupError
from pegboard.server.http.listener import WorkerSockets

_log = logging.getLogger("pegboard")

_DRAIN: Final = b"d"
_STOP_NOW: Final = b"h"
_CLOSE: Final = b"c"
_READY: Final = b"\x01"
_DRAINED: Final = b"\x02"
_FIRST_WAIT_SECONDS: Final = 0.4
_LONGEST_WAIT_SECONDS: Final = 10.0
_STEADY_SECONDS: Final = 10.0


class WorkerControl:
    """The connection of a worker to its overseer."""

    def __init__(self, orders: int, report: int) -> None:
        self._orders = orders
        self._report = report
        self._released = asyncio.Event()

    def watch_orders(self, drain: Callable[[], object], hurry: Callable[[], object]) -> None:
        """Execute orders in the running loop; if the overseer is gone, stop."""
        loop = asyncio.get_running_loop()

        def read() -> None:
            orders = os.read(self._orders, 16)
            if not orders:
                loop.remove_reader(self._orders)
            drain()
            if _STOP_NOW in orders:
                hurry()
            if not orders or _STOP_NOW in orders or _CLOSE in orders:
                self._released.set()

        loop.add_reader(self._orders, read)

    def ready(self) -> None:
        """Report that this worker is serving."""
        self._write_report(_READY)

    async def wait_for_others(self, seconds: float) -> None:
        """Report that no calls are running here, and wait, up to a limit, until none are running elsewhere.

        Calls elsewhere may wait for messages that arrive here, such as answers to their questions.
        """
        self._write_report(_DRAINED)
        try:
            await asyncio.wait_for(self._released.wait(), seconds)
        except TimeoutError:
            pass

    def fail(self, reason: str) -> None:
        """Report why it cannot serve."""
        self._write_report(reason.encode())

    def _write_report(self, what: bytes) -> None:
        with contextlib.suppress(OSError):
            os.write(self._report, what)


class _WorkerProcess(Struct, eq=False):
    pid: int
    orders: int
    report: int
    began: float
    ready: bool = False
    drained: bool = False
    said: bytes = b""


class _WorkerSlot(Struct, eq=False):
    """The slot of a worker, which is to be restarted at `due`."""

    number: int
    worker: _WorkerProcess | None = None
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
        if not hasattr(os, "fork"):
            raise SetupError("--workers needs a system with fork: use --workers 1, or several servers and a proxy")
        if threading.current_thread() is not threading.main_thread():
            raise SetupError("--workers needs the main thread, which alone can take signals: use workers=1 here")
        self._places = [_WorkerSlot(number) for number in range(count)]
        self._work = work
        self._sockets = doors
        self._end_seconds = end_seconds
        self._on_ready = on_ready
        self._announced = False
        self._asked = 0
        self._obeyed = 0
        self._closed = False
        self._deadline = 0.0
        self._selector = selectors.DefaultSelector()
        self._alarm, self._wakeup = socket.socketpair()

    def run(self) -> None:
        """Start them, and return when all have ended; SetupError if they cannot start."""
        others = [thread.name for thread in threading.enumerate() if thread is not threading.current_thread()]
        if others:
            _log.warning("threads do not survive in workers: start %s when serving begins", ", ".join(others))
        for end in (self._alarm, self._wakeup):
            end.setblocking(False)
        self._selector.register(self._alarm, selectors.EVENT_READ)
        before: dict[int, Any] = {}
        woken = signal.set_wakeup_fd(self._wakeup.fileno(), warn_on_full_buffer=False)
        try:
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD):
                before[number] = signal.signal(number, self._signal)
            self._oversee()
        finally:
            self._kill()
            signal.set_wakeup_fd(woken)
            for taken, handler in before.items():
                signal.signal(taken, handler)
            self._selector.close()
            self._alarm.close()
            self._wakeup.close()

    def _signal(self, number: int, _frame: object) -> None:
        if number != signal.SIGCHLD:
            self._asked += 1

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
                        place.worker = self._start(place.number)
            for key, _ in self._selector.select(self._timeout_seconds()):
                if isinstance(key.data, _WorkerProcess):
                    self._listen(key.data)
                else:
                    with contextlib.suppress(BlockingIOError):
                        self._alarm.recv(4096)

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
                    self._order(place.worker, _DRAIN if self._obeyed == 1 else _STOP_NOW)
        if self._asked and not self._closed:
            left = [place.worker for place in self._places if place.worker is not None]
            if all(worker.drained for worker in left):
                self._closed = True
                for worker in left:
                    self._order(worker, _CLOSE)
        if self._asked and time.monotonic() >= self._deadline:
            self._kill()

    # -- workers -----------------------------------------------------------------------------------------------------

    def _start(self, place: int) -> _WorkerProcess:
        orders, give = os.pipe()
        hear, report = os.pipe()
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
        pid = os.fork()
        if pid == 0:
            os.close(give)
            os.close(hear)
            self._run_worker(place, WorkerControl(orders, report))
        os.close(orders)
        os.close(report)
        worker = _WorkerProcess(pid, give, hear, time.monotonic())
        self._selector.register(hear, selectors.EVENT_READ, worker)
        return worker

    def _run_worker(self, place: int, control: WorkerControl) -> NoReturn:
        """The rest of this process's life."""
        code = 1
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            # A terminal sends it to all processes, and the overseer forwards it.
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            self._selector.close()
            self._alarm.close()
            self._wakeup.close()
            for other in self._places:
                if other.worker is not None:
                    # Otherwise its end would not be seen while we live.
                    os.close(other.worker.orders)
                    os.close(other.worker.report)
            self._work(place, control)
            code = 0
        except SetupError as problem:
            control.fail(str(problem))
            code = 2
        except BaseException:  # noqa: BLE001 — nothing of a worker may go on in the program that the overseer runs
            traceback.print_exc()
        finally:
            logging.shutdown()
            for stream in (sys.stdout, sys.stderr):
                with contextlib.suppress(Exception):
                    stream.flush()
            os._exit(code)

    def _listen(self, worker: _WorkerProcess) -> None:
        report = os.read(worker.report, 65536)
        if not report:
            self._selector.unregister(worker.report)
            return
        self._note(worker, report)
        if worker.drained and not self._asked:
            # Someone has stopped this worker alone.
            self._order(worker, _CLOSE)
        if not self._announced and all(place.worker is not None and place.worker.ready for place in self._places):
            self._announced = True
            self._on_ready()

    def _note(self, worker: _WorkerProcess, report: bytes) -> None:
        worker.ready = worker.ready or _READY in report
        worker.drained = worker.drained or _DRAINED in report
        worker.said += report.replace(_READY, b"").replace(_DRAINED, b"")

    def _order(self, worker: _WorkerProcess, order: bytes) -> None:
        with contextlib.suppress(OSError):
            os.write(worker.orders, order)

    def _reap_workers(self) -> None:
        """Handle workers that have ended."""
        for place in self._places:
            worker = place.worker
            if worker is None:
                continue
            pid, status = os.waitpid(worker.pid, os.WNOHANG)
            if pid == 0:
                continue
            with contextlib.suppress(BlockingIOError):
                os.set_blocking(worker.report, False)
                self._note(worker, os.read(worker.report, 65536))
            place.worker = None
            self._forget(worker)
            if self._asked:
                # New connections should go to a worker that still responds.
                self._sockets.give_up(place.number)
            else:
                self._schedule_restart(place, worker, os.waitstatus_to_exitcode(status))

    def _schedule_restart(self, place: _WorkerSlot, worker: _WorkerProcess, code: int) -> None:
        """Replace a worker that ended: at once, then after growing pauses."""
        how = f"by signal {-code}" if code < 0 else f"with code {code}"
        if not self._announced and not worker.ready:
            raise SetupError(worker.said.decode() or f"a worker ended {how} before it could serve")
        now = time.monotonic()
        place.failures = 0 if now - worker.began > _STEADY_SECONDS else place.failures + 1
        wait = backoff(place.failures - 1, _FIRST_WAIT_SECONDS, _LONGEST_WAIT_SECONDS)
        place.due = now + wait
        if wait:
            self._sockets.give_up(place.number)
        reason = f": {worker.said.decode()}" if worker.said else ""
        _log.error("worker %d ended %s%s; another starts in %.1f s", worker.pid, how, reason, wait)

    def _forget(self, worker: _WorkerProcess) -> None:
        with contextlib.suppress(KeyError):
            self._selector.unregister(worker.report)
        os.close(worker.report)
        os.close(worker.orders)

    def _kill(self) -> None:
        for place in self._places:
            worker, place.worker = place.worker, None
            if worker is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(worker.pid, signal.SIGKILL)
                os.waitpid(worker.pid, 0)
                self._forget(worker)
