"""Limits how often one caller may request costly methods."""

from __future__ import annotations

import time
from collections.abc import Callable

from pegboard.call import Caller
from pegboard.errors import Busy


class CallerRate:
    """Limits requests per second for each caller; the counts are dropped every second."""

    def __init__(self, what: str, limit: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._what = what
        self._limit = limit
        self._clock = clock
        self._second = 0
        self._counts: dict[tuple[str, str], int] = {}

    def check(self, caller: Caller) -> None:
        """Count one request, or reject it until the next second."""
        second = int(self._clock())
        if second != self._second:
            self._second = second
            self._counts.clear()
        # The sessions of a principal count together; anonymous callers have nothing but their sessions.
        key = caller.principal.id, "" if caller.principal else caller.session
        count = self._counts[key] = self._counts.get(key, 0) + 1
        if count > self._limit:
            raise Busy(f"More than {self._limit} {self._what} per second; slow down", retry_after=1)
