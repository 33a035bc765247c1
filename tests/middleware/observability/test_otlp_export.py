"""Spans and metrics as a collector receives them, with the names of the semantic conventions for MCP."""

from __future__ import annotations

from typing import Any

import pytest

import pegboard
from pegboard import Board, Gateway, ToolError
from pegboard.call import Caller
from pegboard.middleware import Metrics, Tracing
from pegboard.sessions.session import Session
from tests.otlp_receiver import OtlpReceiver, attributes_of

pytestmark = pytest.mark.peer

TRACE, AGENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
SERVER, CLIENT = 2, 3

# From the semantic conventions for generative AI: docs/gen-ai/mcp.md, status Development.
CONVENTION_METRICS = {
    "mcp.server.operation.duration": 2,
    "mcp.client.operation.duration": 2,
    "mcp.server.session.duration": 1,
    "mcp.client.session.duration": 1,
}
CONVENTION_BUCKETS = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300]
CONVENTION_ATTRIBUTES = {
    "mcp.method.name",
    "mcp.protocol.version",
    "mcp.resource.uri",
    "mcp.session.id",
    "error.type",
    "gen_ai.operation.name",
    "gen_ai.prompt.name",
    "gen_ai.tool.call.arguments",
    "gen_ai.tool.call.result",
    "gen_ai.tool.name",
    "jsonrpc.request.id",
    "network.protocol.name",
    "network.protocol.version",
    "network.transport",
    "rpc.response.status_code",
    "server.address",
    "server.port",
}
OURS = {"server", "pegboard.server"}


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Any:
    with OtlpReceiver() as received:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", received.address)
        monkeypatch.setenv("OTEL_SERVICE_NAME", "gate")
        yield received


def make_board() -> Board:
    board = Board("sums")

    @board.tool
    async def add(a: int, b: int) -> int:
        if a < 0:
            raise ToolError("too small")
        return a + b

    return board


async def test_one_trace_goes_from_the_agent_through_the_gateway_to_the_server(receiver: OtlpReceiver) -> None:
    board = make_board()
    board.use(Tracing())
    gateway = Gateway({"toolboxes": {"dev": {"description": "Sums", "mcpServers": {"sums": {"board": board}}}}})
    gateway.use(Tracing())
    async with pegboard.Client(gateway) as client:
        meta = {"traceparent": f"00-{TRACE}-{AGENT}-01"}
        await client.request("tools/call", {"name": "dev__sums__add", "arguments": {"a": 2, "b": 3}, "_meta": meta})
        await client.call("dev__sums__add", {"a": -1, "b": 3})
    traced = [span for span in receiver.spans if span.trace_id.hex() == TRACE]
    by_id = {span.span_id: span for span in traced}
    (leaf,) = [span for span in traced if span.span_id not in {other.parent_span_id for other in traced}]
    path = [leaf]
    while path[-1].parent_span_id in by_id:
        path.append(by_id[path[-1].parent_span_id])
    assert [(span.name, span.kind) for span in path] == [
        ("tools/call add", SERVER),
        ("tools/call add", CLIENT),
        ("tools/call dev__sums__add", SERVER),
    ]
    assert path[-1].parent_span_id.hex() == AGENT
    assert attributes_of(path[1])["pegboard.server"] == "dev/sums"
    failed = [span for span in receiver.spans if span.trace_id.hex() != TRACE]
    assert {span.kind for span in failed} == {SERVER, CLIENT}
    assert {attributes_of(span)["error.type"] for span in failed} == {"tool_error"}
    assert {span.status.code for span in failed} == {2}
    for span in receiver.spans:
        assert set(attributes_of(span)) <= CONVENTION_ATTRIBUTES | OURS
    assert receiver.resources[0]["service.name"] == "gate"


async def test_metrics_are_exported_with_the_names_units_and_buckets_of_the_conventions(receiver: OtlpReceiver) -> None:
    gateway = Gateway({"toolboxes": {"dev": {"description": "Sums", "mcpServers": {"sums": {"board": make_board()}}}}})
    gateway.use(Metrics())
    async with pegboard.Client(gateway) as client:
        for a in (1, -1):
            await client.call("dev__sums__add", {"a": a, "b": 3})
        Session(Caller(version="2025-06-18", transport="stdio"), on_end=gateway.end_session).end()
    measured = receiver.metrics
    for name, number in CONVENTION_METRICS.items():
        assert measured[name].unit == "s"
        points = measured[name].histogram.data_points
        assert sum(point.count for point in points) == number
        for point in points:
            assert list(point.explicit_bounds) == CONVENTION_BUCKETS
            assert set(attributes_of(point)) <= CONVENTION_ATTRIBUTES | OURS
            assert sum(point.bucket_counts) == point.count
            assert 0 < point.start_time_unix_nano <= point.time_unix_nano
    assert {name for name in measured if not name.startswith("pegboard.")} == set(CONVENTION_METRICS)
    (up,) = measured["pegboard.downstream.up"].gauge.data_points
    # The last figures are sent when the servers have been stopped.
    assert (attributes_of(up), up.as_int) == ({"server": "dev/sums"}, 0)
    assert measured["pegboard.downstream.starts"].sum.is_monotonic


async def test_metrics_are_exported_again_and_again(receiver: OtlpReceiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "50")
    board = make_board()
    board.use(Metrics())
    async with pegboard.Client(board) as client:
        await client.call("add", {"a": 1, "b": 2})
        await receiver.wait_for_metric("mcp.server.operation.duration")


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("OTEL_SDK_DISABLED", "true", ""),
        ("OTEL_METRICS_EXPORTER", "none", ""),
        ("OTEL_METRICS_EXPORTER", "console", "console over http/protobuf is not supported"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc", "otlp over grpc is not supported"),
    ],
)
async def test_metrics_stay_here_if_the_variables_say_so(
    receiver: OtlpReceiver,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    name: str,
    value: str,
    reason: str,
) -> None:
    monkeypatch.setenv(name, value)
    board = make_board()
    board.use(Metrics())
    async with pegboard.Client(board) as client:
        await client.call("add", {"a": 1, "b": 2})
    assert receiver.metrics == {}
    assert reason in caplog.text
