"""Shows the progress of a call: a bar on a terminal, else a line for each step."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from pegboard.background_tasks import end_tasks
from pegboard.cli.terminal.output import note, redraw

SHOWN_AFTER_SECONDS: Final = 1.0

_BAR: Final = 20


@asynccontextmanager
async def waiting(text: str, seconds: float = SHOWN_AFTER_SECONDS) -> AsyncIterator[None]:
    """Show on a terminal what is waited for, if that takes longer than a moment."""
    if sys.stderr is None or not sys.stderr.isatty():
        yield
        return
    began = time.monotonic()

    async def show() -> None:
        while True:
            await asyncio.sleep(seconds)
            redraw(f"{text} … {time.monotonic() - began:.0f} s")

    showing = asyncio.create_task(show())
    try:
        yield
    finally:
        await end_tasks(showing)
        if time.monotonic() - began >= seconds:
            redraw("")


class ProgressBar:
    """The `progress` function of a call."""

    def __init__(self) -> None:
        self._bar = sys.stderr is not None and sys.stderr.isatty()
        self._drawn = False

    def __call__(self, done: float, total: float | None, message: str | None) -> None:
        far = f"{done:g}" if total is None else f"{done:g}/{total:g}"
        text = f"  {message}" if message else ""
        if not self._bar:
            note(f"progress  {far}{text}")
            return
        share = min(max(done / total, 0.0), 1.0) if total else 0.0
        bar = f"[{'#' * round(share * _BAR):<{_BAR}}] " if total else ""
        self._drawn = True
        redraw(f"{bar}{far}{text}")

    def clear(self) -> None:
        """Remove the bar, so that other lines can follow."""
        if self._drawn:
            redraw("")
            self._drawn = False
