"""Timing: figures of each tool, percentiles from buckets, slow calls."""

from __future__ import annotations

import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pegboard import Board, Client, ToolError
from pegboard.call import Done
from pegboard.errors import DeclarationError
from pegboard.hooks.observation import Observation
from pegboard.middleware import Logging, Timing
from pegboard.testing import make_call


async def record(timing: Timing, *elapsed: float, name: str = "stub") -> None:
    for milliseconds in elapsed:
        timing.observe(make_call(name), ended(milliseconds))


def ended(milliseconds: float) -> Observation:
    return Observation(0.0, milliseconds / 1000, Done({"content": []}))


async def test_every_tool_has_its_count_total_max_and_failures() -> None:
    board, timing = Board(), Timing()
    board.use(timing)

    @board.tool
    async def good() -> str:
        return "ok"

    @board.tool
    async def bad() -> str:
        raise ToolError("no")

    async with Client(board) as client:
        for _ in range(3):
            await client.call("good")
        await client.call("bad")
        with pytest.raises(Exception, match="nknown"):
            await client.call("invented")
    stats = timing.stats()
    assert {name: (one.count, one.failed) for name, one in stats.items()} == {
        "good": (3, 0),
        "bad": (1, 1),
        "(unknown)": (1, 1),
    }
    assert 0 < stats["good"].max <= stats["good"].total
    assert stats["good"].mean == stats["good"].total / 3
    timing.reset()
    assert timing.stats() == {}


@given(st.lists(st.floats(0.001, 900_000), min_size=1, max_size=200))
async def test_percentiles_are_right_within_five_percent_at_any_pace(elapsed: list[float]) -> None:
    timing = Timing(slow_ms=None)
    await record(timing, *elapsed)
    stats, ordered = timing.stats()["stub"], sorted(elapsed)
    for told, share in ((stats.p50, 0.5), (stats.p95, 0.95)):
        exact = ordered[max(0, -int(-len(ordered) * share // 1)) - 1]
        assert exact / 1.05 <= told <= exact * 1.05
    assert stats.max == pytest.approx(ordered[-1])
    assert stats.total == pytest.approx(sum(elapsed))


async def test_times_beyond_the_buckets_are_still_counted() -> None:
    timing = Timing(slow_ms=None)
    await record(timing, 0.0, 1e-9, 1e12)
    stats = timing.stats()["stub"]
    assert stats.count == 3
    assert stats.max == pytest.approx(1e12)
    assert stats.p50 <= 0.0011


async def test_a_slow_call_is_logged_counted_and_marked(caplog: pytest.LogCaptureFixture) -> None:
    timing, slow, quick = Timing(slow_ms=50), make_call("report"), make_call("report")
    timing.observe(quick, ended(49.9))
    timing.observe(slow, ended(50.0))
    assert "slow_ms" not in quick.state
    assert slow.state["slow_ms"] == 50.0
    assert timing.stats()["report"].slow == 1
    assert [record.getMessage() for record in caplog.records] == ["report was slow: 50 ms, the threshold is 50 ms"]


async def test_the_line_of_a_slow_call_says_so(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "pegboard.calls")
    board = Board()

    @board.tool(category="data")
    async def work() -> str:
        return "done"

    board.use(Logging())
    board.use(Timing(slow_ms=0), category="data")
    async with Client(board) as client:
        await client.call("work")
    [line] = [record for record in caplog.records if record.name == "pegboard.calls"]
    assert line.__dict__["slow_ms"] > 0


def test_a_threshold_that_makes_no_sense_is_refused() -> None:
    with pytest.raises(DeclarationError):
        Timing(slow_ms=-1)
