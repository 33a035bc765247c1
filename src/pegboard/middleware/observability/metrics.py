"""Counts and durations of calls, for Prometheus and for OpenTelemetry collectors."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from time import perf_counter
from typing import Final, TypeAlias

from pegboard.call import Call, Caller, Reply
from pegboard.hooks.middleware import Middleware
from pegboard.hooks.observation import Failure, Observation, Report, observing
from pegboard.logs.watchdog import TALLY
from pegboard.middleware.call_keys import tool_of
from pegboard.middleware.observability.metric_families import (
    BUCKETS,
    BoundedNames,
    HistogramValue,
    MetricFamily,
    build_family,
    merge_families,
    network_transport,
    render_text,
)
from pegboard.middleware.observability.otlp_export import MetricsExport

TOOL_ERROR: Final = "tool_error"
_CODES: Final = frozenset({-32700, -32600, -32601, -32602, -32603, -32020, -32021, -32022, -32001})
_HOP_BUCKETS: Final = (0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1.0)
_TOKENS: Final = ("in", "out", "estimated")
_SERVERS: Final = 1000
_REASONS: Final = 50

# The attribute for the name of what was called; completions have none.
_NAMES: Final = {
    "tools/call": "gen_ai.tool.name",
    "prompts/get": "gen_ai.prompt.name",
    "resources/read": "mcp.resource.uri",
}

MetricSource: TypeAlias = Callable[[], Iterable[MetricFamily]]


def error_type(failure: Failure) -> str:
    """`error.type` of the conventions: the JSON-RPC code, or that the result is an error for the model."""
    if failure.code is not None:
        # Authors may invent codes; labels must stay bounded.
        return str(failure.code) if failure.code in _CODES else "_OTHER"
    return "cancelled" if failure.outcome == "cancelled" else TOOL_ERROR


class Metrics(Middleware):
    """Measures every call of any kind; `render()` returns the body of `/metrics`.

    It also exports by OTLP over HTTP, if the variables `OTEL_EXPORTER_OTLP_…` name a collector (needs the `otel` extra). After
    `tools` different tools, and `kinds` of repairs, further ones share one name, so that callers cannot increase the number of
    series. docs/observability.md lists all metrics.
    """

    def __init__(self, *, tools: int = 1000, kinds: int = 100) -> None:
        self.tools = tools
        self._names, self._kinds = BoundedNames(tools), BoundedNames(kinds)
        self._servers, self._reasons = BoundedNames(_SERVERS), BoundedNames(_REASONS)
        self._durations: dict[tuple[str, str, str], HistogramValue] = {}
        self._downstream: dict[tuple[str, str, str, str], HistogramValue] = {}
        self._hops: dict[str, HistogramValue] = {}
        self._sessions: dict[tuple[str, str], HistogramValue] = {}
        self._repaired: Counter[tuple[str, str]] = Counter()
        self._refused: Counter[str] = Counter()
        self._tokens: Counter[str] = Counter()
        self._sources: list[MetricSource] = []
        self._export = MetricsExport(self.families)
        if type(self).observe is Metrics.observe:
            self._report = self._make_report()

    def _make_report(self) -> Report:
        """Count an ordinary call of a known series in a few steps, and every other one as `observe` does."""
        durations, report_other = self._durations, observing(self.observe)

        def report(call: Call, began: float, reply: Reply | None, exception: BaseException | None) -> None:
            try:
                plain = not call.parsed.warnings and call._state is None and not call._downstream_ms  # type: ignore[union-attr]
                if plain and not reply.result.get("isError"):  # type: ignore[union-attr]
                    known = durations[call.method, call.tool.name, ""]
                    seconds = perf_counter() - began
                    known.counts[bisect_left(BUCKETS, seconds)] += 1
                    known.total += seconds
                    return
            except (AttributeError, KeyError):
                # It raised, its tool was not reached, or it is the first call of its series.
                pass
            report_other(call, began, reply, exception)

        return report

    def observe(self, call: Call, seen: Observation) -> None:
        """Count a call that has ended."""
        method = call.method
        name = call.tool.name if method in _NAMES else ""
        failure = seen.failure
        error = error_type(failure) if failure is not None else TOOL_ERROR if seen.failed else ""
        durations = self._durations.get((method, name, error))
        if durations is None:
            # The first call of a series, or one whose tool is counted under another name.
            name = self._names.admit(name)
            durations = self._durations.setdefault((method, name, error), HistogramValue())
        seconds = seen.ended - seen.began
        durations.counts[bisect_left(BUCKETS, seconds)] += 1
        durations.total += seconds
        if failure is not None and failure.reason:
            self._refused[self._reasons.admit(failure.reason)] += 1
        if call.parsed is not None and call.parsed.warnings:
            tool = self._names.admit(tool_of(call))
            for warning in call.warnings:
                self._repaired[tool, self._kinds.admit(str(warning.code))] += 1
        if call._downstream_ms:
            self._count_downstream(call, seen)
        if call._state is not None:
            for direction in _TOKENS:
                tokens = call._state.get("tokens_" + direction)
                if isinstance(tokens, int):
                    self._tokens[direction] += tokens

    def _count_downstream(self, call: Call, seen: Observation) -> None:
        """The time of the server apart from our own."""
        tool = call.tool
        server = self._servers.admit(f"{tool.toolbox}/{tool.server}")
        name = self._names.admit(tool.name) if call.method in _NAMES else ""
        key = call.method, name, server, call._downstream_error
        seconds = call._downstream_ms / 1000
        self._downstream.setdefault(key, HistogramValue()).add(seconds)
        if not call.asked:
            # Of a call that asked its caller, most of the rest is the time that a person took.
            hops = self._hops.setdefault(server, HistogramValue(_HOP_BUCKETS))
            hops.add(max(0.0, seen.ended - seen.began - seconds))

    def count_session(self, caller: Caller, seconds: float) -> None:
        """Count a session that has ended; its revision and transport are of a few that exist."""
        key = caller.version, network_transport(caller.transport)
        self._sessions.setdefault(key, HistogramValue()).add(seconds)

    def add_source(self, source: MetricSource) -> None:
        """Include the families of a server or gateway; a source counts once."""
        if source not in self._sources:
            self._sources.append(source)

    def remove_source(self, source: MetricSource) -> None:
        """Leave out the families of a server or gateway that has stopped."""
        if source in self._sources:
            self._sources.remove(source)

    async def start(self) -> None:
        await self._export.start()

    async def stop(self) -> None:
        await self._export.stop()

    def render(self) -> str:
        """All series as text for Prometheus."""
        return render_text(self.families())

    def families(self) -> Iterator[MetricFamily]:
        """All series."""
        yield MetricFamily(
            "mcp.server.operation.duration",
            "histogram",
            "s",
            "Duration of requests, as received here.",
            [(_describe(method, name, error), value) for (method, name, error), value in self._durations.items()],
        )
        if self._downstream:
            yield MetricFamily(
                "mcp.client.operation.duration",
                "histogram",
                "s",
                "Duration of requests to servers behind the gateway.",
                [
                    ({**_describe(method, name, error), "server": server}, value)
                    for (method, name, server, error), value in self._downstream.items()
                ],
            )
            yield MetricFamily(
                "pegboard.gateway.hop.duration",
                "histogram",
                "s",
                "Time that the gateway itself adds to a call.",
                [({"server": server}, value) for server, value in self._hops.items()],
            )
        if self._sessions:
            yield MetricFamily(
                "mcp.server.session.duration",
                "histogram",
                "s",
                "Duration of the sessions of clients before 2026-07-28.",
                [
                    ({"mcp.protocol.version": version, "network.transport": transport}, value)
                    for (version, transport), value in self._sessions.items()
                ],
            )
        yield MetricFamily(
            "pegboard.args.repaired",
            "counter",
            "{repair}",
            "Arguments that were repaired.",
            [({"tool": tool, "kind": kind}, count) for (tool, kind), count in self._repaired.items()],
        )
        yield MetricFamily(
            "pegboard.calls.refused",
            "counter",
            "{call}",
            "Calls that a limit, a budget or a timeout rejected.",
            [({"reason": reason}, count) for reason, count in self._refused.items()],
        )
        yield MetricFamily(
            "pegboard.tool.tokens",
            "counter",
            "{token}",
            "Tokens of arguments and results.",
            [({"direction": direction}, count) for direction, count in self._tokens.items()],
        )
        if TALLY.watchers:
            yield MetricFamily(
                "pegboard.loop.stalls",
                "counter",
                "{stall}",
                "Number of times the event loop was blocked.",
                [({}, TALLY.count)],
            )
            yield MetricFamily(
                "pegboard.loop.stall",
                "counter",
                "s",
                "Time for which the event loop was blocked.",
                [({}, TALLY.seconds)],
            )
        yield build_family()
        yield from merge_families(family for source in self._sources for family in source())


def _describe(method: str, name: str, error: str) -> dict[str, str]:
    labels = {"mcp.method.name": method}
    if method in _NAMES:
        labels[_NAMES[method]] = name
    if error:
        labels["error.type"] = error
    return labels
