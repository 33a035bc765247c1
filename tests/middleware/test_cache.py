"""Answers from memory: whose, for how long, how many, and of which tools."""

from __future__ import annotations

from decimal import Decimal
from itertools import count
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pegboard import Board, Client, ToolError, ToolResult
from pegboard.call import Call, Done, Handler, Reply
from pegboard.errors import DeclarationError
from pegboard.middleware import Cache
from pegboard.testing import FakeClock, make_call, run_alone
from tests.client_variants import on_one_machine


def reading(**options: Any) -> Call:
    return make_call("read", options.pop("arguments", None), annotations={"readOnlyHint": True}, **options)


def asked(cache: Cache, *calls: Call) -> Any:
    """Whether each call ran its tool, all of them of one tool."""

    async def run() -> list[bool]:
        ran = []
        for call in calls:
            call.tool = calls[0].tool
            ran.append((await run_alone(cache, call=call)).ran == 1)
        return ran

    return run()


async def test_a_result_is_kept_for_its_time_and_no_longer() -> None:
    clock = FakeClock()
    cache, call, numbers = Cache(60, clock=clock), reading(), count(1)

    async def text() -> str:
        return (await run_alone(cache, call=call, answer=lambda _: next(numbers))).text

    assert [await text(), await text()] == ["1", "1"]
    clock.advance(59.999)
    assert await text() == "1"
    clock.advance(0.001)
    assert [await text(), await text()] == ["2", "2"]
    assert (cache.hits, cache.misses) == (3, 2)
    assert call.state["cache"] == "hit"
    cache.clear()
    assert await text() == "3"


async def test_only_tools_that_are_named_or_whose_author_says_they_only_read_are_kept() -> None:
    by_hint, by_name = Cache(60), Cache(60, tools=["named"])
    named, hinted = make_call("named"), reading()
    lying = make_call("other", annotations={"readOnlyHint": "yes", "idempotentHint": True})
    for cache, call, kept in (
        (by_hint, hinted, True),
        (by_hint, named, False),
        (by_hint, lying, False),
        (by_name, named, True),
        (by_name, hinted, False),
    ):
        assert await asked(cache, call, call) == [True, not kept]


async def test_the_order_of_names_does_not_matter_and_every_value_does() -> None:
    same = [reading(arguments={"a": 1, "b": {"c": 2, "d": 3}}), reading(arguments={"b": {"d": 3, "c": 2}, "a": 1})]
    assert await asked(Cache(60), *same) == [True, False]
    different: list[dict[str, Any]] = [
        {}, {"a": None}, {"a": 1}, {"a": "1"}, {"a": True}, {"a": 1.5}, {"a": [1]}, {"a": [1, 2]}, {"a": [2, 1]},
    ]  # fmt: skip
    calls = [reading(arguments=arguments) for arguments in different]
    assert await asked(Cache(60), *calls, *calls) == [True] * len(calls) + [False] * len(calls)


async def test_numbers_that_only_a_decimal_tells_apart_are_apart() -> None:
    board = Board()

    @board.tool(annotations={"readOnlyHint": True})
    async def same(number: Decimal) -> str:
        return str(number)

    board.use(Cache(60))
    async with Client(board) as client:
        for text in (b"0.1", b"0.1000000000000000055", b"0.1"):
            result = await client.request("tools/call", name="same", arguments=msgspec.Raw(b'{"number":%s}' % text))
            assert result["content"][0]["text"] == text.decode()


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3),
    max_leaves=6,
)


@given(
    st.dictionaries(st.text(max_size=2), json_values, max_size=3),
    st.dictionaries(st.text(max_size=2), json_values, max_size=3),
)
async def test_two_calls_share_an_answer_exactly_if_their_arguments_are_equal(
    one: dict[str, Any], other: dict[str, Any]
) -> None:
    ran = await asked(Cache(60), reading(arguments=one), reading(arguments=other))
    # Python takes True for 1; JSON does not.
    equal = msgspec.json.encode(one, order="sorted") == msgspec.json.encode(other, order="sorted")
    assert ran == [True, not equal]


@pytest.mark.requirement("modern/caching/private-not-shared")
async def test_what_one_principal_got_no_other_gets_unless_it_is_shared() -> None:
    calls = [reading(principal=name) for name in ("ann", "bob", "ann")]
    assert await asked(Cache(60), *calls) == [True, True, False]
    assert await asked(Cache(60, shared=True), *calls) == [True, False, False]


@pytest.mark.parametrize(
    "answer", [ToolResult("no", is_error=True), ToolError("no"), ValueError("no")], ids=["result", "words", "exception"]
)
async def test_errors_are_never_kept(answer: Any) -> None:
    cache, call = Cache(60), reading()
    for _ in range(2):
        assert (await run_alone(cache, call=call, answer=answer)).ran == 1


async def test_results_and_bytes_are_bounded_and_the_one_used_longest_ago_goes_first() -> None:
    one, two, three = (reading(arguments={"n": number}) for number in range(3))
    cache = Cache(60, entries=2)
    assert await asked(cache, one, two, one, three, one, two) == [True, True, False, True, False, True]
    assert len(cache._kept) == 2

    small = Cache(60, size=2500)
    for number in range(50):
        await run_alone(small, call=reading(arguments={"n": number}), answer="x" * 400)
        assert small._bytes == sum(entry.size for entry in small._kept.values()) <= 2500
    assert len(small._kept) == 2
    await run_alone(small, call=reading(), answer="x" * 3000)
    assert len(small._kept) == 2


async def test_a_kept_result_cannot_be_spoiled_by_who_gets_it() -> None:
    cache, call = Cache(60), reading()
    for _ in range(3):
        run = await run_alone(cache, call=call)
        assert run.result is not None
        assert run.text == "done"
        run.result["content"].clear()


async def test_cached_structured_results_are_returned_unchanged_for_every_revision() -> None:
    board = Board()

    @board.tool(annotations={"readOnlyHint": True})
    async def numbers() -> list[int]:
        return [1, 2]

    board.use(Cache(60))
    async with Client(board) as client:
        first, second = await client.call("numbers"), await client.call("numbers")
    assert first == second
    replies = []

    async def look(call: Call, proceed: Handler) -> Reply:
        replies.append(await proceed(call))
        return replies[-1]

    cache, call, wrapped = Cache(60), reading(), Done({"content": [], "structuredContent": [1]}, wrapped=True)
    for _ in range(2):
        await run_alone(look, cache, call=call, answer=wrapped)
    assert [reply.wrapped for reply in replies] == [True, True]
    assert cache.hits == 1


@on_one_machine("another list of tools takes its time to get there: tests/gateway/test_middleware.py")
async def test_a_tool_that_is_registered_again_has_no_cached_result() -> None:
    board = Board()
    board.use(Cache(60, tools=["read"]))
    async with Client(board) as client:
        for answer in ("old", "new"):

            async def read(text: str = answer) -> str:
                return text

            board.add(read, name="read")
            assert (await client.call("read")).text == answer
            board.remove("read")


@pytest.mark.parametrize(
    "wrong", [{"ttl": 0}, {"ttl": 1, "entries": 0}, {"ttl": 1, "size": 0}, {"ttl": 1, "tools": "x"}]
)
def test_a_cache_that_makes_no_sense_is_refused_when_it_is_made(wrong: dict[str, Any]) -> None:
    with pytest.raises(DeclarationError):
        Cache(**wrong)
