"""Figures for machines: families of samples with OpenTelemetry's names, and their text for Prometheus.

A family is named once, in the way of OpenTelemetry: `mcp.server.operation.duration` in `s`. Prometheus gets the name that its
conventions derive from it: `mcp_server_operation_duration_seconds`.
"""

from __future__ import annotations

import sys
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from pegboard import __version__
from pegboard.middleware.call_keys import OTHERS

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

BUCKETS: Final = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
"""The buckets that the conventions recommend for durations of operations, in seconds."""

Labels: TypeAlias = Mapping[str, str]
_UNITS: Final = {"s": "_seconds", "By": "_bytes"}


class HistogramValue:
    """How many values fell into each bucket, and their sum."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...] = BUCKETS) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def add(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def plus(self, other: HistogramValue) -> HistogramValue:
        """The values of both, which have the same bounds."""
        both = HistogramValue(self.bounds)
        both.counts = [mine + theirs for mine, theirs in zip(self.counts, other.counts, strict=True)]
        both.total = self.total + other.total
        return both


class MetricFamily(Struct, frozen=True):
    """All samples of one name; each has its own labels.

    name: the name in OpenTelemetry.
    unit: `s`, `By`, or a word in braces for what is counted.
    """

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    unit: str
    description: str
    samples: Iterable[tuple[Labels, float | HistogramValue]]

    @property
    def text_name(self) -> str:
        """The name in Prometheus."""
        return self.name.replace(".", "_") + _UNITS.get(self.unit, "") + ("_total" if self.kind == "counter" else "")


class BoundedNames:
    """The label values that have a series of their own; when there are too many, all others share one."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._known: set[str] = set()

    def admit(self, name: str) -> str:
        if name in self._known:
            return name
        if len(self._known) >= self._limit:
            return OTHERS
        self._known.add(name)
        return name


def network_transport(transport: str) -> str:
    """`network.transport` of the conventions: a pipe or TCP."""
    return "pipe" if transport in ("stdio", "memory", "board") else "tcp"


def build_family() -> MetricFamily:
    """Which program is measured."""
    labels = {"version": __version__, "python": ".".join(map(str, sys.version_info[:3]))}
    return MetricFamily("pegboard.build.info", "gauge", "", "The version of Pegboard and of Python.", [(labels, 1)])


def merge_families(families: Iterable[MetricFamily]) -> Iterator[MetricFamily]:
    """The families, each name once: several boards of one process may have the same."""
    merged: dict[str, list[MetricFamily]] = {}
    for family in families:
        merged.setdefault(family.name, []).append(family)
    for parts in merged.values():
        if len(parts) == 1:
            yield parts[0]
            continue
        totals: dict[tuple[tuple[str, str], ...], tuple[Labels, float | HistogramValue]] = {}
        for labels, value in (sample for part in parts for sample in part.samples):
            key = tuple(sorted(labels.items()))
            totals[key] = labels, (_add(totals[key][1], value) if key in totals else value)
        yield replace(parts[0], samples=list(totals.values()))


def _add(one: float | HistogramValue, other: float | HistogramValue) -> float | HistogramValue:
    """The sum of two samples of one kind."""
    if isinstance(one, HistogramValue):
        return one.plus(other) if isinstance(other, HistogramValue) else one
    return one if isinstance(other, HistogramValue) else one + other


def render_text(families: Iterable[MetricFamily]) -> str:
    """The families in Prometheus text format; serve it as CONTENT_TYPE."""
    return "".join(f"{line}\n" for family in families for line in _lines(family))


def _lines(family: MetricFamily) -> Iterator[str]:
    name = family.text_name
    yield f"# HELP {name} {family.description}"
    yield f"# TYPE {name} {family.kind}"
    for labels, value in family.samples:
        if not isinstance(value, HistogramValue):
            yield f"{name}{_labels(labels)} {value!r}"
            continue
        seen = 0
        for bound, count in zip((*map(repr, value.bounds), "+Inf"), value.counts, strict=True):
            seen += count
            yield f"{name}_bucket{_labels({**labels, 'le': bound})} {seen}"
        yield f"{name}_sum{_labels(labels)} {value.total!r}"
        yield f"{name}_count{_labels(labels)} {seen}"


def _labels(labels: Labels) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name.replace(".", "_")}="{_escape(value)}"' for name, value in labels.items()) + "}"


def _escape(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
