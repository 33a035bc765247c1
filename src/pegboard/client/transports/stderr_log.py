"""The stderr of a child process: its end is kept for errors, and its lines are logged at a limited rate."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import Final

from pegboard.client.links.server_output import shorten_output

STDERR_BYTES: Final = 64 * 1024
LOGGED_LINES: Final = 100
"""The number of lines that are logged in each period."""
PERIOD_SECONDS: Final = 10.0

_LINE_BYTES: Final = 8192

_log = logging.getLogger("pegboard.client")


class StderrLog:
    """Receives what one process writes to its stderr; `name` is that of the process in the log.

    After `LOGGED_LINES` lines, the others of the period are counted, and the number is logged when the period ends.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._rest = b""
        self._tail: deque[str] = deque()
        self._size = 0
        self._logged = 0
        self._omitted = 0
        self._period: asyncio.TimerHandle | None = None

    @property
    def tail(self) -> list[str]:
        """The last lines, the last of them perhaps incomplete."""
        return [*self._tail, self._rest.decode("utf-8", "replace")] if self._rest else list(self._tail)

    def receive(self, data: bytes) -> None:
        """Take the next bytes."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > _LINE_BYTES:
            lines.append(self._rest)
            self._rest = b""
        texts = [text for line in lines if (text := line.decode("utf-8", "replace").rstrip()[:_LINE_BYTES])]
        self._write(texts)
        self._tail.extend(texts)
        self._size += sum(map(len, texts))
        while self._size > STDERR_BYTES and self._tail:
            self._size -= len(self._tail.popleft())

    def close(self) -> None:
        """End the period now; the process has ended, or is about to."""
        if self._period is not None:
            self._period.cancel()
            self._end_period()

    def _write(self, texts: list[str]) -> None:
        if texts and self._period is None:
            self._period = asyncio.get_running_loop().call_later(PERIOD_SECONDS, self._end_period)
        allowed = min(LOGGED_LINES - self._logged, len(texts))
        for text in texts[:allowed]:
            _log.debug("%s: %s", self._name, shorten_output(text, len(text)))
        self._logged += allowed
        self._omitted += len(texts) - allowed

    def _end_period(self) -> None:
        self._period = None
        omitted, self._omitted, self._logged = self._omitted, 0, 0
        if omitted:
            _log.debug("%s: %d more lines on stderr are not logged", self._name, omitted)
