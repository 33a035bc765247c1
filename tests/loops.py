"""Runs tests written as `async def`, each in a fresh event loop and within a bound, and shows where a test hangs."""

from __future__ import annotations

import asyncio
import faulthandler
import functools
import inspect
import os
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.leaks import note_tasks

# A test that waits for something that never comes fails here, with the line it waits at. A test that takes seconds on idle
# cores takes a minute on busy ones.
DEADLINE = 180.0
SLOW_DEADLINE = 900.0

# The stacks of all threads are printed when a test has hung for so long, or up to so much longer.
HANG = 240.0
HANG_SLACK = 30.0

_deadline: asyncio.Timeout | None = None


async def skip(seconds: float) -> None:
    """Put the clock of this loop forward, except for the deadline of the test, and let what is due by then run."""
    assert _deadline is not None
    loop, due = asyncio.get_running_loop(), _deadline.when()
    assert due is not None
    before = loop.time
    loop.time = lambda: before() + seconds  # type: ignore[method-assign]  # the loop is this test's own
    _deadline.reschedule(due + seconds)
    for _ in range(5):
        await asyncio.sleep(0)


def in_a_loop(test: Callable[..., Awaitable[None]], seconds: float) -> Callable[..., None]:
    @functools.wraps(test)
    def run(**arguments: Any) -> None:
        async def bounded() -> None:
            global _deadline
            async with asyncio.timeout(seconds) as _deadline:
                await test(**arguments)
            await note_tasks()

        with asyncio.Runner() as runner:
            runner.run(bounded())

    return run


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Any:
    seconds = SLOW_DEADLINE if pyfuncitem.get_closest_marker("slow") else DEADLINE
    property_test = getattr(pyfuncitem.obj, "hypothesis", None)
    if property_test is not None and inspect.iscoroutinefunction(property_test.inner_test):
        # Hypothesis calls the inner function once an example; each example gets its own loop.
        property_test.inner_test = in_a_loop(property_test.inner_test, seconds)
    elif inspect.iscoroutinefunction(pyfuncitem.obj):
        pyfuncitem.obj = in_a_loop(pyfuncitem.obj, seconds)
    return (yield)


class HangWatch:
    """Arms the watchdog of the standard library now and then.

    Arming it starts a thread and waits for the last one to end, which is too slow for each of 17,000 tests.
    """

    def __init__(self) -> None:
        # Pytest captures the descriptor 2 of each test.
        self._stderr = os.dup(2)
        self._armed = -HANG_SLACK

    def pytest_runtest_setup(self) -> None:
        now = time.monotonic()
        if now - self._armed > HANG_SLACK:
            self._armed = now
            faulthandler.dump_traceback_later(HANG + HANG_SLACK, file=self._stderr)

    def pytest_unconfigure(self) -> None:
        faulthandler.cancel_dump_traceback_later()
        os.close(self._stderr)


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(HangWatch())
