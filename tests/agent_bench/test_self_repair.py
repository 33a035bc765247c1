"""A refusal says enough to repair the call: a reader of the message alone succeeds the second time."""

from __future__ import annotations

from typing import Any

import pytest

from agent_bench.self_repair import repair, repair_all
from pegboard import Board
from tests.repair.sloppy import CALLS
from tests.repair.sloppy_functions import FUNCTIONS


async def test_refused_calls_succeed_after_one_repair_by_their_message() -> None:
    board = Board("sloppy")
    for function in FUNCTIONS.values():
        board.add(function)
    outcomes = await repair_all([(call.tool, call.sent) for call in CALLS], board)
    assert len(outcomes) >= 40
    failed = [outcome for outcome in outcomes if not outcome.succeeded]
    assert len(failed) <= 0.05 * len(outcomes), failed


@pytest.mark.parametrize(
    ("sent", "line", "fixed"),
    [
        ({"unit": "c"}, 'unit: got "c", did you mean "celsius"? One of "celsius", "kelvin"', {"unit": "celsius"}),
        ({"limt": 3}, 'limt: unknown argument, did you mean "limit"?', {"limit": 3}),
        ({"a": 1, "b": 2}, "b: unknown argument, remove it or use one of: a", {"a": 1}),
        ({"ids": [1, "x"]}, 'ids[1]: got "x", expected an integer, e.g. 10', {"ids": [1, 10]}),
        ({"user": '{"age": "old"}'}, 'user.age: got "old", expected an integer, e.g. 10', {"user": {"age": 10}}),
        ("find", 'arguments: got "find", expected an object with q, e.g. {"q":"…"}', {"q": "…"}),
        ({"a": 1}, "the agent's own words", None),
    ],
)
def test_a_message_is_applied_literally(sent: Any, line: str, fixed: Any) -> None:
    assert repair(sent, f"tool: 1 problem with the arguments; nothing was run. Fix and call again:\n- {line}") == fixed


def test_a_message_inside_of_json_is_read_too() -> None:
    shown = '{"error": "x\\n- unit: got \\"c\\", did you mean \\"celsius\\"? One of \\"celsius\\""}'
    assert repair({"unit": "c"}, shown) == {"unit": "celsius"}
