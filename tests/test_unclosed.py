"""A board, gateway or client that is dropped without being closed leaves no thread behind, and says so where it can."""

from __future__ import annotations

import asyncio
import gc
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from pegboard import Board, Client, Gateway, ToolCallRequest, ToolExecutor
from pegboard.config.gateway_config import GatewayConfig, ServerConfig, ToolboxConfig
from pegboard.middleware import Audit
from pegboard.stores.sqlite.sqlite_store import SqliteStore
from tests.middleware.audit.audit_records import records_of
from tests.waiting import until, wait_until


class Used:
    """The threads in which the tool of a board ran."""

    def __init__(self) -> None:
        self.threads: list[threading.Thread] = []

    def board(self) -> Board:
        board = Board()
        board.tool(self.work)
        return board

    def work(self) -> str:
        self.threads.append(threading.current_thread())
        return "done"

    @property
    def ended(self) -> bool:
        return bool(self.threads) and not any(thread.is_alive() for thread in self.threads)


@pytest.fixture
def uncollected() -> Iterator[None]:
    """Garbage is collected when the test says so."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


async def test_the_threads_of_a_board_end_when_it_stops_and_others_serve_its_next_client() -> None:
    used = Used()
    board = used.board()
    for _ in range(2):
        async with Client(board) as client:
            for _ in range(2):
                assert (await client.call("work")).text == "done"
            assert not used.ended
        await until(lambda: used.ended)
    first, again, second, _ = used.threads
    assert first is again is not second


async def test_a_client_that_leaves_does_not_disturb_the_calls_of_another() -> None:
    board, begun, go = Used().board(), threading.Event(), threading.Event()

    @board.tool
    def hold() -> str:
        begun.set()
        go.wait()
        return "held"

    async with Client(board) as staying:
        held = asyncio.ensure_future(staying.call("hold"))
        await until(begun.is_set)
        async with Client(board) as leaving:
            await leaving.call("work")
        go.set()
        assert (await held).text == "held"
        assert (await staying.call("work")).text == "done"


def test_the_threads_of_a_board_that_is_dropped_end(uncollected: None) -> None:
    used = Used()

    async def use() -> None:
        executor = ToolExecutor(used.board())
        for _ in range(2):
            assert (await executor.execute(ToolCallRequest(tool_name="work"))).result == "done"

    asyncio.run(use())
    gc.collect()
    wait_until(lambda: used.ended)


def test_the_audit_file_of_a_board_that_is_dropped_is_closed(uncollected: None, tmp_path: Path) -> None:
    async def use() -> None:
        board = Used().board()
        board.use(Audit(tmp_path / "audit", sync="full"))
        await ToolExecutor(board).execute(ToolCallRequest(tool_name="work"))

    asyncio.run(use())
    [writer] = [thread for thread in threading.enumerate() if thread.name == "pegboard-audit"]
    gc.collect()
    wait_until(lambda: not writer.is_alive())
    assert len(records_of(tmp_path / "audit")) == 1


def test_the_threads_of_a_store_that_is_dropped_end_and_a_warning_names_it(uncollected: None, tmp_path: Path) -> None:
    path, threads = tmp_path / "store.db", list[threading.Thread]()

    async def use() -> None:
        store = SqliteStore(path)
        await store.start()
        await store.records.put("key", b"kept")
        assert await store.records.get("key")
        threads.extend(thread for thread in threading.enumerate() if thread.name.startswith("pegboard-store"))
        assert len(threads) == 2

    with pytest.warns(ResourceWarning, match=r"store\.db"):
        asyncio.run(use())
    # The warning held it.
    gc.collect()
    wait_until(lambda: not any(thread.is_alive() for thread in threads))
    with closing(sqlite3.connect(path)) as file:
        assert file.execute("SELECT value FROM records").fetchone() == (b"kept",)


def test_the_threads_of_a_gateway_that_is_dropped_end_and_a_warning_names_it(uncollected: None) -> None:
    used = Used()

    async def use() -> None:
        server = ServerConfig(name="mine", kind="board", board="mine")
        toolbox = ToolboxConfig(name="dev", description="All", names="plain", servers={"mine": server})
        config = GatewayConfig(path="", name="front", lock="off", toolboxes={"dev": toolbox})
        gateway = Gateway(config, boards={"mine": used.board()})
        await gateway.start()
        await gateway.wait_connected(10)
        executor = ToolExecutor(gateway)
        assert (await executor.execute(ToolCallRequest(tool_name="work"))).result == "done"

    asyncio.run(use())
    with pytest.warns(ResourceWarning, match="gateway 'front'"):
        gc.collect()
    # The warning held it.
    gc.collect()
    wait_until(lambda: used.ended)


def test_the_threads_of_a_client_that_is_dropped_end_and_a_warning_names_its_server(uncollected: None) -> None:
    used = Used()

    async def use() -> None:
        client = Client(used.board())
        await client.__aenter__()
        assert (await client.call("work")).text == "done"

    with pytest.warns(ResourceWarning, match="client of the board"):
        asyncio.run(use())
    # The warning held it.
    gc.collect()
    wait_until(lambda: used.ended)
