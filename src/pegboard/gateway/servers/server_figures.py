"""Figures of the servers behind a gateway."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, get_args

from pegboard.gateway.servers.downstream import Downstream
from pegboard.gateway.servers.supervisor import State
from pegboard.middleware.observability.metric_families import HistogramValue, MetricFamily, network_transport

_FIGURES: Final[Sequence[tuple[str, str, Callable[[Downstream], float]]]] = (
    ("up", "Whether the server can be used.", lambda server: int(server.is_up)),
    (
        "breaker_open",
        "Whether the circuit breaker rejects requests.",
        lambda server: int(server.breaker is not None and server.breaker.is_open),
    ),
    ("in_flight", "Requests that the server is processing.", lambda server: server.in_flight),
    ("waiting", "Requests that wait for their turn at the server.", lambda server: server.waiting),
)


def measure_servers(servers: Sequence[Downstream], parked: int) -> Iterator[MetricFamily]:
    """The families of these servers, and the number of parked calls."""
    named = [(f"{server.toolbox}/{server.name}", server) for server in servers]
    for name, description, read in _FIGURES:
        samples = [({"server": label}, read(server)) for label, server in named]
        yield MetricFamily(f"pegboard.downstream.{name}", "gauge", "", description, samples)
    yield MetricFamily(
        "pegboard.downstream.state",
        "gauge",
        "",
        "The state of the server: 1 for the current one.",
        [
            ({"server": label, "state": state}, int(server.state == state))
            for label, server in named
            for state in get_args(State)
        ],
    )
    yield MetricFamily(
        "pegboard.downstream.starts",
        "counter",
        "{start}",
        "Processes that were started for the server.",
        [({"server": label}, server.spawns) for label, server in named],
    )
    yield MetricFamily(
        "pegboard.calls.parked", "gauge", "{call}", "Calls that wait until their caller has answered.", [({}, parked)]
    )


class SessionDurations:
    """How long sessions with servers lasted; kept for servers that are started again."""

    def __init__(self) -> None:
        self._ended: dict[tuple[str, str, str], HistogramValue] = {}

    def add(self, server: Downstream, version: str, seconds: float) -> None:
        key = f"{server.toolbox}/{server.name}", version, network_transport(server.config.kind)
        self._ended.setdefault(key, HistogramValue()).add(seconds)

    def measure(self) -> Iterator[MetricFamily]:
        if self._ended:
            yield MetricFamily(
                "mcp.client.session.duration",
                "histogram",
                "s",
                "Duration of the connections to the server, from the handshake to their end.",
                [
                    ({"server": server, "mcp.protocol.version": version, "network.transport": transport}, value)
                    for (server, version, transport), value in self._ended.items()
                ],
            )
