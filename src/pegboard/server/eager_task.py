"""Starts a call's coroutine so that one that never waits finishes at once.

An author's coroutine must have a current task from its first step (`asyncio.timeout`, task groups and anyio scopes need
one). Python 3.12 has eager tasks for that, at nearly no cost; on 3.11 the first step waits for the loop.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Coroutine
from functools import partial
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


class StartTask(Protocol):
    """Make a task of a coroutine; it is already done if its first step did not suspend."""

    def __call__(self, coro: Coroutine[Any, Any, T], *, loop: asyncio.AbstractEventLoop) -> asyncio.Task[T]: ...


# Without a wrapper function: this runs for every call.
if sys.version_info >= (3, 12):
    start: StartTask = partial(asyncio.Task, eager_start=True)
else:
    start: StartTask = asyncio.Task
