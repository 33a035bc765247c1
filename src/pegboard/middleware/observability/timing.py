"""Durations of calls per tool: counts, totals, percentiles, and a warning for slow calls."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping

from msgspec import Struct

from pegboard.call import Call
from pegboard.errors import DeclarationError
from pegboard.hooks.middleware import Middleware
from pegboard.hooks.observation import Observation
from pegboard.middleware.call_keys import OTHERS, tool_of

SLOW = "slow_ms"
"""The key of `call.state` for the duration of a slow call, in milliseconds."""

_log = logging.getLogger("pegboard.timing")
_TOOLS_KEPT = 10_000

# Buckets of an eighth of a doubling, from 1 µs: a percentile is right within 4.5 %, and a tool needs one small list
# however often it is called.
_STEPS = 8
_BUCKETS = 30 * _STEPS  # the last one starts at 17 minutes


class ToolTiming(Struct, frozen=True, kw_only=True):
    """The calls of one tool so far, in milliseconds."""

    count: int
    failed: int
    slow: int
    total: float
    mean: float
    max: float
    p50: float
    p95: float


class _Tally:
    __slots__ = ("buckets", "count", "failed", "longest", "slow", "total")

    def __init__(self) -> None:
        self.count = self.failed = self.slow = 0
        self.total = self.longest = 0.0
        self.buckets = [0] * _BUCKETS

    def percentile(self, share: float) -> float:
        rank, seen = math.ceil(self.count * share), 0
        for index, number in enumerate(self.buckets):
            seen += number
            if seen >= rank:
                middle = 2 ** ((index + 0.5) / _STEPS) / 1000
                return min(middle, self.longest)
        return self.longest

    def read(self) -> ToolTiming:
        return ToolTiming(
            count=self.count,
            failed=self.failed,
            slow=self.slow,
            total=self.total,
            mean=self.total / self.count,
            max=self.longest,
            p50=self.percentile(0.5),
            p95=self.percentile(0.95),
        )


class Timing(Middleware):
    """Measures the calls of each tool, prompt and resource; a call of `slow_ms` or more is logged and marked in `call.state`.

    The time includes all middleware.
    """

    order = 20

    def __init__(self, *, slow_ms: float | None = 1000.0) -> None:
        if slow_ms is not None and not slow_ms >= 0:
            raise DeclarationError(f"slow_ms={slow_ms}: use milliseconds, or None for no threshold")
        self.slow_ms = slow_ms
        self._threshold = math.inf if slow_ms is None else slow_ms
        self._tallies: dict[str, _Tally] = {}

    def stats(self) -> Mapping[str, ToolTiming]:
        """The figures of every tool that was called, and of `prompt NAME`, `resource URI` and `completion NAME`."""
        return {name: tally.read() for name, tally in self._tallies.items()}

    def reset(self) -> None:
        """Reset all figures."""
        self._tallies.clear()

    def observe(self, call: Call, seen: Observation) -> None:
        """Count a call that has ended."""
        elapsed_ms = (seen.ended - seen.began) * 1000
        name = call.tool.name if call.method == "tools/call" else tool_of(call)
        tally = self._tallies.get(name)
        if tally is None:
            tally = self._begin(name)
        tally.count += 1
        tally.total += elapsed_ms
        tally.longest = max(tally.longest, elapsed_ms)
        bucket = int(math.log2(elapsed_ms * 1000) * _STEPS) if elapsed_ms > 0.001 else 0
        tally.buckets[bucket if bucket < _BUCKETS else -1] += 1
        if seen.failed:
            tally.failed += 1
        if elapsed_ms >= self._threshold:
            tally.slow += 1
            call.state[SLOW] = elapsed_ms
            _log.warning("%s was slow: %.0f ms, the threshold is %g ms", tool_of(call), elapsed_ms, self.slow_ms)

    def _begin(self, name: str) -> _Tally:
        return self._tallies.setdefault(name if len(self._tallies) < _TOOLS_KEPT else OTHERS, _Tally())
