"""Says which calls a server waits for when it shuts down."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Iterable
from itertools import islice
from typing import Any, Final

from pegboard.call import Call
from pegboard.logs.log_lines import announce_lines

_DEPTH: Final = 40
_NAMES: Final = 5


def announce_wait(tasks: Iterable[asyncio.Task[Any]], seconds: float) -> None:
    """Print what is waited for, and how to stop at once."""
    names = Counter(map(_called, tasks))
    if not names or seconds <= 0:
        return
    shown = [f"{name} ×{count}" if count > 1 else name for name, count in islice(names.items(), _NAMES)]
    if len(names) > _NAMES:
        shown.append("…")
    again = "; press Ctrl+C again to stop now" if sys.stderr is not None and sys.stderr.isatty() else ""
    calls = "1 call" if names.total() == 1 else f"{names.total()} calls"
    announce_lines([f"shutting down: waiting up to {seconds:g} s for {calls} ({', '.join(shown)}){again}"])


def _called(task: asyncio.Task[Any]) -> str:
    """The name of the tool that a task runs, found in the frames of its coroutines."""
    coroutine: Any = task.get_coro()
    for _ in range(_DEPTH):
        frame = getattr(coroutine, "cr_frame", None)
        call = None if frame is None else frame.f_locals.get("call")
        if isinstance(call, Call):
            return call.name or call.method
        coroutine = getattr(coroutine, "cr_await", None)
    return "a request"
