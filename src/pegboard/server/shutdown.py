"""Stops a server on SIGTERM and Ctrl+C, and ends a process that does not end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading
import time
from typing import Any, Final, Self

from pegboard import server

GRACE_SECONDS: Final = 2.0
_STEP_SECONDS: Final = 0.02
HAND_OVER_SECONDS: Final = 600.0
"""How long the calls of a version of a program may take to finish after a newer one was loaded."""


class ExitTimer:
    """Ends the process if it has not ended some time after it was stopped; calls may take `drain_seconds` of that time.

    A function that blocks the loop, or an author's thread that never returns, must not keep a stopped server alive.
    After `run` has returned, the rest is the author's own program, which may take its time.
    """

    def __init__(self, drain_seconds: float) -> None:
        self.drain_seconds = drain_seconds
        self._armed = False
        self.returned = False

    def arm(self) -> None:
        """Start the countdown; a second call has no effect."""
        if not self._armed:
            self._armed = True
            threading.Thread(target=self._watch, name="pegboard-exit-timer", daemon=True).start()

    def _watch(self) -> None:
        time.sleep(self.drain_seconds)
        _wait_in_steps(GRACE_SECONDS)
        if self.returned:
            threading.main_thread().join()
            # Time to exit with the code of the author's program.
            _wait_in_steps(GRACE_SECONDS)
        os._exit(0)


def _wait_in_steps(seconds: float) -> None:
    """Wait longer where steps take longer because the machine is busy, as does what has to end."""
    for _ in range(round(seconds / _STEP_SECONDS)):
        time.sleep(_STEP_SECONDS)


class NoExit(ExitTimer):
    """For a server in the author's own event loop, whose process is not ours to end."""

    def arm(self) -> None:
        pass


class Stop:
    """SIGTERM and Ctrl+C: the first one shuts down gracefully, the second one at once.

    A worker leaves the counting to its overseer.
    """

    def __init__(self, timer: ExitTimer, control: server.WorkerControl | None = None) -> None:
        self.asked = asyncio.Event()
        self.hurried = asyncio.Event()
        self.drain_seconds = timer.drain_seconds
        self.is_handed_over = False
        self._timer = timer
        self._control = control
        self._loop: asyncio.AbstractEventLoop | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        if self._control is not None:
            self._control.watch_orders(self._end, self.hurried.set, self._hand_over)
        for number in (signal.SIGTERM, signal.SIGINT) if self._control is None else (signal.SIGTERM,):
            # Only the main thread receives signals; otherwise the server is stopped from outside.
            with contextlib.suppress(ValueError):
                self._before[number] = signal.signal(number, self._signal)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def ask(self) -> None:
        """Shut down gracefully; at the second call, at once."""
        if self.asked.is_set() and self._control is None:
            self.hurried.set()
        self._end()

    def _end(self) -> None:
        self._timer.arm()
        if self.is_handed_over and self._loop is not None:
            # The calls of a version that was replaced had more time; now they have as much as all others.
            self._loop.call_later(self._timer.drain_seconds, self.hurried.set)
        self.asked.set()

    def _hand_over(self) -> None:
        self.is_handed_over = True
        self.drain_seconds = HAND_OVER_SECONDS
        self.asked.set()

    def _signal(self, _number: int, _frame: object) -> None:
        # Not left to the loop, which a tool may be blocking: the countdown starts now.
        self._timer.arm()
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self.ask)
