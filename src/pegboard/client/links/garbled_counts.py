"""Counts invalid output of servers, to limit the log."""

from __future__ import annotations

import logging
from collections.abc import Hashable
from typing import Final

_log = logging.getLogger("pegboard.client")

_MAX_SERVERS: Final = 1000

_counts: dict[tuple[Hashable, str], int] = {}


def count_garbled(server: Hashable, kind: str) -> int:
    """Count one more of a kind; returns the number so far."""
    key = (server, kind)
    number = _counts.pop(key, 0) + 1
    while len(_counts) >= _MAX_SERVERS:
        del _counts[next(iter(_counts))]
    _counts[key] = number
    return number


def warn_rarely(server: Hashable, name: str, kind: str, detail: str = "") -> None:
    """Log invalid output of a server: the first, second, fourth … time, so that it cannot fill the log."""
    number = count_garbled(server, kind)
    if not number & (number - 1):
        _log.warning("%s: %s%s (%d so far)", name, kind, detail, number)
