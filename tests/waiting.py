"""Waits, within a bound, for what another thread or process brings about."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

SOON = 20.0
STEP = 0.002
"""Waits are counted in steps, not by the clock: on a busy machine each step takes longer, as does what is waited for."""
HANGS = 180.0
"""For waits that only the clock can end, as those of a socket: what takes longer hangs, even on a busy machine."""


async def until(true: Callable[[], bool], seconds: float = SOON) -> None:
    """Let the loop run until it is so."""
    for _ in range(round(seconds / STEP)):
        if true():
            return
        await asyncio.sleep(STEP)
    raise TimeoutError("it did not come about in time")


def wait_until(true: Callable[[], bool], seconds: float = SOON) -> None:
    """The same where there is no loop."""
    for _ in range(round(seconds / STEP)):
        if true():
            return
        time.sleep(STEP)
    raise TimeoutError("it did not come about in time")
