"""The circuit breaker of a server."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Final

from pegboard.errors import ServerFault, Unreachable

FAILURE_LIMIT: Final = 8
FIRST_PAUSE_SECONDS: Final = 1.0
LONGEST_PAUSE_SECONDS: Final = 60.0


class CircuitBreaker:
    """Counts the `failures` of one server in a row.

    At `limit` of them it opens, and rejects requests at once. After each pause it lets one request through as a probe,
    and the next one only after another pause: a response closes the breaker, a failure doubles the pause. With a limit
    of 0 it never opens.
    """

    def __init__(self, name: str, limit: int = FAILURE_LIMIT, clock: Callable[[], float] = time.monotonic) -> None:
        self._name = name
        self._limit = limit or math.inf
        self._clock = clock
        self.failures = 0
        self._pause = FIRST_PAUSE_SECONDS
        self._until = 0.0
        self._trying = False
        self._last: ServerFault | None = None

    @property
    def is_open(self) -> bool:
        return self.failures >= self._limit

    @property
    def retry_seconds(self) -> float:
        """How long it still rejects requests."""
        return max(0.0, self._until - self._clock()) if self.is_open else 0.0

    def enter(self) -> None:
        """Let a request through; raises Unreachable while the breaker is open."""
        if self.failures < self._limit:
            return
        now = self._clock()
        wait = self._until - now
        if wait > 0:
            problem = f"failed {self.failures} times in a row, and is tried again in {wait:.1f} s"
            raise Unreachable(f"{self._name}: {problem}. Last error: {self._last}", retry_after=wait)
        self._until = now + self._pause
        self._trying = True

    def fail(self, fault: ServerFault) -> None:
        """The server was unreachable, the connection was lost, or no response came."""
        self.failures += 1
        if self.failures < self._limit:
            return
        if self._trying:
            self._pause = min(self._pause * 2, LONGEST_PAUSE_SECONDS)
        elif self.failures > self._limit:
            # Many requests may have been in flight when it opened: they count as one failure.
            return
        self._trying = False
        self._last = fault
        asked = fault.retry_after if isinstance(fault, Unreachable) else None
        self._until = self._clock() + max(self._pause, min(asked or 0.0, LONGEST_PAUSE_SECONDS))

    def succeed(self) -> None:
        """The server responded, with whatever result."""
        if self.failures:
            self.failures = 0
            self._pause = FIRST_PAUSE_SECONDS
            self._trying = False
            self._last = None
