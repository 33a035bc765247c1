"""What pegboard.testing promises to those who test with it."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import pegboard.testing
from pegboard import ToolError, ToolResult
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


async def test_a_recorder_tells_what_each_hook_was_given_and_fails_where_told_to() -> None:
    recorder = Recorder("r", fail={"after": ValueError("no")})
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
