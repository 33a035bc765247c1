"""Counts and durations as a scraper reads them."""

from __future__ import annotations

import re
from typing import Any

import pytest

from pegboard import Board, Client, ToolError, ToolResult
from pegboard.call import Call
from pegboard.errors import InvalidParams, Refusal
from pegboard.middleware import Metrics, RateLimit, TokenCount
from pegboard.middleware.observability.metrics import BUCKETS
from pegboard.testing import make_call, run_alone

NAME = "mcp_server_operation_duration_seconds"
SAMPLE = re.compile(r'([a-zA-Z_:][\w:]*)(?:\{((?:[a-zA-Z_]\w*="(?:[^"\\\n]|\\["\\n])*",?)*)\})? (\S+)')


def read(text: str) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """The text format 0.0.4 by its grammar, and nothing that does not fit it."""
    series: dict[tuple[str, frozenset[tuple[str, str]]], float] = {}
    typed: set[str] = set()
    assert text.endswith("\n")
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert kind in {"counter", "gauge", "histogram"}
            assert name not in typed
            typed.add(name)
        elif not line.startswith("# HELP "):
            found = SAMPLE.fullmatch(line)
            assert found is not None, line
            assert re.sub("_(bucket|sum|count)$", "", found[1]) in typed
            labels = frozenset(re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', found[2] or ""))
            assert (found[1], labels) not in series
            series[found[1], labels] = float(found[3])
    return series


def count(metrics: Metrics, tool: str, error: str | None = None) -> float:
    labels = {("mcp_method_name", "tools/call"), ("gen_ai_tool_name", tool)} | (
        {("error_type", error)} if error else set()
    )
    return read(metrics.render()).get((NAME + "_count", frozenset(labels)), 0)


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


async def test_durations_fall_into_the_buckets_of_the_conventions() -> None:
    assert BUCKETS == (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300)
    metrics, call = Metrics(), make_call("run")
    for milliseconds in (1, 10, 11, 299_000, 400_000):
        await metrics.before(call)
        await metrics.after(call, {}, milliseconds)
    series = read(metrics.render())
    labels = {("mcp_method_name", "tools/call"), ("gen_ai_tool_name", "run")}
    seen = {
        bound: series[NAME + "_bucket", frozenset(labels | {("le", bound)})]
        for bound in ("0.01", "0.02", "120.0", "300.0", "+Inf")
    }
    # A bound is within its bucket, and each bucket holds those below it.
    assert seen == {"0.01": 2, "0.02": 3, "120.0": 3, "300.0": 4, "+Inf": 5}
    assert series[NAME + "_sum", frozenset(labels)] == pytest.approx(699.022)


async def test_calls_in_progress_go_up_and_down_again() -> None:
    metrics = Metrics()
    during: list[float] = []

    def look(_: Call) -> str:
        during.append(read(metrics.render())["pegboard_calls_in_progress", frozenset()])
        return "x"

    await run_alone(metrics, answer=look)
    await run_alone(metrics, answer=ValueError())
    assert during == [1]
    assert read(metrics.render())["pegboard_calls_in_progress", frozenset()] == 0


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
    read(metrics.render())
