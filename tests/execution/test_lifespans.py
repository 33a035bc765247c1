"""Lifespans: what a board opens before the first call and closes after the last."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from pegboard import Board, Client, Context, Limits
from pegboard.auth.auth import Auth
from pegboard.errors import DeclarationError, SetupError
from pegboard.execution import lifespans
from tests.auth.serving import serving
from tests.waiting import SOON

MODERN_LIST = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "tools/call",
    "params": {"name": "which", "arguments": {}},
}


class Pool:
    """What a lifespan opens."""

    def __init__(self, name: str = "pool") -> None:
        self.name = name


def recording() -> tuple[Board, list[str]]:
    """A board with two lifespans, and what happens."""
    board, events = Board("recording"), []

    @board.lifespan
    async def open_pool(_board: Board) -> AsyncIterator[Pool]:
        events.append("pool opened")
        yield Pool()
        events.append("pool closed")

    @board.lifespan
    async def open_settings() -> AsyncIterator[dict[str, Any]]:
        events.append("settings opened")
        yield {"greeting": "hello"}
        events.append("settings closed")

    @board.tool
    async def which(pool: Pool, ctx: Context) -> str:
        events.append("called")
        return f"{ctx.lifespan['greeting']} {pool.name}"

    return board, events


ORDER = ["pool opened", "settings opened", "called", "settings closed", "pool closed"]


async def test_tools_take_what_lifespans_yield_and_all_is_closed_in_reverse() -> None:
    board, events = recording()
    async with Client(board) as client:
        assert (await client.call("which")).text == "hello pool"
        assert (await client.list_tools())[0]["inputSchema"]["properties"] == {}
    assert events == ORDER


async def test_a_board_can_start_again() -> None:
    board, events = recording()
    for _ in range(2):
        async with Client(board) as client:
            await client.call("which")
    assert events == ORDER * 2


async def test_several_clients_share_what_is_open_until_the_last_one_ends() -> None:
    board, events = recording()
    async with Client(board) as first:
        async with Client(board):
            pass
        assert events == ORDER[:2]
        assert (await first.call("which")).text == "hello pool"
    assert events == ORDER


async def test_a_served_board_opens_before_the_first_request() -> None:
    board, events = recording()
    async with serving(board) as site:
        assert events == ORDER[:2]
        assert b"hello pool" in (await site.call("which")).body
    await board.stop()
    assert events == ORDER


async def test_a_mounted_board_opens_with_its_application_or_at_the_first_request() -> None:
    board, events = recording()
    app = board.asgi()
    async with app:
        assert events == ORDER[:2]
    assert events == [*ORDER[:2], *ORDER[3:]]
    events.clear()
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1") as client:
        await client.post("/mcp", json=MODERN_LIST)
        assert events[:2] == ORDER[:2]
    await app.close()
    assert events[-2:] == ORDER[3:]


async def test_a_lifespan_that_fails_stops_the_server_with_the_authors_line() -> None:
    board, events = recording()

    @board.lifespan
    async def connect() -> AsyncIterator[None]:
        raise ConnectionError("no database at db.example")
        yield

    line = connect.__code__.co_firstlineno + 2
    with pytest.raises(SetupError) as raised:
        async with Client(board):
            pass
    told = str(raised.value)
    assert "the lifespan connect failed: ConnectionError: no database at db.example" in told
    assert f"{__file__}:{line}" in told
    # What was open is closed again, and the next attempt begins anew.
    assert events == [*ORDER[:2], *ORDER[3:]]
    with pytest.raises(SetupError):
        async with Client(board):
            pass


async def test_a_mounted_board_whose_lifespan_fails_answers_503_and_tries_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    board, attempts = Board("failing"), []

    @board.lifespan
    async def connect() -> AsyncIterator[None]:
        attempts.append(1)
        if len(attempts) == 1:
            raise ConnectionError("secret place")
        yield

    app = board.asgi()
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1") as client:
        refused = await client.post("/mcp", json=MODERN_LIST)
        assert refused.status_code == 503
        assert "secret" not in refused.text
        assert "secret place" in caplog.text
        assert (await client.post("/mcp", json=MODERN_LIST)).status_code != 503
    await app.close()


async def test_the_lifespan_event_of_an_asgi_server_reports_the_failure() -> None:
    board = Board("failing")

    @board.lifespan
    async def connect() -> AsyncIterator[None]:
        raise ConnectionError("no database")
        yield

    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        return {"type": "lifespan.startup"}

    async def send(event: Any) -> None:
        sent.append(event)

    await board.asgi()({"type": "lifespan"}, receive, send)
    assert sent[0]["type"] == "lifespan.startup.failed"
    assert "no database" in sent[0]["message"]


async def test_a_lifespan_is_closed_by_the_task_that_opened_it() -> None:
    board, tasks = Board("tasks"), []

    @board.lifespan
    async def open_scope() -> AsyncIterator[None]:
        tasks.append(asyncio.current_task())
        async with asyncio.TaskGroup():
            yield
        tasks.append(asyncio.current_task())

    client = Client(board)
    await asyncio.create_task(client.__aenter__())
    await asyncio.create_task(client.__aexit__(None, None, None))
    assert tasks[0] is tasks[1] is not None


async def test_a_context_manager_can_be_returned() -> None:
    board, events = Board("manager"), []

    @board.lifespan
    @contextlib.asynccontextmanager
    async def open_pool() -> AsyncIterator[Pool]:
        yield Pool("managed")
        events.append("closed")

    @board.tool
    async def which(pool: Pool) -> str:
        return pool.name

    async with Client(board) as client:
        assert (await client.call("which")).text == "managed"
    assert events == ["closed"]


async def test_a_service_can_open_at_start_and_take_what_a_lifespan_yields() -> None:
    board, events = recording()

    async def connect(pool: Pool) -> AsyncIterator[asyncio.Event]:
        events.append(f"connected to {pool.name}")
        yield asyncio.Event()
        events.append("disconnected")

    board.services.factory(asyncio.Event, connect, lifetime="app", at_start=True)
    async with Client(board):
        assert events == [*ORDER[:2], "connected to pool"]
    assert events[3:] == ["disconnected", *ORDER[3:]]


async def test_a_service_that_cannot_open_at_start_stops_the_server() -> None:
    board = Board("failing")

    def connect() -> Pool:
        raise OSError("port 5432 is closed")

    board.services.factory(Pool, connect, lifetime="app", at_start=True)
    with pytest.raises(
        SetupError, match=r"the service Pool failed: OSError: port 5432 is closed \(at .*test_lifespans.py"
    ):
        async with Client(board):
            pass


async def test_a_start_that_takes_too_long_is_ended() -> None:
    board = Board("slow", limits=Limits(start_seconds=0.01))

    @board.lifespan
    async def hang() -> AsyncIterator[None]:
        await asyncio.Event().wait()
        yield

    with pytest.raises(
        SetupError, match=r"the lifespan hang took longer than 0.01 s to start; Limits\(start_seconds=…\)"
    ):
        async with asyncio.timeout(SOON), Client(board):
            pass


async def test_what_is_open_is_closed_if_the_authentication_cannot_start(monkeypatch: pytest.MonkeyPatch) -> None:
    board, events = recording()
    board.auth = Auth(keys=True)

    async def fail(*_: object) -> None:
        raise SetupError("no keys")

    monkeypatch.setattr(board.auth, "start", fail)
    with pytest.raises(SetupError, match="no keys"):
        await board.start()
    assert events == [event for event in ORDER if event != "called"]
    assert not board.lifetime.is_open


async def test_a_lifespan_that_does_not_close_is_cancelled(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(lifespans, "CLOSE_SECONDS", 0.01)
    board, events = Board("stuck"), []

    @board.lifespan
    async def hang() -> AsyncIterator[None]:
        yield
        try:
            await asyncio.Event().wait()
        finally:
            events.append("cancelled")

    with caplog.at_level(logging.ERROR):
        async with asyncio.timeout(SOON), Client(board):
            pass
    assert events == ["cancelled"]
    assert "took longer than 0.01 s to close" in caplog.text


def test_wrong_declarations_name_the_line_and_what_to_write() -> None:
    board = Board("wrong")

    async def no_yield() -> None: ...

    with pytest.raises(
        DeclarationError, match=r"test_lifespans.py:\d+: a lifespan is an `async def` function with one `yield`"
    ):
        board.lifespan(no_yield)
    with pytest.raises(DeclarationError, match='at_start=True needs lifetime="app"'):
        board.services.factory(Pool, Pool, at_start=True)


async def test_a_lifespan_cannot_be_added_to_a_running_board() -> None:
    board, _ = recording()
    async with Client(board):
        with pytest.raises(DeclarationError, match="add lifespans before it starts"):
            board.lifespan(contextlib.asynccontextmanager(lambda: None))  # type: ignore[arg-type]  # rejected before it is called
