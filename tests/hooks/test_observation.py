"""Observers learn the end of each call once, however it ended, and cannot change it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

import pytest

from pegboard import Board, Client, Context, Middleware, ToolError
from pegboard.call import Call, Handler, Json, Reply
from pegboard.errors import DeclarationError, InvalidParams, LimitReached
from pegboard.hooks.observation import Failure, Observation
from pegboard.testing import run_alone


class Watcher(Middleware):
    """Notes what it sees."""

    order = 50

    def __init__(self) -> None:
        self.seen: list[tuple[str, str, Failure | None]] = []
        self.calls: list[Call] = []

    def observe(self, call: Call, seen: Observation) -> None:
        assert seen.began <= seen.ended
        self.calls.append(call)
        self.seen.append((call.name, seen.outcome, seen.failure))

    @property
    def outcomes(self) -> list[str]:
        return [outcome for _, outcome, _ in self.seen]


def board_with(*middleware: Any) -> Board:
    board = Board("observed")
    board.use(*middleware)

    @board.tool
    async def work(fail: str = "") -> str:
        match fail:
            case "tool":
                raise ToolError("no paper")
            case "limit":
                raise LimitReached("too many", "rate_limit")
            case "refusal":
                raise InvalidParams("not this")
            case "bug":
                raise KeyError("secret")
        return "done"

    return board


async def test_each_way_to_end_is_one_outcome() -> None:
    watcher = Watcher()
    async with Client(board_with(watcher)) as client:
        for fail in ("", "tool", "limit", "refusal", "bug"):
            try:
                await client.call("work", {"fail": fail})
            except InvalidParams:
                assert fail == "refusal"
    assert watcher.outcomes == ["ok", "error", "refused", "refused", "error"]
    failures = [failure for _, _, failure in watcher.seen]
    assert failures[0] is None
    assert failures[1] == Failure("ToolError", "no paper", None, "error", text="no paper")
    assert failures[3] == Failure("InvalidParams", "not this", -32602, "refused", text="not this")
    # The text of an unexpected exception is only for the log.
    assert failures[4] == Failure("KeyError", "", None, "error", text="'secret'")


async def test_a_cancelled_call_and_a_question_are_observed() -> None:
    watcher = Watcher()
    board = board_with(watcher)
    begun = asyncio.Event()

    @board.tool
    async def wait() -> str:
        begun.set()
        await asyncio.Event().wait()
        return ""

    @board.tool
    async def ask(ctx: Context) -> str:
        await ctx.elicit("Really?", bool)
        return "asked"

    async with Client(board, elicit=lambda _: {"value": True}) as client:
        task = asyncio.create_task(client.call("wait"))
        await begun.wait()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await client.call("ask")
    assert watcher.outcomes == ["cancelled", "ok"]


async def test_unknown_tools_are_observed_too() -> None:
    watcher = Watcher()
    async with Client(board_with(watcher)) as client:
        with pytest.raises(InvalidParams):
            await client.call("wrok")
    assert watcher.outcomes == ["refused"]


async def test_an_observer_sees_calls_that_hooks_outside_of_its_order_have_rejected() -> None:
    class Closed(Middleware):
        order = 1

        async def before(self, call: Call) -> None:
            raise ToolError("closed")

    watcher = Watcher()
    run = await run_alone(Closed(), watcher)
    assert isinstance(run.exception, ToolError)
    assert watcher.outcomes == ["error"]


async def test_what_an_observer_raises_is_logged_and_others_still_run(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Middleware):
        def observe(self, call: Call, seen: Observation) -> None:
            raise RuntimeError("broken")

    watcher = Watcher()
    async with Client(board_with(Broken(), watcher)) as client:
        assert (await client.call("work")).text == "done"
    assert watcher.outcomes == ["ok"]
    assert "an observer of tools/call failed" in caplog.text


async def test_a_test_of_a_single_middleware_sees_what_its_observer_raises() -> None:
    class Broken(Middleware):
        def observe(self, call: Call, seen: Observation) -> None:
            raise RuntimeError("broken")

    with pytest.raises(RuntimeError, match="broken"):
        await run_alone(Broken())


async def test_an_observer_is_limited_to_what_it_is_attached_to_and_can_be_disabled() -> None:
    class Sometimes(Watcher):
        on = True

        @property
        def enabled(self) -> bool:  # type: ignore[override]  # read at each call
            return self.on

    other, off, sometimes = Watcher(), Watcher(), Sometimes()
    off.enabled = False
    board = board_with(off, sometimes)
    board.use(other, tool="other")
    async with Client(board) as client:
        await client.call("work")
        sometimes.on = False
        await client.call("work")
    assert (other.outcomes, off.outcomes, sometimes.outcomes) == ([], [], ["ok"])


async def test_the_time_of_the_tool_is_noted_where_other_middleware_runs_around_it() -> None:
    async def pass_on(call: Call, proceed: Handler) -> Reply:
        return await proceed(call.with_arguments(call.arguments))

    alone, around = Watcher(), Watcher()
    async with Client(board_with(alone)) as client:
        await client.call("work")
    async with Client(board_with(around, pass_on)) as client:
        await client.call("work")
    assert alone.calls[0]._inside is None
    inside = around.calls[0]._inside
    assert inside is not None
    assert inside[0] <= inside[1]


def test_an_observer_must_be_a_plain_function(caplog: pytest.LogCaptureFixture) -> None:
    class Waits(Middleware):
        async def observe(self, call: Call, seen: Observation) -> None:  # type: ignore[override]  # the mistake
            pass

    with caplog.at_level(logging.ERROR), pytest.raises(DeclarationError, match="plain `def`"):
        Board("wrong").use(Waits())


async def test_after_hooks_get_the_same_result_as_observers() -> None:
    class Both(Middleware):
        def __init__(self) -> None:
            self.results: list[Any] = []

        async def after(self, call: Call, result: Mapping[str, Json], elapsed_ms: float) -> None:
            self.results.append(result)

        def observe(self, call: Call, seen: Observation) -> None:
            self.results.append(seen.result)

    both = Both()
    async with Client(board_with(both)) as client:
        await client.call("work")
    assert both.results[0] is both.results[1]
