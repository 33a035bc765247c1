"""Counts and durations as Prometheus itself reads them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from pegboard import Board, Client, Gateway, Limits, ToolError, ToolResult
from pegboard.auth.api_keys import ApiKeys
from pegboard.auth.auth import Auth
from pegboard.call import Done
from pegboard.errors import InvalidParams, Refusal
from pegboard.hooks.observation import Observation
from pegboard.middleware import Metrics, RateLimit, TokenCount
from pegboard.middleware.observability.metric_families import BUCKETS
from pegboard.server.http.listener import listen
from pegboard.server.http_serving import make_endpoint
from pegboard.server.serving_options import resolve_options
from pegboard.stores.store_url import open_store
from pegboard.testing import make_call, run_alone
from tests.auth.serving import bearer, serving
from tests.client_variants import on_one_machine

NAME = "mcp_server_operation_duration_seconds"


def read(text: str) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """The samples, by name and labels; each family and each series occurs once."""
    series: dict[tuple[str, frozenset[tuple[str, str]]], float] = {}
    families = list(text_string_to_metric_families(text))
    assert len({family.name for family in families}) == len(families)
    for family in families:
        assert family.documentation
        assert family.type in {"counter", "gauge", "histogram"}
        for sample in family.samples:
            key = sample.name, frozenset(sample.labels.items())
            assert key not in series
            series[key] = sample.value
    return series


def value(metrics: Metrics, name: str, **labels: str) -> float:
    return read(metrics.render()).get((name, frozenset(labels.items())), 0)


def count(metrics: Metrics, tool: str, error: str | None = None) -> float:
    labels = {"mcp_method_name": "tools/call", "gen_ai_tool_name": tool} | ({"error_type": error} if error else {})
    return value(metrics, NAME + "_count", **labels)


async def test_every_outcome_is_counted_under_its_error_type() -> None:
    board, metrics = Board(), Metrics()

    @board.tool
    async def run(how: str) -> ToolResult:
        match how:
            case "raise":
                raise ValueError("no")
            case "say":
                raise ToolError("no")
        return ToolResult("x", is_error=how == "fail")

    board.use(metrics, RateLimit(5, 3600))
    async with Client(board) as client:
        for how in ("work", "work", "fail", "raise", "say", "once too often"):
            await client.call("run", {"how": how})
        for name in ("walk", "fly"):
            with pytest.raises(InvalidParams, match=rf"Unknown tool: .{name}."):
                await client.call(name)
    assert count(metrics, "run") == 2
    assert count(metrics, "run", "tool_error") == 4
    assert count(metrics, "(unknown)", "-32602") == 2
    assert value(metrics, "pegboard_calls_refused_total", reason="rate_limit") == 1


def test_durations_fall_into_the_buckets_of_the_conventions() -> None:
    assert BUCKETS == (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300)
    metrics, call = Metrics(), make_call("run")
    for seconds in (0.001, 0.01, 0.011, 299, 400):
        metrics.observe(call, Observation(0, seconds, Done({})))
    series = read(metrics.render())
    labels = {("mcp_method_name", "tools/call"), ("gen_ai_tool_name", "run")}
    seen = {
        bound: series[NAME + "_bucket", frozenset(labels | {("le", bound)})]
        for bound in ("0.01", "0.02", "120.0", "300.0", "+Inf")
    }
    # A bound is within its bucket, and each bucket holds those below it.
    assert seen == {"0.01": 2, "0.02": 3, "120.0": 3, "300.0": 4, "+Inf": 5}
    assert series[NAME + "_sum", frozenset(labels)] == pytest.approx(699.022)


async def test_repairs_and_tokens_are_counted_where_there_are_any() -> None:
    board, metrics = Board(), Metrics()

    @board.tool
    async def double(number: int) -> int:
        return 2 * number

    board.use(metrics, TokenCount())
    async with Client(board) as client:
        await client.call("double", {"number": "21"})
    series = read(metrics.render())
    (repaired,) = [
        (labels, value) for (name, labels), value in series.items() if name == "pegboard_args_repaired_total"
    ]
    assert ("tool", "double") in repaired[0]
    assert repaired[1] == 1
    for direction in ("in", "out"):
        assert series["pegboard_tool_tokens_total", frozenset({("direction", direction)})] > 0


async def test_no_caller_and_no_author_makes_the_number_of_series_grow() -> None:
    metrics = Metrics(tools=3)
    for number in range(50):
        await run_alone(metrics, call=make_call(f"tool{number}"))
        refusal: Any = type("Authored", (Refusal,), {"code": number})("no")
        await run_alone(metrics, call=make_call("tool0"), answer=refusal)
    tools = {value for _, labels in read(metrics.render()) for key, value in labels if key == "gen_ai_tool_name"}
    errors = {value for _, labels in read(metrics.render()) for key, value in labels if key == "error_type"}
    assert tools == {"tool0", "tool1", "tool2", "(others)"}
    assert errors == {"_OTHER"}
    assert count(metrics, "(others)") == 47


async def test_a_label_is_escaped() -> None:
    metrics = Metrics()
    call = make_call()
    call.method = 'a"b\\c\nd'
    await run_alone(metrics, call=call)
    assert 'mcp_method_name="a\\"b\\\\c\\nd"' in metrics.render()
    assert any(("mcp_method_name", 'a"b\\c\nd') in labels for _, labels in read(metrics.render()))


@on_one_machine("the gateway is part of the test")
async def test_the_state_of_servers_and_the_time_of_a_hop_are_measured_in_a_gateway() -> None:
    board = Board("sums")

    @board.tool
    async def add(a: int, b: int) -> int:
        return a + b

    gateway, metrics = (
        Gateway({"toolboxes": {"dev": {"description": "Sums", "mcpServers": {"sums": {"board": board}}}}}),
        Metrics(),
    )
    gateway.use(metrics)
    async with Client(gateway) as client:
        await gateway.wait_connected(10)
        await client.call("dev__sums__add", {"a": 2, "b": 3})
        series = read(metrics.render())
    server = frozenset({("server", "dev/sums")})
    assert series["pegboard_downstream_up", server] == 1
    assert series["pegboard_downstream_breaker_open", server] == 0
    assert series["pegboard_downstream_waiting", server] == 0
    assert series["pegboard_downstream_state", server | {("state", "ready")}] == 1
    assert series["pegboard_downstream_state", server | {("state", "failed")}] == 0
    assert series["pegboard_calls_parked", frozenset()] == 0
    called = {("mcp_method_name", "tools/call"), ("gen_ai_tool_name", "dev__sums__add")}
    whole = series[NAME + "_sum", frozenset(called)]
    there = series["mcp_client_operation_duration_seconds_sum", frozenset(called | server)]
    hop = series["pegboard_gateway_hop_duration_seconds_sum", server]
    assert whole == pytest.approx(there + hop)
    # A gateway that has stopped is not measured any more.
    assert "pegboard_downstream_up" not in metrics.render()


def test_the_program_itself_is_a_series() -> None:
    (labels,) = [labels for name, labels in read(Metrics().render()) if name == "pegboard_build_info"]
    assert {key for key, _ in labels} == {"version", "python"}


async def scrape(board: Board) -> httpx.Response:
    server = await listen(make_endpoint(board, resolve_options({}, {}), None), Limits())
    try:
        async with httpx.AsyncClient() as web:
            return await web.get(f"http://127.0.0.1:{server.port}/metrics")
    finally:
        await server.close()


async def test_metrics_need_the_credentials_of_calls(tmp_path: Path) -> None:
    store = f"sqlite:{tmp_path / 'store.sqlite'}"
    opened = open_store(store, Limits())
    await opened.start()
    key = await ApiKeys(opened.records).add("ann")
    await opened.close()
    board = Board("measured", auth=Auth(keys=True))
    board.use(Metrics())
    async with serving(board, store=store) as site:
        assert (await site.ask("GET", "/metrics")).status == 401
        assert (await site.ask("GET", "/metrics", headers=bearer(key))).status == 200


async def test_a_board_with_metrics_serves_them_and_one_without_does_not() -> None:
    measured, plain = Board("measured"), Board("plain")
    measured.use(Metrics())
    scraped = await scrape(measured)
    assert (scraped.status_code, (await scrape(plain)).status_code) == (200, 404)
    series = read(scraped.text)
    assert series["pegboard_calls_in_progress", frozenset()] == 0
    assert series["pegboard_sse_streams", frozenset({("kind", "subscription")})] == 0
