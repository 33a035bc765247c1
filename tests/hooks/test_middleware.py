"""Middleware as its author sees it: what may be attached, how it is switched, and what `call` gives."""

from __future__ import annotations

import asyncio
import copy
import gc
import operator
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from pegboard import Board, Client, Middleware, ToolError
from pegboard.call import Call, Handler, Reply
from pegboard.errors import DeclarationError
from pegboard.testing import Recorder, make_call


def echo_board() -> Board:
    board = Board()

    @board.tool(category="data", tags={"users"})
    async def echo(value: int = 0) -> int:
        return value

    return board


async def call_echo(board: Board, **arguments: Any) -> str:
    async with Client(board) as client:
        return (await client.call("echo", arguments)).text


# -- switches -------------------------------------------------------------------------------------------------------


async def test_disabled_middleware_are_completely_skipped() -> None:
    board, recorder = echo_board(), Recorder()
    recorder.enabled = False
    board.use(recorder)
    await call_echo(board)
    assert recorder.hooks == []


async def test_enabled_may_be_set_on_an_instance_at_any_time() -> None:
    board, recorder = echo_board(), Recorder()
    board.use(recorder)
    for enabled, hooks in ((False, 0), (True, 2), (False, 2), (True, 4)):
        recorder.enabled = enabled
        await call_echo(board)
        assert len(recorder.hooks) == hooks
    recorder.enabled = False
    del recorder.enabled  # back to what the class says
    await call_echo(board)
    assert len(recorder.hooks) == 6


async def test_enabled_may_be_set_on_a_class_at_any_time() -> None:
    class Counted(Recorder):
        enabled = False

    class Other(Recorder):
        pass

    board, counted, other = echo_board(), Counted(), Other()
    board.use(counted, other)
    await call_echo(board)
    assert (len(counted.steps), len(other.steps)) == (0, 2)
    Counted.enabled = True
    await call_echo(board)
    assert (len(counted.steps), len(other.steps)) == (2, 4)
    Counted.enabled = False
    await call_echo(board)
    assert (len(counted.steps), len(other.steps)) == (2, 6)


async def test_enabled_may_be_a_property_which_is_asked_once_a_call() -> None:
    class Switched(Recorder):
        on = True
        asked = 0

        @property
        def enabled(self) -> bool:
            self.asked += 1
            return self.on

    board, switched, always = echo_board(), Switched("switched", order=1), Recorder("always", order=2)
    always.steps = switched.steps
    board.use(switched, always)
    await call_echo(board)
    assert switched.hooks == ["switched.before", "always.before", "always.after", "switched.after"]
    switched.steps.clear()
    switched.on = False
    await call_echo(board)
    assert switched.hooks == ["always.before", "always.after"]
    assert switched.asked == 2


async def test_a_property_switches_hooks_and_around_together() -> None:
    class Flickering(Recorder):
        """Says something else each time it is asked."""

        answers = 0
        surrounded = 0

        @property
        def enabled(self) -> bool:
            self.answers += 1
            return self.answers % 2 == 1

        async def around(self, call: Call, proceed: Handler) -> Reply:
            self.surrounded += 1
            return await proceed(call)

    board, flickering = echo_board(), Flickering()
    board.use(flickering)
    for _ in range(4):
        await call_echo(board)
    assert len(flickering.steps) == 4
    assert flickering.surrounded == 2


async def test_an_enabled_property_that_raises_ends_the_call_and_skips_nothing_silently(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Broken(Recorder):
        @property
        def enabled(self) -> bool:
            raise RuntimeError("no settings")

    board = echo_board()
    board.use(Broken())
    assert (await call_echo(board)).startswith("echo failed, error id ")
    assert "no settings" in caplog.text


async def test_order_may_be_set_at_any_time() -> None:
    board, first, second = echo_board(), Recorder("first", order=1), Recorder("second", order=2)
    second.steps = first.steps
    board.use(first, second)
    await call_echo(board)
    assert first.hooks[:2] == ["first.before", "second.before"]
    first.steps.clear()
    first.order = 2.5
    await call_echo(board)
    assert first.hooks[:2] == ["second.before", "first.before"]


async def test_a_hook_set_on_an_instance_is_heard_from_the_next_call_on() -> None:
    board, middleware, heard = echo_board(), Middleware(), []
    board.use(middleware)
    await call_echo(board)
    middleware.before = lambda call: heard.append(call.name)
    await call_echo(board)
    assert heard == ["echo"]


# -- what may be attached -------------------------------------------------------------------------------------------


class Yields(Middleware):
    async def before(self, call: Call) -> Any:
        yield None


class TakesTooLittle(Middleware):
    async def after(self, call: Call) -> None:
        pass


class PlainAround(Middleware):
    def around(self, call: Call, proceed: Handler) -> Any:
        return proceed(call)


class OrderedByName(Middleware):
    order = "first"


async def takes_one(call: Call) -> Reply:
    raise AssertionError


def not_async(call: Call, proceed: Handler) -> Any:
    return proceed(call)


@pytest.mark.parametrize(
    ("middleware", "says"),
    [
        (Middleware, "attach an instance, Middleware()"),
        (7, "a Middleware or an async function of (call, next), got 7"),
        (not_async, "not_async must be `async def`"),
        (takes_one, "takes_one is called with (call, next) and takes (call"),
        (Yields(), "Yields.before is a generator"),
        (TakesTooLittle(), "TakesTooLittle.after is called with (call, result, elapsed_ms) and takes (call"),
        (PlainAround(), "PlainAround.around must be `async def`"),
        (OrderedByName(), "OrderedByName.order must be a number, got 'first'"),
    ],
)
def test_what_cannot_work_is_refused_when_it_is_attached(middleware: Any, says: str) -> None:
    board = Board()
    with pytest.raises(DeclarationError) as on_the_board:
        board.use(Recorder(), middleware)
    assert says in str(on_the_board.value)
    assert list(board._attached) == []

    with pytest.raises(DeclarationError):

        @board.tool(middleware=[middleware])
        def tool() -> None: ...


async def test_a_middleware_may_be_abstract_a_dataclass_or_without_a_hash() -> None:
    class Watching(Middleware, ABC):
        @abstractmethod
        def note(self, name: str) -> None: ...

        async def before(self, call: Call) -> None:
            self.note(call.name)

    @dataclass
    class Listing(Watching):
        names: list[str]

        def note(self, name: str) -> None:
            self.names.append(name)

    board, listing = echo_board(), Listing([])
    board.use(listing)
    await call_echo(board)
    assert listing.names == ["echo"]
    Listing.enabled = False
    await call_echo(board)
    assert listing.names == ["echo"]


def test_watching_keeps_no_middleware_alive() -> None:
    board, recorder = echo_board(), Recorder()
    board.use(recorder)
    gone = weakref.ref(recorder)
    del board, recorder
    gc.collect()
    assert gone() is None


# -- what `call` gives ----------------------------------------------------------------------------------------------


async def test_call_gives_what_was_asked_and_what_was_found_out(road: str) -> None:
    board, seen = echo_board(), {}

    class Looking(Middleware):
        async def before(self, call: Call) -> None:
            seen["before"] = (call.name, call.arguments, call.parsed, call.tool.category, set(call.tool.tags))

        async def after(self, call: Call, result: Mapping[str, Any], elapsed_ms: float) -> None:
            seen["after"] = (call.arguments, call.parsed.arguments, [warning.code for warning in call.warnings])
            seen["who"] = (call.principal.id, call.client["name"], call.session, call.transport, call.version)
            seen["elapsed"] = elapsed_ms

    board.use(Looking())
    assert await call_echo(board, value="7") == "7"
    assert seen["before"] == ("echo", {"value": "7"}, None, "data", {"users"})
    assert seen["after"][:2] == ({"value": "7"}, {"value": 7})
    assert len(seen["after"][2]) == 1
    assert seen["who"] == ("", "pegboard", "", "ws" if road == "ws" else "direct", "2026-07-28")
    assert 0 < seen["elapsed"] < 60_000


async def test_state_is_one_bag_for_all_hooks_of_a_call_even_where_arguments_were_replaced() -> None:
    board, seen = echo_board(), []

    class Outer(Middleware):
        order = 1

        async def after(self, call: Call, result: Mapping[str, Any], elapsed_ms: float) -> None:
            seen.append((dict(call.state), call.arguments, call.parsed.arguments))

    async def replace(call: Call, proceed: Handler) -> Reply:
        return await proceed(call.with_arguments({"value": 2}))

    class Inner(Middleware):
        order = 3

        async def before(self, call: Call) -> None:
            call.state["inner"] = call.arguments

    board.use(Outer(), Inner())
    board.use(replace, order=2)
    assert await call_echo(board, value=1) == "2"
    assert await call_echo(board, value=1) == "2"
    # The outer one sees what was sent, what the tool was given, and the state that an inner one began.
    assert seen == [({"inner": {"value": 2}}, {"value": 1}, {"value": 2})] * 2


# -- stopping a call ------------------------------------------------------------------------------------------------


async def test_a_hook_can_cancel_its_call_which_fails_only_that_call() -> None:
    board, recorder = Board(), Recorder(order=1)

    class Stopping(Middleware):
        order = 2

        async def before(self, call: Call) -> None:
            call.with_arguments({}).cancel()
            call.cancel()

    @board.tool
    async def wait() -> None:
        await asyncio.Event().wait()

    board.use(recorder, Stopping())
    async with Client(board) as client:
        result = await client.call("wait")
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0
    assert (result.is_error, result.text) == (True, "wait was stopped before it had a result")
    assert recorder.hooks == ["recorder.before", "recorder.error"]
    assert isinstance(recorder.steps[1].exception, asyncio.CancelledError)


async def test_a_task_that_a_hook_started_may_stop_the_call_but_only_while_it_runs() -> None:
    board, kept = Board(), []

    class Watching(Middleware):
        async def before(self, call: Call) -> None:
            kept.append(call)
            asyncio.get_running_loop().call_soon(call.cancel)

    @board.tool
    async def wait(seconds: float) -> str:
        await asyncio.sleep(seconds)
        return "waited"

    board.use(Watching())
    async with Client(board) as client:
        assert (await client.call("wait", {"seconds": 50})).text == "wait was stopped before it had a result"
        kept[0].cancel()
        await asyncio.sleep(0)  # a cancel of this very task would arrive here


async def test_a_stop_that_comes_too_late_leaves_the_result_as_it_is() -> None:
    board = echo_board()

    class Late(Middleware):
        async def after(self, call: Call, result: Mapping[str, Any], elapsed_ms: float) -> None:
            call.cancel()

    board.use(Late())
    assert await call_echo(board, value=3) == "3"
    await asyncio.sleep(0)


async def test_a_stopped_call_that_is_cancelled_from_outside_too_is_cancelled() -> None:
    board, begun = Board(), asyncio.Event()

    class Both(Middleware):
        async def error(self, call: Call, exception: BaseException, elapsed_ms: float) -> None:
            call.cancel()

    @board.tool
    async def wait() -> None:
        begun.set()
        await asyncio.Event().wait()

    board.use(Both())
    async with Client(board) as client:
        task = asyncio.ensure_future(client.call("wait"))
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert task.cancelled()


async def test_the_text_of_a_tool_error_of_a_hook_reaches_the_model() -> None:
    board = echo_board()
    board.use(Recorder(fail={"before": ToolError("not on a Sunday")}))
    assert await call_echo(board) == "not on a Sunday"


async def test_a_hook_sees_no_arguments_if_the_client_sent_a_text_in_place_of_an_object() -> None:
    seen: list[tuple[object, object]] = []

    class Look(Middleware):
        async def before(self, call: Call) -> None:
            seen.append((call.arguments, call.sent))

    board = Board("odd")
    board.use(Look())

    @board.tool
    def add(a: int) -> int:
        return a

    async with Client(board) as client:
        await client.request("tools/call", {"name": "add", "arguments": '{"a": 1}'})
    assert seen == [({}, '{"a": 1}')]


async def test_arguments_cannot_be_changed_in_place_and_the_error_says_what_to_do_instead() -> None:
    problems: list[str] = []

    class Edit(Middleware):
        async def before(self, call: Call) -> None:
            edits: list[Callable[[], object]] = [
                lambda: operator.setitem(call.arguments, "text", "edited"),  # type: ignore[call-overload] # as authors try
                lambda: operator.setitem(call.arguments["where"], "limit", 9),
                lambda: call.arguments["where"]["fields"].append("b"),
            ]
            for edit in edits:
                with pytest.raises(TypeError, match="read-only") as raised:
                    edit()
                problems.append(str(raised.value))
            copied = copy.deepcopy(call.arguments)
            copied["where"]["fields"].append("b")

    board, recorder, got = Board("edited"), Recorder(order=-1), list[Any]()
    board.use(Edit(), recorder)

    @board.tool
    def search(text: str, where: dict[str, Any]) -> str:
        got.append((text, where))
        return "found"

    sent = {"text": "as sent", "where": {"limit": 1, "fields": ["a"]}}
    async with Client(board) as client:
        assert (await client.call("search", sent)).text == "found"
    assert got == [("as sent", sent["where"])]
    assert [step.arguments for step in recorder.steps] == [sent, sent]
    assert all("call.replace_arguments({...})" in problem for problem in problems)
    assert len(problems) == 3


async def test_replaced_arguments_are_repaired_checked_and_seen_by_all_other_hooks() -> None:
    class Replace(Middleware):
        def __init__(self) -> None:
            self.arguments: dict[str, Any] = {}

        async def before(self, call: Call) -> None:
            call.replace_arguments({**call.arguments, **self.arguments})

    board, recorder, replace = Board("replaced"), Recorder(order=-1), Replace()
    board.use(replace, recorder)

    @board.tool
    def add(a: int, b: int) -> int:
        return a + b

    async with Client(board) as client:
        replace.arguments = {"b": "40"}
        repaired = await client.call("add", {"a": 2, "b": 3})
        replace.arguments = {"b": "many"}
        rejected = await client.call("add", {"a": 2, "b": 3})
    assert repaired.text.splitlines()[0] == "42"
    assert rejected.is_error
    assert "b: " in rejected.text
    assert [step.arguments["b"] for step in recorder.steps] == [3, "40", 3, "many"]
    with pytest.raises(TypeError, match="takes a mapping"):
        make_call().replace_arguments(["b"])  # type: ignore[arg-type] # what is not a mapping
