"""What pegboard.testing promises to those who test with it."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from unittest.mock import ANY, MagicMock, Mock, create_autospec

import pytest

import pegboard.testing
from pegboard import Board, Client, Middleware, ToolError, ToolResult
from pegboard.call import Call
from pegboard.errors import DeclarationError
from pegboard.testing import FakeClock, FakeRates, Recorder, make_call, run_alone


def test_the_stub_names_what_the_package_has() -> None:
    stub = Path(pegboard.testing.__file__).with_suffix(".pyi").read_text()
    names = {alias.asname for node in ast.parse(stub).body if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert names == set(pegboard.testing.__all__) == set(dir(pegboard.testing))
    for name in names:
        assert getattr(pegboard.testing, str(name)) is not None
    with pytest.raises(AttributeError, match="no attribute 'Mock'"):
        pegboard.testing.Mock  # noqa: B018


async def test_a_clock_stands_until_it_is_turned() -> None:
    clock = FakeClock(10)
    assert (clock(), clock()) == (10.0, 10.0)
    clock.advance(0.1)
    clock.advance(0.2)
    # Whole microseconds: no rounding adds up.
    assert (clock(), clock.microseconds()) == (10.3, 10_300_000)
    await clock.sleep(1.7)
    assert (clock(), clock.slept) == (12.0, [1.7])
    with pytest.raises(ValueError, match="cannot go back"):
        clock.advance(-1)


async def test_a_call_is_made_by_whomever_you_say() -> None:
    call = make_call("pay", {"amount": 3}, category="money", tags={"a"}, principal="ann", client="desk", meta={"x": 1})
    assert (call.name, call.arguments, call.principal.id, call.client["name"]) == ("pay", {"amount": 3}, "ann", "desk")
    assert (call.tool.category, call.tool.tags) == ("money", {"a"})
    assert b'"x":1' in bytes(call.params)


async def test_a_stub_answers_with_a_value_an_exception_or_a_function() -> None:
    async def later(call: Call) -> str:
        return f"later {call.name}"

    assert (await run_alone(answer=ToolResult("no", is_error=True))).result == {
        "content": [{"type": "text", "text": "no"}],
        "isError": True,
    }
    assert (await run_alone(answer=lambda call: call.name)).text == "stub"
    assert (await run_alone(answer=later)).text == "later stub"
    problem = ToolError("no")
    run = await run_alone(answer=problem)
    assert (run.result, run.exception, run.text) == (None, problem, "")


async def test_what_could_not_be_attached_to_a_board_cannot_be_run_alone() -> None:
    with pytest.raises(DeclarationError):
        await run_alone(Recorder)


async def test_a_recorder_records_the_input_of_each_hook_and_fails_on_request() -> None:
    recorder = Recorder("r", fail={"after": ValueError("no")})
    with pytest.raises(ValueError, match="no"):
        await run_alone(recorder, call=make_call("pay", {"amount": 3}))
    before, after = recorder.steps
    assert (before.hook, before.tool, before.arguments) == ("before", "pay", {"amount": 3})
    assert (after.hook, after.failed) == ("after", False)
    assert after.result is not None
    assert after.elapsed_ms is not None


async def test_a_store_of_rates_counts_what_it_let_through() -> None:
    rates = FakeRates()
    assert [await rates.take("a", 10, 2) for _ in range(3)] == [0, 0, 10]
    assert rates.charged == {"a": 2}


class Fragile(Middleware):
    async def after(self, call: Call, result: Mapping[str, Any], elapsed_ms: float) -> None:
        raise KeyError("after")

    async def error(self, call: Call, exception: BaseException, elapsed_ms: float) -> None:
        raise KeyError("error")


@pytest.mark.parametrize(("answer", "hook"), [("done", "after"), (ToolError("no"), "error")])
async def test_a_hook_that_fails_after_the_call_fails_the_test(answer: object, hook: str) -> None:
    with pytest.raises(KeyError, match=hook):
        await run_alone(Recorder(order=-1), Fragile(), answer=answer)


@pytest.mark.parametrize(
    "double", [Mock(spec=Middleware), MagicMock(spec=Middleware), create_autospec(Middleware, instance=True)]
)
async def test_a_mock_of_a_middleware_is_called_like_one(double: Any) -> None:
    board = Board("mocked")

    @board.tool
    async def add(a: int, b: int) -> int:
        return a + b

    @board.tool
    async def fail() -> None:
        raise ValueError("no")

    board.use(double)
    async with Client(board) as client:
        assert (await client.call("add", {"a": 2, "b": 3})).structured == 5
        double.before.assert_called_once()
        (call,) = double.before.call_args.args
        assert (call.name, call.arguments) == ("add", {"a": 2, "b": 3})
        double.after.assert_called_once_with(call, ANY, ANY)
        double.error.assert_not_called()
        double.enabled = False
        await client.call("add", {"a": 2, "b": 3})
        await client.call("fail")
    double.start.assert_called_once()
    double.stop.assert_called_once()


async def test_a_mock_keeps_the_order_that_it_is_given() -> None:
    seen: list[str] = []
    doubles = [
        Mock(spec=Middleware, order=order, enabled=enabled) for order, enabled in ((2, True), (1, True), (0, False))
    ]
    for double in doubles:
        double.before.side_effect = lambda _call, name=str(double.order): seen.append(name)
    run = await run_alone(*doubles)
    assert (seen, run.text) == (["1", "2"], "done")
