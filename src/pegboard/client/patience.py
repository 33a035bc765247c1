"""How long a call is waited for: the deadlines that all of its retries, questions and resumptions share."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Collection, Iterator
from contextlib import contextmanager


class Patience:
    """The deadlines of one call: so long without news, so long in all; what its own side takes to answer is not counted."""

    __slots__ = ("_end", "_held", "_quiet", "_scope", "_since", "scope")

    def __init__(self, quiet: float, longest: float) -> None:
        now = _now()
        self._quiet = quiet
        self._end = now + longest
        self._held = 0
        self._since = now
        self.scope = asyncio.timeout_at(_finite(now + min(quiet, longest)))
        self._scope: asyncio.Timeout | None = self.scope

    def left(self) -> float:
        """How many seconds remain if no news comes."""
        until = None if self._scope is None else self._scope.when()
        return math.inf if until is None else until - _now()

    def news(self) -> None:
        """Something came: the wait begins anew."""
        if not self._held:
            self._set(_finite(min(_now() + self._quiet, self._end)))

    def hold(self) -> None:
        """What is waited for now is not the server's to do."""
        if not self._held:
            self._since = _now()
            self._set(None)
        self._held += 1

    def release(self) -> None:
        """It is the server's turn again."""
        self._held -= 1
        if not self._held:
            self._end += _now() - self._since
            self.news()

    def end(self) -> None:
        """Nobody waits any more."""
        self._scope = None

    def _set(self, until: float | None) -> None:
        if self._scope is not None and not self._scope.expired():
            self._scope.reschedule(until)


def _now() -> float:
    return asyncio.get_running_loop().time()


def _finite(until: float) -> float | None:
    return None if until == math.inf else until


@contextmanager
def held(waits: Collection[Patience]) -> Iterator[None]:
    """Deadlines that stand still meanwhile."""
    stopped = list(waits)
    for patience in stopped:
        patience.hold()
    try:
        yield
    finally:
        for patience in stopped:
            patience.release()
