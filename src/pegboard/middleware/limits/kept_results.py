"""Keeps results that were too long to send, for a limited time."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping

import msgspec
from msgspec import Struct

from pegboard.call import Json

SCHEME = "pegboard://results/"


class _KeptResult(Struct, frozen=True):
    data: bytes
    principal: str
    until: float


class KeptResults:
    """At most `max_bytes` of results, each for `seconds`; the oldest are dropped first. `clock` is for tests."""

    def __init__(
        self, *, seconds: float = 600.0, max_bytes: int = 32 * 1024 * 1024, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.seconds = seconds
        self.max_bytes = max_bytes
        self._clock = clock
        self._kept: dict[str, _KeptResult] = {}
        self._bytes = 0

    def keep(self, result: Mapping[str, Json], principal: str = "") -> str | None:
        """Keep a result for its principal alone; returns its id, or None if it is larger than the whole space."""
        data = msgspec.json.encode(result)
        if len(data) > self.max_bytes:
            return None
        now = self._clock()
        self._forget(now, len(data))
        # The id is enough to read the result, so it cannot be guessed.
        name = secrets.token_urlsafe(16)
        self._kept[name] = _KeptResult(data, principal, now + self.seconds)
        self._bytes += len(data)
        return name

    def read(self, name: str, principal: str = "") -> Mapping[str, Json] | None:
        """The whole result, if it is still kept and belongs to this principal."""
        kept = self._kept.get(name.removeprefix(SCHEME))
        if kept is None or kept.principal != principal or kept.until <= self._clock():
            return None
        result: Mapping[str, Json] = msgspec.json.decode(kept.data)
        return result

    def _forget(self, now: float, needed: int) -> None:
        # All are kept equally long, so they expire in the order in which they were kept.
        while self._kept:
            name, oldest = next(iter(self._kept.items()))
            if oldest.until > now and self._bytes + needed <= self.max_bytes:
                return
            del self._kept[name]
            self._bytes -= len(oldest.data)
