"""Waits, within a bound, for what another thread or process brings about."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

SOON = 20.0


async def until(true: Callable[[], bool], seconds: float = SOON) -> None:
    """Let the loop run until it is so."""
    async with asyncio.timeout(seconds):
        while not true():  # noqa: ASYNC110 — no event of this loop tells it
            await asyncio.sleep(0.001)


def wait_until(true: Callable[[], bool], seconds: float = SOON) -> None:
    """The same where there is no loop."""
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "it did not come about in time"
        time.sleep(0.002)
