"""Debug mode: callers on this machine see the exception and the traceback of a tool that failed."""

from __future__ import annotations

import traceback
from pathlib import Path
from types import TracebackType
from typing import Final

from pegboard.call import Call

# Callers in this process, and the client that started it.
_LOCAL: Final = frozenset({"direct", "stdio"})
_HOME: Final = str(Path(__file__).parents[1])
_TEXT: Final = 8_000


class DebugMode:
    """Which callers see exceptions: none, unless it is on; over HTTP and WebSockets only where a server allows it."""

    def __init__(self, *, on: bool = False) -> None:
        self.on = on
        self._over_network = False

    def allow_network(self) -> None:
        """Every network caller is on this machine: the server is bound to a loopback address."""
        self._over_network = True

    def describe(self, call: Call, exception: BaseException | None) -> str:
        """What the caller of a failed call sees of its exception, from the first line of the author's code on."""
        if not self.on or exception is None or not (self._over_network or call.caller.transport in _LOCAL):
            return ""
        lines = traceback.format_exception(type(exception), exception, _authors(exception.__traceback__))
        return f"\n{''.join(lines)[-_TEXT:]}(debug mode: only callers on this machine see this)"


NO_DEBUG: Final = DebugMode()


def _authors(frames: TracebackType | None) -> TracebackType | None:
    found = frames
    while found is not None and found.tb_frame.f_code.co_filename.startswith(_HOME):
        found = found.tb_next
    return found or frames
