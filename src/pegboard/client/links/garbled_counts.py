"""Counts the output of servers that is not JSON-RPC, to limit the log."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

_MAX_SERVERS: Final = 1000

_counts: dict[tuple[Hashable, str], int] = {}


def count_garbled(server: Hashable, kind: str) -> int:
    """Count one more of a kind."""
    key = (server, kind)
    number = _counts.pop(key, 0) + 1
    while len(_counts) >= _MAX_SERVERS:
        del _counts[next(iter(_counts))]
    _counts[key] = number
    return number
