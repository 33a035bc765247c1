"""Returns freed memory to the operating system.

After a burst of requests most of the memory is free. How much can be returned is only known after trying, so it is
tried when the process has grown a lot, and less often while it does not help. Objects in reference cycles, such as
sockets and their calls, are collected first: the garbage collector rarely reaches the oldest generation in a server.
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
    """The resident memory of this process in bytes; 0 if the system does not report it."""
    try:
        return int(_STATM.read_bytes().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0


def trim_heap() -> None:
    """Ask the allocator to return free memory, if it supports that."""
    # Rarely needed, and slow to import.
    import ctypes  # noqa: PLC0415

    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (AttributeError, OSError, TypeError):
        _log.debug("this allocator does not support malloc_trim")


class MallocTrim:
    """Checks now and then, from the sweep, whether the process holds much more memory than it needs."""

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
        """Return free memory if there may be a lot of it."""
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
