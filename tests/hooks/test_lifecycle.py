"""Middleware is started and stopped with the boards that it is attached to."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any, Literal

import pytest

from pegboard import Board, Client, Middleware
from pegboard.errors import DeclarationError
from pegboard.hooks import lifecycle
from pegboard.middleware import Audit, RateLimit
from pegboard.tools.tool import tool_from_function
from tests.waiting import until


class Opened(Middleware):
    """Writes down when it is started and stopped."""

    def __init__(self, name: str, steps: list[str], order: float = 0) -> None:
        self.name, self.steps, self.order = name, steps, order

    async def start(self) -> None:
        self.steps.append(f"start {self.name}")

    async def stop(self) -> None:
        self.steps.append(f"stop {self.name}")


def make_board() -> Board:
    board = Board()
    board.tool(lambda: "x", name="one")
    board.tool(lambda: "y", name="two")
    return board


async def test_each_is_started_once_in_order_and_stopped_in_reverse_however_often_it_is_attached() -> None:
    board, steps = make_board(), list[str]()
    inner, outer, own = Opened("inner", steps, 9), Opened("outer", steps, 1), Opened("own", steps, 5)
    board.use(inner, outer)
    board.use(inner, tool=["one", "two"])
    board.tool(lambda: "z", name="three", middleware=[own])
    board.tool(lambda: "z", name="four", middleware=[own, outer])
    async with Client(board) as client:
        assert steps == ["start outer", "start own", "start inner"]
        await client.call("one")
    assert steps[3:] == ["stop inner", "stop own", "stop outer"]


async def test_a_board_that_was_started_twice_is_stopped_by_the_second_stop_and_may_start_again() -> None:
    board, steps = make_board(), list[str]()
    board.use(Opened("a", steps))
    async with Client(board):
        async with Client(board):
            pass
        assert steps == ["start a"]
    assert steps == ["start a", "stop a"]
    await board.stop()
    async with Client(board):
        pass
    assert steps == ["start a", "stop a"] * 2


async def test_what_is_attached_to_two_boards_lives_from_the_first_start_to_the_last_stop() -> None:
    first, second, steps = make_board(), make_board(), list[str]()
    shared = Opened("shared", steps)
    first.use(shared)
    second.use(shared)
    await first.start()
    await second.start()
    await first.stop()
    assert steps == ["start shared"]
    await second.stop()
    assert steps == ["start shared", "stop shared"]


async def test_what_is_attached_or_taken_away_while_a_board_serves_is_started_and_stopped_then() -> None:
    board, steps = make_board(), list[str]()
    late, of_a_tool = Opened("late", steps), Opened("of a tool", steps)
    async with Client(board):
        await asyncio.to_thread(board.use, late)
        await until(lambda: steps == ["start late"])
        board.tool(lambda: "z", name="three", middleware=[of_a_tool])
        await until(lambda: steps[1:] == ["start of a tool"])
        board.unuse(late)
        await until(lambda: steps[2:] == ["stop late"])
        board.remove("three")
        await until(lambda: steps[3:] == ["stop of a tool"])
        # As a gateway does that shows its clients other tools than it has.
        board.tools.replace_all([tool_from_function(lambda: "z", "four", middleware=[of_a_tool])], tell=False)
        await until(lambda: steps[4:] == ["start of a tool"])
    assert steps[5:] == ["stop of a tool"]


async def test_a_lifecycle_hook_that_fails_or_hangs_is_logged_and_does_not_prevent_serving(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lifecycle, "HOOK_SECONDS", 0.01)

    class Fails(Middleware):
        def start(self) -> None:  # type: ignore[override]  # a plain function does as well
            raise OSError("no such place")

        async def stop(self) -> None:
            await asyncio.Event().wait()

    board, steps = make_board(), list[str]()
    board.use(Opened("first", steps, 1), Fails(), Opened("last", steps, 2))
    async with Client(board) as client:
        assert (await client.call("one")).text == "x"
    assert steps == ["start first", "start last", "stop last", "stop first"]
    assert [record.getMessage() for record in caplog.records] == ["Fails.start failed", "Fails.stop failed"]
    assert "no such place" in caplog.text


def test_what_only_has_the_name_of_a_hook_is_refused_when_it_is_attached() -> None:
    class Stopwatch(Middleware):
        def __init__(self) -> None:
            self.start: Any = 0.5

    class TakesMore(Middleware):
        async def stop(self, reason: str) -> None:  # type: ignore[override]  # what is refused
            pass

    with pytest.raises(DeclarationError, match=r"Stopwatch\.start must be a hook that can be called, got 0\.5"):
        Board().use(Stopwatch())
    with pytest.raises(DeclarationError, match=r"TakesMore\.stop is called with \(\) and takes \(reason"):
        Board().use(TakesMore())


class Connections:
    """A store of rates that has something to close."""

    def __init__(self) -> None:
        self.closed = 0

    async def take(self, account: str, price: int, burst: int) -> int:
        return 0

    async def close(self) -> None:
        self.closed += 1


async def test_a_limit_lets_its_store_go_when_the_board_stops() -> None:
    board, store = make_board(), Connections()
    board.use(RateLimit(10, store=store), RateLimit(5))
    async with Client(board) as client:
        assert not (await client.call("one")).is_error
        assert store.closed == 0
    assert store.closed == 1


@pytest.mark.parametrize("sync", ["normal", "full"])
async def test_an_audit_lets_its_file_go_when_the_board_stops_and_opens_it_again(
    tmp_path: Path, sync: Literal["normal", "full"]
) -> None:
    board, audit = make_board(), Audit(tmp_path / "audit", sync=sync)
    board.use(audit)
    for _ in range(2):
        async with Client(board) as client:
            assert not (await client.call("one")).is_error
            assert audit._writer.chain == "audit-1"
        assert audit._writer.chain == ""
    assert audit.unwritten == 0


async def test_an_unknown_tool_name_is_logged_once_with_a_suggestion(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING, "pegboard.middleware")
    board, steps = make_board(), list[str]()
    board.tool(lambda: "z", name="search_notes")
    board.use(Opened("a", steps), Opened("b", steps), tool=["serch_notes", "one", "later"])
    board.tool(lambda: "z", name="later")
    for _ in range(2):
        async with Client(board):
            pass
    assert [record.getMessage() for record in caplog.records] == [
        "middleware is attached to the tool 'serch_notes', which does not exist; did you mean 'search_notes'?"
    ]
