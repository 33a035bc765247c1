"""Runs tests written as `async def`, each in a fresh event loop and within a bound."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.leaks import note_tasks

# A test that waits for something that never comes fails here, with the line it waits at.
DEADLINE = 60.0


def in_a_loop(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    @functools.wraps(test)
    def run(**arguments: Any) -> None:
        async def bounded() -> None:
            async with asyncio.timeout(DEADLINE):
                await test(**arguments)
            await note_tasks()

        with asyncio.Runner() as runner:
            runner.run(bounded())

    return run


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Any:
    property_test = getattr(pyfuncitem.obj, "hypothesis", None)
    if property_test is not None and inspect.iscoroutinefunction(property_test.inner_test):
        # Hypothesis calls the inner function once an example; each example gets its own loop.
        property_test.inner_test = in_a_loop(property_test.inner_test)
    elif inspect.iscoroutinefunction(pyfuncitem.obj):
        pyfuncitem.obj = in_a_loop(pyfuncitem.obj)
    return (yield)
