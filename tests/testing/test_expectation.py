"""Assertions about results, and what they say when they fail."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pegboard import Board, Client, Image, ToolError
from pegboard.client.call_result import CallResult
from pegboard.middleware import RateLimit
from pegboard.testing import Expectation, expect, run_alone


def make_board() -> Board:
    board = Board("expected")

    @board.tool
    async def add(a: int, b: int) -> int:
        return a + b

    @board.tool
    async def draw() -> Any:
        return ["a picture", Image(b"x", mime_type="image/png")]

    @board.tool
    async def fail() -> str:
        raise ToolError("It broke.", code="BROKEN", try_tool=["mend", "ask"])

    board.use(RateLimit(1, per="hour"), tool="draw")
    return board


async def test_assertions_about_good_results_and_errors_can_be_chained() -> None:
    async with Client(make_board()) as client:
        expect(await client.call("add", {"a": 2, "b": 3})).ok().text("5").structured(5).repaired().tokens_at_most(5)
        expect(await client.call("add", {"a": "2", "b": 3})).ok().contains("5").matches("^5$").repaired("a")
        expect(await client.call("add", {"a": "x", "b": None})).error().invalid("a", "b")
        expect(await client.call("fail")).error("broke", code="BROKEN").suggests("mend", "ask")
        expect(await client.call("draw")).ok().blocks("text", "image")
        expect(await client.call("draw")).refused("rate_limit")


GOOD = CallResult([{"type": "text", "text": "five"}], structured=5, meta={"a": 1})
BAD = CallResult([{"type": "text", "text": "no"}], is_error=True)


@pytest.mark.parametrize(
    ("result", "check", "expected"),
    [
        (BAD, lambda it: it.ok(), "expected no error\nthe result is an error\ntext: no"),
        (GOOD, lambda it: it.error(), "expected an error"),
        (BAD, lambda it: it.error("yes"), "expected a text that matches 'yes'"),
        (BAD, lambda it: it.error(code="NO"), "expected an error with the code 'NO', not None"),
        (GOOD, lambda it: it.refused("timeout"), "expected a rejection with the reason 'timeout', not None"),
        (BAD, lambda it: it.invalid("a"), "expected problems at ['a'], not []"),
        (BAD, lambda it: it.invalid(), "expected problems at [], not []"),
        (GOOD, lambda it: it.repaired("a"), "expected repairs at ['a'], not []"),
        (GOOD, lambda it: it.text("six"), "expected the text 'six'"),
        (GOOD, lambda it: it.contains("five", "six"), "expected a text that contains 'six'"),
        (
            GOOD,
            lambda it: it.structured(6),
            "expected the structured content 6\nthe result is not an error\ntext: five\nstructured: 5\nmeta: {'a': 1}",
        ),
        (GOOD, lambda it: it.blocks("image"), "expected content blocks ('image',), not ('text',)"),
        (BAD, lambda it: it.suggests("mend"), "expected suggestions ['mend'], not []"),
        (GOOD, lambda it: it.tokens_at_most(0), "expected at most 0 tokens, not 1"),
    ],
)
def test_a_failed_assertion_shows_what_was_expected_and_the_result(
    result: CallResult, check: Callable[[Expectation], Any], expected: str
) -> None:
    with pytest.raises(AssertionError) as caught:
        check(expect(result))
    assert str(caught.value).startswith(expected)


async def test_the_outcome_of_a_middleware_can_be_asserted_too() -> None:
    expect(await run_alone(answer="done")).ok().text("done")
    expect({"content": [{"type": "text", "text": "raw"}]}).text("raw")
    with pytest.raises(AssertionError, match="expected a result, but the call raised ValueError"):
        expect(await run_alone(answer=ValueError("no")))
