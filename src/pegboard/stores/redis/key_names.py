"""The names of keys and channels, and the clock that tests pass in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pegboard.stores.store import LogEntry


class KeyNames:
    """What all parts of one Redis store share."""

    def __init__(self, me: str, prefix: str, clock: Callable[[], float] | None) -> None:
        self.me = me
        self.prefix = prefix
        self.leases = self.key("leases")
        self._clock = clock

    def key(self, name: str) -> str:
        return f"{self.prefix}:{name}"

    def channel(self, kind: str, name: str) -> str:
        return f"{self.prefix}:{kind}:{name}"

    def now(self) -> str:
        """The time in milliseconds if a clock was passed in; otherwise empty: the server uses its own clock."""
        return "" if self._clock is None else str(round(self._clock() * 1000))


def read_entries(rows: Sequence[Any]) -> tuple[LogEntry, ...]:
    """The entries of a stream, from the server's reply: [id, [field, value, …]]."""
    return tuple(LogEntry(int(number.rpartition(b"-")[2]), fields[1]) for number, fields in rows)
