"""Runs a call's coroutine so that one which never waits is finished before its caller's callback returns.

An author's coroutine must have a current task from its first step (`asyncio.timeout`, task groups and anyio scopes
need one). Python 3.12 gives that for nearly nothing with eager tasks; on 3.11 the first step waits for the loop.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

if sys.version_info >= (3, 12):

    def start(loop: asyncio.AbstractEventLoop, coro: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Step the coroutine now; the task is already done if it did not suspend."""
        return asyncio.Task(coro, loop=loop, eager_start=True)

else:

    def start(loop: asyncio.AbstractEventLoop, coro: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Schedule the coroutine; its first step is taken by the loop."""
        return loop.create_task(coro)
