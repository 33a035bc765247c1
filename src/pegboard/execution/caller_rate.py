"""Limits how often one caller may request costly methods."""

from __future__ import annotations

import time
from collections.abc import Callable

from pegboard.call import Caller
from pegboard.errors import Busy


class CallerRate:
    """So many in a second for each caller; who they all are is forgotten with the second."""

    def __init__(self, what: str, limit: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._what = what
        self._limit = limit
        self._clock = clock
        self._second = 0
        self._counts: dict[tuple[str, str], int] = {}

    def check(self, caller: Caller) -> None:
        """Count one more, or refuse it until the next second."""
        second = int(self._clock())
        if second != self._second:
            self._second = second
            self._counts.clear()
        key = caller.principal, caller.session
        count = self._counts[key] = self._counts.get(key, 0) + 1
        if count > self._limit:
            raise Busy(f"More than {self._limit} {self._what} in a second; slow down", retry_after=1)
