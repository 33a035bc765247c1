"""History keeps the latest calls, within bounds and without secrets."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Annotated, Any

import msgspec
import pytest
from msgspec import Meta

from pegboard import Board, Client, Gateway, Limits, ToolError, ToolResult
from pegboard.call import Call, Handler, Reply
from pegboard.middleware import ConcurrencyLimit
from pegboard.middleware.observability.call_feed import StoredCall
from pegboard.middleware.observability.history import RING_CALLS, History
from tests.client_variants import on_one_machine
from tests.waiting import until


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


async def calls_of(history: History, *calls: tuple[str, dict[str, Any]]) -> list[StoredCall]:
    async with Client(board_with(history)) as client:
        for name, arguments in calls:
            await client.call(name, arguments)
    return await history.latest(1000)


async def test_a_call_is_kept_with_its_arguments_its_repairs_and_its_result() -> None:
    (kept,) = await calls_of(History(), ("add", {"a": 2, "b": "3"}))
    details: Any = kept.everything()
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
    kept = await history.latest(10)
    assert [call.outcome for call in kept] == ["failed", "failed", "refused"]
    assert "the disk is full" in str(kept[0].everything())


async def test_secrets_in_arguments_and_results_are_masked() -> None:
    (kept,) = await calls_of(History(), ("login", {"user": "ada", "password": "hunter2"}))
    shown = str(kept.everything())
    assert "hunter2" not in shown
    assert "very-secret" not in shown
    assert "ada" in shown


@pytest.mark.parametrize("text", ["password: hunter2", '{"user": "ada", "token": "hunter2"}'])
async def test_secrets_in_the_result_of_a_call_with_plain_arguments_are_masked(text: str) -> None:
    history = History(names=["pin code"])
    board = board_with(history)

    @board.tool
    def read(path: str) -> ToolResult:
        return ToolResult(text)

    @board.tool
    def draw(path: str) -> ToolResult:
        return ToolResult("done", structured={"pin_code": "hunter2"})

    async with Client(board) as client:
        await client.call("read", {"path": "a"})
        await client.call("draw", {"path": "a"})
    assert [("hunter2" in str(call.everything()), call.outcome) for call in await history.latest(10)] == [
        (False, "ok")
    ] * 2


async def test_only_the_latest_calls_are_kept() -> None:
    kept = await calls_of(History(calls=3), *(("add", {"a": number, "b": 0}) for number in range(10)))
    sent: list[Any] = [call.everything()["sent"] for call in kept]
    assert [arguments["a"] for arguments in sent] == [7, 8, 9]


async def test_large_arguments_and_results_are_shortened_and_the_memory_is_bounded() -> None:
    history = History(max_bytes=300_000)
    kept = await calls_of(history, *[("repeat", {"text": "x" * 50_000, "times": 1})] * 20)
    sizes = [len(str(call.everything())) for call in kept]
    assert len(sizes) >= 5
    assert sum(sizes) < 400_000
    assert all("the beginning is kept" in str(call.everything()) for call in kept)


async def test_a_large_call_that_is_dropped_makes_room_for_others() -> None:
    history = History(calls=3, max_bytes=100_000)
    large, small = ("repeat", {"text": "x" * 20_000, "times": 1}), ("add", {"a": 1, "b": 1})
    kept = await calls_of(history, large, small, small, small, large, small, large)
    assert [len(str(call.everything())) > 20_000 for call in kept] == [True, False, True]


async def test_a_large_result_without_text_is_measured_too() -> None:
    history = History()
    board = board_with(history)

    @board.tool
    def report() -> ToolResult:
        return ToolResult("done", structured={"rows": ["y" * 1000] * 100})

    async with Client(board) as client:
        await client.call("report")
    (kept,) = await history.latest(10)
    assert len(str(kept.everything())) < 50_000


async def test_a_kept_call_is_found_by_its_number_and_numbers_grow() -> None:
    history = History()
    first = await calls_of(history, *[("add", {"a": 1, "b": 1})] * 4)
    kept = await calls_of(history, ("add", {"a": 2, "b": 1}))
    numbers = [call.number for call in kept]
    assert numbers[:4] == [call.number for call in first]
    assert numbers == sorted(set(numbers))
    found = await history.find(numbers[2])
    assert found is not None
    assert found.everything() == kept[2].everything()
    assert await history.find(numbers[-1] + 1) is None
    assert await history.find(0) is None
    assert [call.number for call in await history.since(numbers[2], 10)] == numbers[3:]
    assert [call.number for call in await history.since(numbers[0], 2)] == numbers[1:3]


async def test_watchers_are_called_after_each_call() -> None:
    history = History()
    seen: list[int] = []
    leave = history.watch(lambda: seen.append(1))
    await calls_of(history, ("add", {"a": 1, "b": 1}))
    leave()
    before = len(seen)
    await calls_of(history, ("add", {"a": 1, "b": 1}))
    assert len(seen) == before >= 1


async def test_the_rule_and_what_was_noted_are_kept_and_masked() -> None:
    history = History()
    board = board_with(history)

    async def note(call: Call, next: Handler) -> Reply:  # noqa: A002 — the name that middleware authors use
        call.note(credential="oauth ann@github", approval={"id": "ap_1", "token": "abc"})
        return await next(call)

    board.use(note)
    async with Client(board) as client:
        await client.call("add", {"a": 1, "b": 1})
    details: Any = (await history.latest(1))[0].everything()
    assert (details["credential"], details["approval"]) == ("oauth ann@github", {"id": "ap_1", "token": "***"})


async def test_the_hints_of_a_schema_mask_arguments_repairs_results_and_errors() -> None:
    history = History()
    board = board_with(history)

    @board.tool
    def unlock(pin: Annotated[int, Meta(extra_json_schema={"x-sensitive": True})]) -> str:
        raise ToolError(f"wrong pin {pin}")

    async with Client(board) as client:
        await client.call("unlock", {"pin": "775533"})
    (call,) = await history.latest(10)
    assert call.repairs == 1
    assert "775533" not in str(call.everything())


async def test_of_a_flood_of_calls_the_newest_are_kept() -> None:
    history = History()
    board = board_with(history)
    async with Client(board) as client:
        for number in range(RING_CALLS + 50):
            await client.call("add", {"a": number, "b": 0})
        kept = await history.latest(10_000)
    sent: list[Any] = [call.everything()["sent"] for call in kept]
    assert [arguments["a"] for arguments in sent] == [*range(50, RING_CALLS + 50)]


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
    reached, rejected = await history.latest(10)
    details: Any = reached.everything()
    assert 0 <= details["before_ms"] <= details["before_ms"] + details["tool_ms"] <= details["ms"] + 0.01
    assert rejected.everything()["tool_ms"] is None


@on_one_machine("the gateway is part of the test")
@pytest.mark.parametrize("kind", ["limit", "thread", "server"])
async def test_the_time_in_a_queue_is_apart_from_that_of_the_tool(kind: str) -> None:
    history, started, go = History(), asyncio.Event(), asyncio.Event()
    loop, released = asyncio.get_running_loop(), threading.Event()
    board = Board("busy", limits=Limits(threads=1))

    if kind == "thread":

        @board.tool(name="hold")
        def hold_thread() -> None:
            loop.call_soon_threadsafe(started.set)
            released.wait(30)
    else:

        @board.tool(name="hold")
        async def hold() -> None:
            started.set()
            await go.wait()

    served: Board | Gateway = board
    name, limit = "hold", ConcurrencyLimit(1, wait=30)
    is_waiting: Callable[[], bool] = lambda: any(room.waiting for room in limit._rooms.values())  # noqa: E731
    if kind == "server":
        entry = {"board": board, "concurrency": 1}
        served = gateway = Gateway(
            {"toolboxes": {"a": {"description": "b", "mcpServers": {"s": entry}}}, "toolMode": "all"}
        )
        name, is_waiting = "a__s__hold", lambda: gateway.downstreams[0].waiting > 0
    elif kind == "thread":
        is_waiting = lambda: board._threads._slots.waiting > 0  # noqa: E731
    served.use(history, *([limit] if kind == "limit" else []))
    async with Client(served) as client:
        first = asyncio.create_task(client.call(name))
        await started.wait()
        second = asyncio.create_task(client.call(name))
        await until(is_waiting)
        go.set()
        released.set()
        await asyncio.gather(first, second)
    details: list[Any] = [kept.everything() for kept in await history.latest(10)]
    assert [list(one.get("waited_ms", {})) for one in details] == [[], [kind]]
    assert 0 < details[1]["waited_ms"][kind] <= details[1]["ms"]


async def test_middleware_outside_of_a_mounted_board_can_change_what_its_history_has_kept() -> None:
    history = History()
    inner, outer = board_with(history), Board("outer")
    outer.mount(inner)

    async def sign(call: Call, next: Handler) -> Reply:  # noqa: A002 — the name that middleware authors use
        reply = await next(call)
        return msgspec.structs.replace(reply, result={"content": [{"type": "text", "text": "signed"}]})

    outer.use(sign)
    async with Client(outer) as client:
        assert (await client.call("add", {"a": 1, "b": 1})).text == "signed"
    assert "signed" not in str((await history.latest(1))[0].everything())
