"""How many log lines others may cause within a time."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from typing import Final

LINES: Final = 100
SECONDS: Final = 10.0
"""How many lines are logged within that many seconds."""


class LogAllowance:
    """Limits the lines about one source; the first line of the next period is preceded by the number that was omitted."""

    def __init__(
        self,
        logger: logging.Logger,
        source: str,
        *,
        lines: int = LINES,
        seconds: float = SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._logger, self._source = logger, source
        self._lines, self._seconds, self._clock = lines, seconds, clock
        self._began = -math.inf
        self._used = 0

    def take(self) -> bool:
        """Whether one more line may be logged now."""
        now = self._clock()
        if now - self._began >= self._seconds:
            if self._used > self._lines:
                self._logger.warning("%s: %d log messages were omitted", self._source, self._used - self._lines)
            self._began, self._used = now, 0
        self._used += 1
        return self._used <= self._lines

    def log(self, level: int, message: str, *args: object) -> None:
        """Log a line, if there is still one left."""
        if self.take():
            self._logger.log(level, message, *args)
