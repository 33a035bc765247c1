"""Returns freed memory to the operating system.

After a burst of requests that is most of the memory. How much can be returned is known only by trying, so this is tried
when the process has grown a lot, and less often while it does not help. Objects in reference cycles, such as sockets
and their calls, are collected first: the garbage collector rarely reaches the oldest generation in a server.
"""

from __future__ import annotations

import gc
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

_log = logging.getLogger("pegboard.http")

GROWN_BYTES: Final = 24 * 1024 * 1024
LEAST_SECONDS: Final = 2.0
MOST_SECONDS: Final = 60.0

_STATM: Final = Path("/proc/self/statm")


def resident_bytes() -> int:
    """How many bytes this process holds; 0 where nobody says."""
    try:
        return int(_STATM.read_bytes().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0


def trim_heap() -> None:
    """Have the allocator give back what it can, where it is one that has to be told."""
    # Seldom needed, and not quickly imported.
    import ctypes  # noqa: PLC0415

    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (AttributeError, OSError, TypeError):
        _log.debug("this allocator gives memory back by itself, or never")


class MallocTrim:
    """What a process holds beyond what it needs; looked at now and then, from the sweep."""

    def __init__(
        self,
        resident: Callable[[], int] = resident_bytes,
        trim: Callable[[], None] = trim_heap,
        collect: Callable[[], object] = gc.collect,
    ) -> None:
        self._resident = resident
        self._trim = trim
        self._collect = collect
        self._needed = 0
        self._due = 0.0
        self._wait = LEAST_SECONDS

    def check(self, now: float) -> None:
        """Give back what there is to give, if it may be a lot."""
        if now < self._due:
            return
        self._due = now + LEAST_SECONDS
        held = self._resident()
        if not self._needed or held < self._needed:
            self._needed = held
        if held - self._needed < GROWN_BYTES:
            self._wait = LEAST_SECONDS
            return
        self._trim()
        if self._resident() - self._needed >= GROWN_BYTES:
            self._collect()
            self._trim()
        freed = held - self._resident()
        self._wait = LEAST_SECONDS if freed > GROWN_BYTES // 4 else min(2 * self._wait, MOST_SECONDS)
        self._due = now + self._wait
