"""Notifications of an author's own: from `board.notify` to `Client(on_notification=…)`, over every transport and era."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from pegboard import Board, Client, Limits
from pegboard.server.http.guard import Guard
from pegboard.server.http.listener import listen
from pegboard.server.streamable_http.mcp_endpoint import HttpEndpoint
from pegboard.stores.cluster import Cluster, SharedStore
from pegboard.stores.sqlite.sqlite_store import SqliteStore
from tests.waiting import until

LEGACY, MODERN = "2025-11-25", "2026-07-28"


class Heard:
    """What a client was notified of."""

    def __init__(self) -> None:
        self.all: list[tuple[str, Any]] = []

    def __call__(self, method: str, params: Mapping[str, Any]) -> None:
        self.all.append((method, {name: value for name, value in params.items() if name != "_meta"}))

    def of(self, method: str) -> list[Any]:
        return [params for heard, params in self.all if heard == method]


def shop() -> Board:
    board = Board("shop")
    going = asyncio.Event()

    @board.tool
    async def wait() -> str:
        await going.wait()
        return "done"

    @board.tool
    async def go() -> None:
        going.set()

    return board


@asynccontextmanager
async def serving(board: Board, scheme: str) -> AsyncIterator[Any]:
    if scheme == "direct":
        yield board
        return
    await board.start()
    server = await listen(HttpEndpoint(board.handler, board.info, limits=board.limits, guard=Guard()), board.limits)
    try:
        yield f"{scheme}://127.0.0.1:{server.port}/{'ws' if scheme == 'ws' else 'mcp'}"
    finally:
        await server.close()
        await board.stop()


@pytest.mark.parametrize("version", [LEGACY, MODERN])
@pytest.mark.parametrize("scheme", ["direct", "http", "ws"])
async def test_a_notification_reaches_every_client_that_listens_once_and_in_order(scheme: str, version: str) -> None:
    board, heard, other = shop(), Heard(), Heard()
    async with (
        serving(board, scheme) as target,
        Client(target, version=version, on_notification=heard) as client,
        Client(target, version=version, on_notification=other) as second,
    ):
        await client.list_tools()
        await second.list_tools()
        # The stream of a legacy client opens in the background: notify until both have heard the first one.
        number = 0

        def ring() -> bool:
            nonlocal number
            number += 1
            board.notify("notifications/bell", {"number": number})
            return bool(heard.of("notifications/bell") and other.of("notifications/bell"))

        await until(ring)
        for count in range(3):
            board.notify("notifications/orders/shipped", {"count": count})
        board.notify("notifications/orders/shipped", {"count": 2})
        shipped = [{"count": count} for count in (0, 1, 2, 2)]
        await until(lambda: len(other.of("notifications/orders/shipped")) == 4)
        await until(lambda: len(heard.of("notifications/orders/shipped")) == 4)
        assert heard.of("notifications/orders/shipped") == other.of("notifications/orders/shipped") == shipped
        board.tool(lambda: None, name="added")
        await until(lambda: heard.of("notifications/tools/list_changed"))
        # A notification during a call is not taken for one of the call.
        waiting = asyncio.create_task(client.call("wait"))
        board.notify("notifications/during")
        await until(lambda: heard.of("notifications/during"))
        await second.call("go")
        assert (await waiting).text == "done"
    assert len(heard.of("notifications/during")) == 1


async def test_a_modern_client_that_does_not_ask_hears_nothing_of_it() -> None:
    board, number = shop(), 0
    async with Client(board) as client:
        changes = client.listen(tools=True)
        first = asyncio.ensure_future(anext(changes))

        def change() -> bool:
            nonlocal number
            number += 1
            board.notify("notifications/bell")
            board.tool(lambda: None, name=f"added_{number}")
            return first.done()

        await until(change)
        assert (await first).kind == "tools"
        await changes.aclose()  # type: ignore[attr-defined]  # an async generator


async def test_a_notification_of_one_process_reaches_the_clients_of_another(tmp_path: Path) -> None:
    heard, boards, number = Heard(), [shop(), shop()], 0
    stores = [SqliteStore(tmp_path / "store.db") for _ in boards]
    for board, store in zip(boards, stores, strict=True):
        await store.start()
        await board.start(SharedStore(store, Cluster(store, Limits())))
    async with Client(boards[0], on_notification=heard):

        def ring() -> list[Any]:
            nonlocal number
            number += 1
            boards[1].notify("notifications/bell", {"number": number})
            return heard.of("notifications/bell")

        await until(ring)
    for board, store in zip(boards, stores, strict=True):
        await board.stop()
        await store.close()


@pytest.mark.parametrize("method", ["", "notifications/tools/list_changed", "notifications/progress", "tools/call"])
def test_methods_of_the_protocol_are_not_sent_by_hand(method: str) -> None:
    with pytest.raises(ValueError, match="is a method of the protocol"):
        Board().notify(method)


def test_params_are_small() -> None:
    with pytest.raises(ValueError, match="the limit is 16384"):
        Board().notify("notifications/bell", {"text": "x" * 20_000})
