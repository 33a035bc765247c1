"""Fails a test in which a peer's input held the event loop: one callback used more CPU time than 100 KB may cost.

CPU time and not wall time, because the cores of a test machine are shared. Collections of garbage are subtracted, and so
are the steps of the test's own tasks. Import `no_stalls` into a module of tests with hostile input; there it is always on.
Servers in processes of their own have their watchdog, and `tests/child.py` reads its reports.
"""

from __future__ import annotations

import asyncio
import gc
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self, TypeVar

import pytest

T = TypeVar("T")

BOUND = 0.1
"""Seconds of CPU time for one callback, for each 100 KB that a peer sends."""
BOUND_BYTES = 100_000
TESTS = str(Path(__file__).parent)

_REPORT = re.compile(r"the event loop was blocked for .*\(busy; ([\d.]+) s of CPU\).*")


class Meter:
    """Measures every callback of every asyncio loop in this thread: `longest` is the most CPU time that one took."""

    def __init__(self) -> None:
        self.longest = 0.0
        self.what = ""
        self._collecting = 0.0
        self._collected = 0.0

    def __enter__(self) -> Self:
        self._run = run = asyncio.Handle._run
        meter = self

        def measured(handle: asyncio.Handle) -> None:
            began, collected = time.thread_time(), meter._collected
            run(handle)
            took = time.thread_time() - began - (meter._collected - collected)
            if took > meter.longest and not _is_of_a_test(handle):
                meter.longest, meter.what = took, repr(handle)

        asyncio.Handle._run = measured  # type: ignore[method-assign]
        gc.callbacks.append(self._collect)
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.Handle._run = self._run  # type: ignore[method-assign]
        gc.callbacks.remove(self._collect)

    def _collect(self, phase: str, _about: dict[str, int]) -> None:
        if phase == "start":
            self._collecting = time.thread_time()
        else:
            self._collected += time.thread_time() - self._collecting


def _is_of_a_test(handle: asyncio.Handle) -> bool:
    """Whether this was a step of a task whose coroutine is a test's."""
    callback: Any = handle._callback  # type: ignore[attr-defined]
    task = getattr(callback, "__self__", None)
    code = getattr(task.get_coro(), "cr_code", None) if isinstance(task, asyncio.Task) else None
    return code is not None and code.co_filename.startswith(TESTS)


def sending(size: int) -> Callable[[T], T]:
    """A test whose peer sends so many bytes, where that is more than 100 KB."""

    def mark(test: T) -> T:
        test.sent_bytes = size  # type: ignore[attr-defined]
        return test

    return mark


@pytest.fixture(autouse=True)
def no_stalls(request: pytest.FixtureRequest) -> Iterator[None]:
    """No callback of an event loop uses more CPU time than the bound."""
    bound = BOUND * max(1.0, getattr(request.function, "sent_bytes", 0) / BOUND_BYTES)
    with Meter() as meter:
        yield
    assert meter.longest < bound, f"{meter.what} held the event loop for {meter.longest:.3f} s of CPU time"


def reported_stalls(said: str, over: float = 0.0) -> list[str]:
    """What the watchdog of a server reported of code that computed, for longer than so many seconds of CPU time."""
    return [found[0] for found in _REPORT.finditer(said) if float(found[1]) > over]
