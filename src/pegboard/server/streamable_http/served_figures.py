"""Figures of what is served over HTTP now: running calls, sessions, open streams."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from pegboard.middleware.observability.metric_families import MetricFamily
from pegboard.server.streamable_http.mcp_endpoint import HttpEndpoint


def measure_endpoints(endpoints: Collection[HttpEndpoint]) -> Iterator[MetricFamily]:
    """The families of these endpoints together."""
    running = [exchange for endpoint in endpoints for exchange in tuple(endpoint.calls)]
    subscriptions = sum(len(endpoint.followers) for endpoint in endpoints)
    yield MetricFamily(
        "pegboard.calls.in_progress", "gauge", "{call}", "Calls that have started and not ended.", [({}, len(running))]
    )
    yield MetricFamily(
        "pegboard.calls.rejected",
        "counter",
        "{call}",
        "Calls that were rejected before they started, because too many were running.",
        [({}, sum(endpoint.rejected for endpoint in endpoints))],
    )
    yield MetricFamily(
        "pegboard.sessions",
        "gauge",
        "{session}",
        "Open sessions of clients before 2026-07-28.",
        [({}, sum(len(endpoint.sessions) for endpoint in endpoints))],
    )
    yield MetricFamily(
        "pegboard.sse.streams",
        "gauge",
        "{stream}",
        "Open streams of calls, and of subscribers to changes.",
        [
            ({"kind": "call"}, sum(exchange.streaming for exchange in running)),
            ({"kind": "subscription"}, subscriptions),
        ],
    )
