"""The order in which middleware runs around a call, and what becomes of it when something fails."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import Any

import pytest

from pegboard import (
    Board,
    Client,
    JsonRpcMessage,
    Middleware,
    Parameter,
    Tool,
    ToolError,
    ToolExecutionContext,
    ToolResponse,
    ToolResult,
    ValueKind,
)
from pegboard.call import Call, Done, Handler, Reply
from pegboard.call_target import UNKNOWN_ITEM
from pegboard.client.client import CallResult
from pegboard.errors import InvalidArguments, InvalidParams
from pegboard.hooks import hook_chain
from pegboard.testing import Recorder, Step, run_alone
from tests.client_variants import fails_here, on_one_machine
from tests.loops import skip
from tests.waiting import SOON, until


def recorders(*orders: float, **options: Any) -> list[Recorder]:
    """Recorders named after their order, all writing into one list."""
    steps: list[Step] = []
    return [Recorder(f"{order:g}", order=order, steps=steps, **options) for order in orders]


def adding_board() -> Board:
    board = Board()

    @board.tool
    async def add(a: int, b: int) -> int:
        return a + b

    return board


async def call(board: Board, name: str = "add", **arguments: Any) -> CallResult:
    async with Client(board) as client:
        return await client.call(name, {"a": 2, "b": 3} if name == "add" and not arguments else arguments)


# -- order, in the seed's sentences ---------------------------------------------------------------------------------


async def test_sort_middleware_by_order_ascending() -> None:
    board, (late, early, middle) = adding_board(), recorders(100, 5, 20)
    board.use(late, early, middle)
    await call(board)
    assert late.hooks[:3] == ["5.before", "20.before", "100.before"]


async def test_before_hooks_in_order_then_after_hooks_in_reverse_order() -> None:
    board, hooks = adding_board(), recorders(1, 2, 3)
    board.use(*hooks)
    assert (await call(board)).text == "5"
    assert hooks[0].hooks == ["1.before", "2.before", "3.before", "3.after", "2.after", "1.after"]


@fails_here
async def test_error_hooks_in_reverse_order_if_an_error_occurs() -> None:
    board, hooks = Board(), recorders(1, 2, 3)

    @board.tool
    async def fail() -> None:
        raise ValueError("secret")

    board.use(*hooks)
    assert (await call(board, "fail")).is_error
    assert hooks[0].hooks == ["1.before", "2.before", "3.before", "3.error", "2.error", "1.error"]
    assert all(str(step.exception) == "secret" for step in hooks[0].steps[3:])
    assert all(step.elapsed_ms is not None and step.elapsed_ms > 0 for step in hooks[0].steps[3:])


async def test_parameter_validation_comes_after_the_before_hooks() -> None:
    board, (recorder,) = adding_board(), recorders(1)
    board.use(recorder)
    result = await call(board, a="many", b=3)
    assert result.is_error
    assert recorder.hooks == ["1.before", "1.error"]
    assert recorder.steps[0].arguments == {"a": "many", "b": 3}
    assert isinstance(recorder.steps[1].exception, InvalidArguments)


async def test_equal_orders_keep_the_order_in_which_they_were_attached_across_recomposing() -> None:
    board, hooks = adding_board(), recorders(*[7] * 6)
    for index, recorder in enumerate(hooks):
        recorder.name = str(index)
        board.use(recorder)
    for _ in range(3):
        hooks[0].steps.clear()
        await call(board)
        assert hooks[0].hooks[:6] == [f"{index}.before" for index in range(6)]
        board.tools._touch()


# -- scopes ---------------------------------------------------------------------------------------------------------


@on_one_machine("a name with a dot goes by another one there")
async def test_global_and_specific_middleware_are_merged_by_order() -> None:
    board = Board()
    on_board, on_group, on_category, on_tag, by_name, own, last = hooks = recorders(6, 5, 4, 3, 2, 1, 7)

    @board.group("math").tool(category="data", tags={"pure", "fast"}, middleware=[own, last])
    async def add() -> None: ...

    @board.tool
    async def other() -> None: ...

    board.use(on_board)
    board.group("math").use(on_group)
    board.use(on_category, category="data")
    board.use(on_tag, tag="fast")
    board.use(by_name, tool=["math.add", "nothing"])
    await call(board, "math.add")
    assert on_board.hooks[:7] == [f"{order}.before" for order in range(1, 8)]
    assert on_board.hooks[7:] == [f"{order}.after" for order in range(7, 0, -1)]
    on_board.steps.clear()
    await call(board, "other")
    assert on_board.hooks == ["6.before", "6.after"]
    assert len(hooks) == 7


@on_one_machine("a name with a dot goes by another one there")
async def test_of_equal_order_the_wider_scope_is_outside() -> None:
    board = Board()
    hooks = recorders(*[50] * 6)
    for name, recorder in zip(("own", "tool", "tag", "category", "group", "board"), hooks, strict=True):
        recorder.name = name

    @board.tool("g.x", category="c", tags={"t"}, middleware=[hooks[0]])
    async def x() -> None: ...

    board.use(hooks[1], tool="g.x")
    board.use(hooks[2], tag="t")
    board.use(hooks[3], category="c")
    board.use(hooks[4], group="g")
    board.use(hooks[5])
    await call(board, "g.x")
    before = [step.recorder for step in hooks[0].steps if step.hook == "before"]
    assert before == ["board", "group", "category", "tag", "tool", "own"]


async def test_an_order_given_with_use_goes_before_the_middlewares_own() -> None:
    board, (one, two) = adding_board(), recorders(1, 2)
    board.use(two)
    board.use(one, order=3)
    await call(board)
    assert one.hooks[:2] == ["2.before", "1.before"]


async def test_one_middleware_attached_in_several_ways_goes_around_a_call_once() -> None:
    board, (recorder,) = Board(), recorders(1)
    surrounded = []

    async def around(call: Call, proceed: Handler) -> Reply:
        surrounded.append(call.name)
        return await proceed(call)

    @board.tool(category="c", tags={"t"}, middleware=[recorder, around])
    async def x() -> None: ...

    board.use(recorder, around)
    board.use(recorder, around, category="c", tag="t", tool="x")
    await call(board, "x")
    assert recorder.hooks == ["1.before", "1.after"]
    assert surrounded == ["x"]


async def test_an_empty_list_of_tools_selects_no_tool_rather_than_the_whole_board() -> None:
    board, (recorder,) = adding_board(), recorders(1)
    board.use(recorder, tool=[])
    await call(board)
    assert recorder.hooks == []


@on_one_machine("a name with a dot goes by another one there")
async def test_a_group_is_its_whole_name_and_groups_within_it() -> None:
    board, (recorder,) = Board(), recorders(1)
    for name in ("math.add", "math.trig.sin", "maths.add", "math"):
        board.add(lambda: None, name=name)
    board.group("math").use(recorder)
    for name in ("math.add", "math.trig.sin", "maths.add", "math"):
        await call(board, name)
    assert [step.tool for step in recorder.steps if step.hook == "before"] == ["math.add", "math.trig.sin"]


async def test_middleware_added_after_the_first_call_also_runs_for_tools_registered_later() -> None:
    board, (recorder,) = adding_board(), recorders(1)
    await call(board)
    board.use(recorder)
    await call(board)
    board.add(lambda: None, name="later")
    await call(board, "later")
    assert [step.tool for step in recorder.steps] == ["add", "add", "later", "later"]


async def test_the_boards_middleware_wraps_calls_of_unknown_tools() -> None:
    board, (on_board, on_tool) = adding_board(), recorders(1, 2)
    board.use(on_board)
    board.use(on_tool, tool="ad")
    for _ in range(2):
        with pytest.raises(InvalidParams, match=r"Unknown tool: .ad."):
            await call(board, "ad")
    assert on_board.hooks == ["1.before", "1.error"] * 2


# -- around ---------------------------------------------------------------------------------------------------------


async def test_an_around_may_replace_the_arguments() -> None:
    async def double(call: Call, proceed: Handler) -> Reply:
        return await proceed(call.with_arguments({name: value * 2 for name, value in call.arguments.items()}))

    board, (outer, inner) = adding_board(), recorders(1, 3)
    board.use(outer, inner)
    board.use(double, order=2)
    assert (await call(board)).text == "10"
    assert [step.arguments["a"] for step in outer.steps] == [2, 4, 4, 2]


async def test_an_around_may_replace_the_result() -> None:
    async def shout(call: Call, proceed: Handler) -> Reply:
        await proceed(call)
        return Done({"content": [{"type": "text", "text": "FIVE"}], "isError": True})

    board, (outer, inner) = adding_board(), recorders(1, 3)
    board.use(outer, inner)
    board.use(shout, order=2)
    assert (await call(board)).text == "FIVE"
    assert [(step.recorder, step.failed) for step in outer.steps[2:]] == [("3", False), ("1", True)]


async def test_an_around_may_answer_itself() -> None:
    async def answer(call: Call, proceed: Handler) -> Reply:
        return Done({"content": [{"type": "text", "text": "no need"}]})

    board, (outer, inner) = adding_board(), recorders(1, 3)
    board.use(outer, inner)
    board.use(answer, order=2)
    assert (await call(board)).text == "no need"
    assert outer.hooks == ["1.before", "1.after"]


@fails_here
async def test_an_around_may_try_again_and_each_pass_is_whole() -> None:
    board, (outer, inner), tries = Board(), recorders(1, 3), iter((ValueError(), KeyError(), None))

    async def retry(call: Call, proceed: Handler) -> Reply:
        while True:
            try:
                return await proceed(call)
            except Exception:  # noqa: BLE001 — any failure of this test's tool
                continue

    @board.tool
    async def flaky() -> str:
        problem = next(tries)
        if problem is not None:
            raise problem
        return "at last"

    board.use(outer, inner)
    board.use(retry, order=2)
    assert (await call(board, "flaky")).text == "at last"
    assert outer.hooks == ["1.before", *["3.before", "3.error"] * 2, "3.before", "3.after", "1.after"]


async def test_the_hooks_of_a_middleware_are_outside_its_own_around() -> None:
    steps: list[str] = []

    class Both(Middleware):
        async def before(self, call: Call) -> None:
            steps.append("before")

        async def after(self, call: Call, result: Mapping[str, Any], elapsed_ms: float) -> None:
            steps.append("after")

        async def around(self, call: Call, proceed: Handler) -> Reply:
            steps.append("in")
            reply = await proceed(call)
            steps.append("out")
            return reply

    board = adding_board()
    board.use(Both())
    await call(board)
    assert steps == ["before", "in", "out", "after"]


@pytest.mark.parametrize("returned", [None, {"content": []}, "text", Done("text")])
async def test_an_around_that_returns_the_wrong_type_is_a_failure_that_names_it(
    returned: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async def forgetful(call: Call, proceed: Handler) -> Reply:
        await proceed(call)
        return returned

    board, (outer,) = adding_board(), recorders(1)
    board.use(outer)
    board.use(forgetful, order=2)
    assert (await call(board)).text.startswith("add failed, error id ")
    assert outer.hooks == ["1.before", "1.error"]
    assert "forgetful must return the reply of a call" in caplog.text


async def test_an_around_may_run_the_rest_in_a_task_of_its_own() -> None:
    async def hedge(call: Call, proceed: Handler) -> Reply:
        return (await asyncio.gather(proceed(call), proceed(call)))[0]

    board, (outer, inner) = adding_board(), recorders(1, 3)
    board.use(outer, inner)
    board.use(hedge, order=2)
    assert (await call(board)).text == "5"
    assert sorted(outer.hooks) == ["1.after", "1.before", "3.after", "3.after", "3.before", "3.before"]


# -- failures -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("raised", [ValueError("no"), ToolError("no"), SystemExit(1), asyncio.CancelledError()])
async def test_when_a_before_hook_raises_the_hooks_already_entered_are_notified_and_the_tool_does_not_run(
    raised: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    board, ran, hooks = Board(), [], recorders(1, 2, 3, 4)

    @board.tool
    async def tool() -> None:
        ran.append(1)

    hooks[2].fail = {"before": raised}
    board.use(*hooks)
    assert (await call(board, "tool")).is_error
    assert hooks[0].hooks == ["1.before", "2.before", "3.before", "2.error", "1.error"]
    assert all(step.exception is raised for step in hooks[0].steps[3:])
    assert ran == []


@pytest.mark.parametrize("raised", [ValueError("no"), ToolError("no"), SystemExit(1), asyncio.CancelledError()])
async def test_when_an_after_hook_raises_it_is_logged_and_the_result_stands(
    raised: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    board, hooks = adding_board(), recorders(1, 2, 3)
    hooks[1].fail = {"after": raised}
    board.use(*hooks)
    assert (await call(board)).text == "5"
    assert hooks[0].hooks[3:] == ["3.after", "2.after", "1.after"]
    assert "the after-hook Recorder.after failed; the result is kept" in caplog.text


@fails_here
@pytest.mark.parametrize("raised", [ValueError("no"), ToolError("no"), SystemExit(1), asyncio.CancelledError()])
async def test_when_an_error_hook_raises_it_is_logged_and_the_rest_run(
    raised: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    board, hooks = Board(), recorders(1, 2, 3)

    @board.tool
    async def fail() -> None:
        raise ToolError("the tool's own words")

    hooks[1].fail = {"error": raised}
    board.use(*hooks)
    assert (await call(board, "fail")).text == "the tool's own words"
    assert hooks[0].hooks[3:] == ["3.error", "2.error", "1.error"]
    assert "the error-hook Recorder.error failed" in caplog.text


@fails_here
@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt, GeneratorExit, asyncio.CancelledError])
@pytest.mark.parametrize("threaded", [False, True])
async def test_any_exception_that_ends_a_tool_reaches_the_error_hooks_and_ends_nothing_else(
    kind: type[BaseException], threaded: bool, caplog: pytest.LogCaptureFixture
) -> None:
    board, (outer, inner), raised = Board(), recorders(1, 2), kind()

    def leave() -> None:
        raise raised

    async def leave_on_the_loop() -> None:
        raise raised

    board.add(leave if threaded else leave_on_the_loop, name="leave")
    board.use(outer, inner)
    async with Client(board) as client:
        assert (await client.call("leave")).text.startswith("leave failed, error id ")
        assert (await client.call("leave")).is_error
    assert outer.hooks == ["1.before", "2.before", "2.error", "1.error"] * 2
    assert outer.steps[2].exception is raised


async def test_a_result_that_is_an_error_for_the_model_goes_to_the_after_hooks_as_failed() -> None:
    board, (recorder,) = Board(), recorders(1)

    @board.tool
    async def choose(fail: bool) -> ToolResult:
        return ToolResult("text", is_error=fail)

    board.use(recorder)
    for fail in (True, False):
        assert (await call(board, "choose", fail=fail)).is_error is fail
    assert [(step.hook, step.failed) for step in recorder.steps if step.hook != "before"] == [
        ("after", True),
        ("after", False),
    ]


async def test_a_plain_function_is_a_hook_too_and_may_return_something_to_wait_for() -> None:
    heard: list[str] = []

    class Plain(Middleware):
        def before(self, call: Call) -> None:
            heard.append("before")

        def after(self, call: Call, result: Any, elapsed_ms: float) -> Any:
            async def later() -> None:
                await asyncio.sleep(0)
                heard.append("after")

            return later()

    board = adding_board()
    board.use(Plain())
    await call(board)
    assert heard == ["before", "after"]


async def test_the_return_value_of_a_hook_is_ignored_with_a_single_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Hopeful(Middleware):
        async def before(self, call: Call) -> dict[str, int]:
            return {"a": 100}

        def after(self, call: Call, result: Any, elapsed_ms: float) -> str:
            return "another result"

    board = adding_board()
    board.use(Hopeful())
    async with Client(board) as client:
        for _ in range(3):
            assert (await client.call("add", {"a": 2, "b": 3})).text == "5"
    assert [record.getMessage().partition(",")[0] for record in caplog.records] == [
        f"{Hopeful.before.__qualname__} returned a dict",
        f"{Hopeful.after.__qualname__} returned a str",
    ]


# -- cancellation, hanging, blocking --------------------------------------------------------------------------------


class Hanging(Middleware):
    """A hook that never returns."""

    def __init__(self, *hooks: str, order: float = 0) -> None:
        self.order = order
        self.begun = asyncio.Event()
        for name in hooks:
            setattr(self, name, self.hang)

    async def hang(self, *_: Any) -> None:
        self.begun.set()
        await asyncio.Event().wait()


async def cancel_when(begun: asyncio.Event, board: Board, name: str = "add") -> None:
    async with Client(board) as client:
        task = asyncio.ensure_future(client.call(name, {"a": 2, "b": 3} if name == "add" else {}))
        await asyncio.wait_for(begun.wait(), SOON)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(asyncio.shield(task), SOON)


async def test_a_cancelled_call_runs_its_error_hooks() -> None:
    board, begun, (outer, inner) = Board(), asyncio.Event(), recorders(1, 2)

    @board.tool
    async def wait() -> None:
        begun.set()
        await asyncio.Event().wait()

    board.use(outer, inner)
    await cancel_when(begun, board, "wait")
    assert outer.hooks == ["1.before", "2.before", "2.error", "1.error"]
    assert all(isinstance(step.exception, asyncio.CancelledError) for step in outer.steps[2:])


async def test_a_hook_that_hangs_holds_its_own_call_until_that_is_cancelled() -> None:
    board, hanging, (outer,) = adding_board(), Hanging("before", order=2), recorders(1)
    board.use(hanging, tool="add")
    board.use(outer)
    board.add(lambda: "quick", name="other")

    async with Client(board) as client:
        task = asyncio.ensure_future(client.call("add", {"a": 2, "b": 3}))
        await asyncio.wait_for(hanging.begun.wait(), SOON)
        assert (await client.call("other")).text == "quick"
        assert not task.done()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert [step.hook for step in outer.steps if step.tool == "add"] == ["before", "error"]


async def test_a_cancellation_during_an_after_hook_is_reported_to_the_outer_hooks() -> None:
    board, hanging, hooks = adding_board(), Hanging("after", order=2), recorders(1, 3)
    board.use(hanging, *hooks)
    await cancel_when(hanging.begun, board)
    assert hooks[0].hooks == ["1.before", "3.before", "3.after", "1.error"]


async def test_the_error_hooks_of_a_cancelled_call_have_one_second_in_all(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert hook_chain._CLEANUP_SECONDS == 1.0
    monkeypatch.setattr(hook_chain, "_CLEANUP_SECONDS", 5.0)

    async def passing(call: Call, proceed: Handler) -> Reply:
        return await proceed(call)

    board, begun, (recorder,) = Board(), asyncio.Event(), recorders(0)

    @board.tool
    async def wait() -> None:
        begun.set()
        await asyncio.Event().wait()

    # Each in a stage of its own: the time is for all stages together.
    hanging = [Hanging("error", order=order) for order in range(1, 40)]
    for one in hanging:
        board.use(one)
        board.use(lambda_around(passing), order=one.order + 0.5)
    board.use(recorder)
    cancelling = asyncio.ensure_future(cancel_when(begun, board, "wait"))
    # The innermost is the first. When its time is over, so is that of all others.
    await asyncio.wait_for(hanging[-1].begun.wait(), SOON)
    await skip(6)
    await cancelling
    # One that need not wait still runs when the time is over.
    await until(lambda: recorder.hooks == ["0.before", "0.error"])
    assert "ran out of time" in caplog.text


def lambda_around(inner: Any) -> Any:
    async def around(call: Call, proceed: Handler) -> Reply:
        reply: Reply = await inner(call, proceed)
        return reply

    return around


async def test_a_second_cancel_ends_the_error_hook_it_meets_and_not_the_others() -> None:
    board, begun, hanging, (outer,) = Board(), asyncio.Event(), Hanging("error", order=2), recorders(1)

    @board.tool
    async def wait() -> None:
        begun.set()
        await asyncio.Event().wait()

    board.use(outer, hanging)
    async with Client(board) as client:
        task = asyncio.ensure_future(client.call("wait"))
        await begun.wait()
        task.cancel()
        await asyncio.wait_for(hanging.begun.wait(), SOON)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    await until(lambda: outer.hooks == ["1.before", "1.error"])


@fails_here
async def test_a_cancel_during_the_error_hooks_of_a_failed_call_cancels_it() -> None:
    board, hanging, (outer,) = Board(), Hanging("error", order=2), recorders(1)

    @board.tool
    async def fail() -> None:
        raise ToolError("the tool's own words")

    board.use(outer, hanging)
    await cancel_when(hanging.begun, board, "fail")
    assert outer.hooks == ["1.before", "1.error"]
    assert isinstance(outer.steps[1].exception, ToolError)


def set_clock(monkeypatch: pytest.MonkeyPatch, clock: Callable[[], float]) -> None:
    monkeypatch.setattr(hook_chain, "perf_counter", clock)


async def test_hooks_that_take_long_are_pointed_to_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    clock = iter(range(0, 1000, 2))
    set_clock(monkeypatch, lambda: next(clock))
    board, (recorder,) = adding_board(), recorders(1)
    board.use(recorder)
    async with Client(board) as client:
        for _ in range(4):
            assert (await client.call("add", {"a": 2, "b": 3})).text == "5"
    after, before = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert after.startswith("the after-hooks of add took 2.0 s: one of Recorder.after waits long, or blocks the event")
    # Those before the tool are looked at once a call has taken long.
    assert before.startswith("the before-hooks of add took 2.0 s: one of Recorder.before waits long, or blocks")


async def test_a_slow_tool_does_not_cause_a_warning_about_hooks(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    now = [0.0]
    set_clock(monkeypatch, lambda: now[0])
    board, (recorder,) = Board(), recorders(1)

    @board.tool
    async def slow() -> None:
        now[0] += 5

    board.use(recorder)
    for _ in range(3):
        await call(board, "slow")
    assert recorder.steps[-1].elapsed_ms == 5000
    assert caplog.records == []


# -- chains ---------------------------------------------------------------------------------------------------------


async def test_calls_in_flight_keep_their_chain_when_it_is_rebuilt() -> None:
    board, begun, go, (one, two) = Board(), asyncio.Event(), asyncio.Event(), recorders(1, 2)

    @board.tool
    async def wait() -> str:
        begun.set()
        await go.wait()
        return "done"

    board.use(one)
    async with Client(board) as client:
        task = asyncio.ensure_future(client.call("wait"))
        await begun.wait()
        one.enabled = False
        board.use(two)
        go.set()
        assert (await task).text == "done"
        assert one.hooks == ["1.before", "1.after"]
        one.steps.clear()
        await client.call("wait")
    assert one.hooks == ["2.before", "2.after"]


async def test_a_hook_that_switches_itself_off_still_hears_the_end_of_its_call() -> None:
    class Once(Recorder):
        async def before(self, call: Call) -> None:
            await super().before(call)
            self.enabled = False

    board, once = adding_board(), Once()
    board.use(once)
    for _ in range(3):
        await call(board)
    assert once.hooks == ["recorder.before", "recorder.after"]


async def test_hooks_that_are_not_overridden_leave_the_handler_as_it_is() -> None:
    from pegboard.hooks.pipeline import Attachment, compose

    async def inner(call: Call) -> Reply:
        raise AssertionError

    class Off(Recorder):
        enabled = False

    attached = [Attachment(one, "board", "", None, index) for index, one in enumerate((Middleware(), Off()))]
    assert compose(attached, UNKNOWN_ITEM, inner) is inner


# -- every authoring style ------------------------------------------------------------------------------------------

SCHEMA = {"type": "object", "properties": {"value": {"type": "integer"}}, "required": ["value"]}


def magic_sync(board: Board, own: Recorder) -> None:
    @board.tool(middleware=[own])
    def run(value: int) -> str:
        return checked(value)


def magic_async(board: Board, own: Recorder) -> None:
    @board.tool(middleware=[own])
    async def run(value: int) -> str:
        return checked(value)


def magic_inline(board: Board, own: Recorder) -> None:
    @board.tool(middleware=[own], inline=True)
    def run(value: int) -> str:
        return checked(value)


def magic_generator(board: Board, own: Recorder) -> None:
    @board.tool(middleware=[own])
    def run(value: int) -> Iterator[str]:
        yield checked(value)


def magic_async_generator(board: Board, own: Recorder) -> None:
    @board.tool(middleware=[own])
    async def run(value: int) -> AsyncIterator[str]:
        yield checked(value)


def explicit_sync(board: Board, own: Recorder) -> None:
    @board.tool("run", input_schema=SCHEMA, middleware=[own])
    def anything(request: JsonRpcMessage) -> JsonRpcMessage:
        assert request.params is not None
        return ToolResponse.success(request.id, checked(request.params["value"]))


def explicit_async(board: Board, own: Recorder) -> None:
    @board.tool("run", input_schema=SCHEMA, middleware=[own])
    async def anything(request: JsonRpcMessage) -> JsonRpcMessage:
        assert request.params is not None
        return ToolResponse.success(request.id, checked(request.params["value"]))


def declared(board: Board, own: Recorder) -> None:
    class Run(Tool):
        name, description = "run", "Runs."
        parameters = (Parameter("value", ValueKind.INTEGER, description="A value"),)
        middleware = (own,)

        async def execute(self, context: ToolExecutionContext) -> ToolResult:
            return ToolResult(checked(context.request.arguments["value"]))

    board.add(Run())


def declared_by_property(board: Board, own: Recorder) -> None:
    class Run(Tool):
        name, description = "run", "Runs."
        parameters = (Parameter("value", ValueKind.INTEGER, description="A value"),)

        @property
        def middleware(self) -> list[Recorder]:
            return [own]

        def execute(self, context: ToolExecutionContext) -> ToolResult:
            return ToolResult(checked(context.request.arguments["value"]))

    board.add(Run())


def hybrid(board: Board, own: Recorder) -> None:
    @board.tool("run", input_schema=SCHEMA, middleware=[own])
    async def anything(value: int) -> str:
        return checked(value)


def checked(value: int) -> str:
    if value < 0:
        raise ToolError("below zero")
    return "fine"


STYLES = [
    magic_sync,
    magic_async,
    magic_inline,
    magic_generator,
    magic_async_generator,
    explicit_sync,
    explicit_async,
    declared,
    declared_by_property,
    hybrid,
]


@pytest.mark.parametrize("style", STYLES, ids=lambda style: style.__name__)
async def test_every_authoring_style_has_the_same_hooks_on_the_loop(
    style: Callable[[Board, Recorder], None], road: str
) -> None:
    board, (outer, own) = Board(), recorders(1, 50)
    surrounded = []

    async def around(call: Call, proceed: Handler) -> Reply:
        surrounded.append(threading.get_ident())
        return await proceed(call.with_arguments({"value": int(call.arguments["value"]) - 1}))

    board.use(outer)
    board.use(around, order=20)
    style(board, own)
    async with Client(board) as client:
        good = await client.call("run", {"value": 1})
        assert "fine" in good.text
        assert outer.hooks == ["1.before", "50.before", "50.after", "1.after"]
        assert [step.arguments["value"] for step in outer.steps] == [1, 0, 0, 1]
        outer.steps.clear()
        bad = await client.call("run", {"value": 0})
        assert (bad.is_error, bad.text) == (True, "below zero")
        # What fails at a server is its result.
        end = "after" if "gateway" in road else "error"
        assert outer.hooks == ["1.before", "50.before", f"50.{end}", f"1.{end}"]
        own.enabled = False
        outer.steps.clear()
        await client.call("run", {"value": 1})
        assert outer.hooks == ["1.before", "1.after"]
    assert {*surrounded, *(step.thread for step in outer.steps)} == {threading.get_ident()}


# -- alone ----------------------------------------------------------------------------------------------------------


async def test_a_middleware_can_be_run_alone_around_a_stub() -> None:
    (recorder,) = recorders(1)
    run = await run_alone(recorder, answer=ValueError("no"))
    assert (run.ran, str(run.exception), recorder.hooks) == (1, "no", ["1.before", "1.error"])
    run = await run_alone(recorder, answer=lambda call: call.name)
    assert (run.text, run.exception) == ("stub", None)
