"""A forked process that serves: the orders that it gets, and what it reports.

Each worker has a pair of pipes. One brings orders, and its end tells the worker that its parent is gone. The other reports
that the worker is ready, or why it cannot start. Signals to a whole process group, such as Ctrl+C, reach the workers
too; they ignore them and wait for an order.
"""

from __future__ import annotations

import asyncio
import contextlib
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
from typing import Any, Final, NoReturn, Self

from pegboard.errors import SetupError

_DRAIN: Final = b"d"
_STOP_NOW: Final = b"h"
_CLOSE: Final = b"c"
_HAND_OVER: Final = b"o"
_READY: Final = b"\x01"
_DRAINED: Final = b"\x02"


class WorkerControl:
    """The connection of a worker to its parent."""

    def __init__(self, orders: int, report: int) -> None:
        self._orders = orders
        self._report = report
        self._released = asyncio.Event()

    def watch_orders(
        self, drain: Callable[[], object], hurry: Callable[[], object], hand_over: Callable[[], object]
    ) -> None:
        """Execute orders in the running loop; if the parent is gone, stop."""
        loop = asyncio.get_running_loop()

        def read() -> None:
            orders = os.read(self._orders, 16)
            if not orders:
                loop.remove_reader(self._orders)
            if _HAND_OVER in orders:
                hand_over()
            if orders.strip(_HAND_OVER + _CLOSE) or not orders:
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

    def say(self, text: str) -> None:
        """Report a text: why it cannot serve."""
        self._write_report(text.encode())

    def _write_report(self, what: bytes) -> None:
        with contextlib.suppress(OSError):
            while what:
                what = what[os.write(self._report, what) :]


class WorkerProcess:
    """A worker as its parent sees it; `report` is the end of a pipe, to be read with `listen` when it is readable."""

    def __init__(self, pid: int, orders: int, report: int) -> None:
        self.pid = pid
        self.report = report
        self.began = time.monotonic()
        self.ready = False
        self.drained = False
        self._orders = orders
        self._said = b""

    @classmethod
    def fork(cls, work: Callable[[WorkerControl], None], close: Callable[[], object]) -> Self:
        """Run `work` in a new process, which first closes what it has of its parent."""
        orders, give = os.pipe()
        hear, report = os.pipe()
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
        pid = os.fork()
        if pid == 0:
            os.close(give)
            os.close(hear)
            _run_worker(work, WorkerControl(orders, report), close)
        os.close(orders)
        os.close(report)
        return cls(pid, give, hear)

    @property
    def said(self) -> str:
        return self._said.decode("utf-8", "replace")

    def listen(self) -> bool:
        """Read what the worker reports; False if it has ended."""
        report = os.read(self.report, 65536)
        self._note(report)
        return bool(report)

    def drain(self) -> None:
        """Let it finish its calls and end."""
        self._order(_DRAIN)

    def hurry(self) -> None:
        """Let it cancel its calls and end."""
        self._order(_STOP_NOW)

    def hand_over(self) -> None:
        """Let it leave new connections to its successor, finish its calls and end."""
        self._order(_HAND_OVER)

    def release(self) -> None:
        """No other worker has calls any more: it may close its connections."""
        self._order(_CLOSE)

    def poll(self) -> int | None:
        """Its exit code if it has ended, negative for a signal; what it reported last is read."""
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        if pid == 0:
            return None
        os.set_blocking(self.report, False)
        with contextlib.suppress(BlockingIOError):
            while self.listen():
                pass
        return os.waitstatus_to_exitcode(status)

    def kill(self) -> None:
        """End it at once, and wait until it has ended."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)

    def close(self) -> None:
        """Close the pipes."""
        os.close(self.report)
        os.close(self._orders)

    def _note(self, report: bytes) -> None:
        self.ready = self.ready or _READY in report
        self.drained = self.drained or _DRAINED in report
        self._said += report.replace(_READY, b"").replace(_DRAINED, b"")

    def _order(self, order: bytes) -> None:
        with contextlib.suppress(OSError):
            os.write(self._orders, order)


def _run_worker(work: Callable[[WorkerControl], None], control: WorkerControl, close: Callable[[], object]) -> NoReturn:
    """The rest of this process's life."""
    code = 1
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        # A terminal sends it to all processes, and the parent forwards it.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        close()
        work(control)
        code = 0
    except SetupError as problem:
        control.say(str(problem))
        code = 2
    except BaseException:  # noqa: BLE001 — nothing of a worker may go on in the program that its parent runs
        traceback.print_exc()
    finally:
        logging.shutdown()
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        os._exit(code)


class ParentSignals:
    """The signals of a process with workers: they end the wait of its selector, and requests to stop are counted."""

    def __init__(self, selector: selectors.BaseSelector, flag: str, instead: str) -> None:
        if not hasattr(os, "fork"):
            raise SetupError(f"{flag} needs a system with fork, such as Linux or macOS: {instead}")
        if threading.current_thread() is not threading.main_thread():
            raise SetupError(f"{flag} needs the main thread, which alone can take signals: {instead}")
        self.stops = 0
        self._alarm, self._wakeup = socket.socketpair()
        for end in (self._alarm, self._wakeup):
            end.setblocking(False)
        self._before: dict[int, Any] = {}
        self._woken = -1
        selector.register(self._alarm, selectors.EVENT_READ)

    def __enter__(self) -> Self:
        self._woken = signal.set_wakeup_fd(self._wakeup.fileno(), warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD):
            self._before[number] = signal.signal(number, self._signal)
        return self

    def __exit__(self, *_: object) -> None:
        signal.set_wakeup_fd(self._woken)
        for taken, handler in self._before.items():
            signal.signal(taken, handler)
        self.close()

    def clear(self) -> None:
        """Read what woke the selector."""
        with contextlib.suppress(BlockingIOError):
            self._alarm.recv(4096)

    def close(self) -> None:
        self._alarm.close()
        self._wakeup.close()

    def _signal(self, number: int, _frame: object) -> None:
        if number != signal.SIGCHLD:
            self.stops += 1
