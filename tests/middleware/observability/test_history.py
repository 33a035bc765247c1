"""History keeps the latest calls, within bounds and without secrets."""

from __future__ import annotations

from typing import Any

import pytest

from pegboard import Board, Client, ToolError, ToolResult
from pegboard.call import Call, Handler, Reply
from pegboard.middleware.observability.history import History, KeptCall


def board_with(history: History) -> Board:
    board = Board("kept")
    board.use(history)

    @board.tool
    def add(a: float, b: float) -> float:
        return a + b

    @board.tool
    def fail() -> str:
        raise ToolError("the disk is full")

    @board.tool
    def repeat(text: str, times: int) -> str:
        return text * times

    @board.tool
    def login(user: str, password: str) -> dict[str, str]:
        return {"user": user, "token": "very-secret"}

    return board


async def calls_of(history: History, *calls: tuple[str, dict[str, Any]]) -> list[KeptCall]:
    async with Client(board_with(history)) as client:
        for name, arguments in calls:
            await client.call(name, arguments)
    return list(history)


async def test_a_call_is_kept_with_its_arguments_its_repairs_and_its_result() -> None:
    (kept,) = await calls_of(History(), ("add", {"a": 2, "b": "3"}))
    details: Any = kept.details()
    assert (kept.outcome, kept.summary()["repairs"]) == ("ok", 1)
    assert (details["sent"], details["ran"]) == ({"a": 2, "b": "3"}, {"a": 2, "b": 3})
    assert details["warnings"][0]["message"] == 'b: string "3" read as number 3'
    assert details["result"]["structuredContent"] == 5


async def test_errors_of_a_tool_rejected_arguments_and_unknown_tools_are_kept_as_errors() -> None:
    history = History()
    async with Client(board_with(history)) as client:
        await client.call("fail")
        await client.call("add", {"a": "x", "b": 1})
        with pytest.raises(Exception, match="nothing_such"):
            await client.call("nothing_such")
    assert [kept.outcome for kept in history] == ["error"] * 3
    assert "the disk is full" in str(next(iter(history)).details())


async def test_secrets_in_arguments_and_results_are_masked() -> None:
    (kept,) = await calls_of(History(), ("login", {"user": "ada", "password": "hunter2"}))
    shown = str(kept.details())
    assert "hunter2" not in shown
    assert "very-secret" not in shown
    assert "ada" in shown


async def test_only_the_latest_calls_are_kept() -> None:
    kept = await calls_of(History(calls=3), *(("add", {"a": number, "b": 0}) for number in range(10)))
    assert [call.number for call in kept] == [8, 9, 10]


async def test_large_arguments_and_results_are_shortened_and_the_memory_is_bounded() -> None:
    history = History(max_bytes=300_000)
    kept = await calls_of(history, *[("repeat", {"text": "x" * 50_000, "times": 1})] * 20)
    sizes = [len(str(call.details())) for call in kept]
    assert sum(sizes) < 400_000
    assert sizes[0] < 10_000 < sizes[-1]
    assert "the beginning is kept" in str(kept[0].details())


async def test_a_large_call_that_is_dropped_makes_room_for_others() -> None:
    history = History(calls=3, max_bytes=100_000)
    large, small = ("repeat", {"text": "x" * 20_000, "times": 1}), ("add", {"a": 1, "b": 1})
    kept = await calls_of(history, large, small, small, small, large, small, large)
    assert [len(str(call.details())) > 20_000 for call in kept] == [True, False, True]


async def test_a_large_result_without_text_is_measured_too() -> None:
    history = History()
    board = board_with(history)

    @board.tool
    def report() -> ToolResult:
        return ToolResult("done", structured={"rows": ["y" * 1000] * 100})

    async with Client(board) as client:
        await client.call("report")
    (kept,) = history
    assert len(str(kept.details())) < 50_000


async def test_a_kept_call_is_found_by_its_number() -> None:
    history = History(calls=2)
    await calls_of(history, *[("add", {"a": 1, "b": 1})] * 4)
    assert history.find(2) is None
    assert history.find(5) is None
    found = history.find(3)
    assert found is not None
    assert found.number == 3
    assert [call.number for call in history.since(3)] == [4]


async def test_watchers_are_called_after_each_call() -> None:
    history = History()
    seen: list[int] = []
    leave = history.watch(lambda: seen.append(history.last))
    await calls_of(history, ("add", {"a": 1, "b": 1}))
    leave()
    await calls_of(history, ("add", {"a": 1, "b": 1}))
    assert seen == [1]


async def test_the_time_of_the_tool_is_apart_from_that_of_middleware() -> None:
    history = History()
    board = board_with(history)

    async def reject(call: Call, next: Handler) -> Reply:  # noqa: A002 — the name that middleware authors use
        raise ToolError("not now")

    async def pass_on(call: Call, next: Handler) -> Reply:  # noqa: A002
        return await next(call)

    board.use(reject, tool="fail")
    board.use(pass_on, tool="add")
    async with Client(board) as client:
        await client.call("add", {"a": 1, "b": 1})
        await client.call("fail")
    reached, rejected = history
    details: Any = reached.details()
    assert 0 <= details["before_ms"] <= details["before_ms"] + details["tool_ms"] <= details["ms"] + 0.01
    assert rejected.details()["tool_ms"] is None
