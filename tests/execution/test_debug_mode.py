"""Debug mode: callers on this machine see why a tool failed."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import pytest

from pegboard import Board, Client
from pegboard.errors import SetupError
from pegboard.gateway.gateway import Gateway
from tests.ports import free_port
from tests.server.asgi.test_asgi_app import serving
from tests.server.test_hosting import Terminal
from tests.waiting import until


def failing(**options: Any) -> Board:
    board = Board("failing", **options)

    @board.tool
    def price(item: str) -> int:
        return {"apple": 1}[item]

    return board


async def text(target: Any) -> str:
    async with Client(target) as client:
        return (await client.call("price", {"item": "pear"})).text


async def test_an_exception_is_shown_from_the_authors_first_line_on() -> None:
    told = await text(failing(debug=True))
    assert told.startswith("price failed, error id ")
    assert told.splitlines()[1] == "Traceback (most recent call last):"
    assert "test_debug_mode.py" in told.splitlines()[2]
    assert "KeyError: 'pear'" in told
    assert told.endswith("(debug mode: only callers on this machine see this)")


async def test_without_debug_mode_only_an_id_is_shown() -> None:
    told = await text(failing())
    assert len(told.splitlines()) == 1
    assert "pear" not in told


async def test_a_mounted_board_does_not_know_its_callers_and_shows_them_nothing() -> None:
    async with serving(failing(debug=True).asgi()) as port:
        assert "KeyError" not in await text(f"http://127.0.0.1:{port}/mcp")


async def test_callers_of_a_gateway_over_the_network_see_nothing_of_a_board_behind_it() -> None:
    gateway = Gateway(
        {"toolboxes": {"main": {"description": "x", "mcpServers": {"failing": {"board": "failing"}}}}},
        boards={"failing": failing(debug=True)},
    )
    async with serving(gateway.asgi()) as port, Client(f"http://127.0.0.1:{port}/mcp") as client:
        told = (await client.call("main__failing__price", {"item": "pear"})).text
    assert "error id" in told
    assert "KeyError" not in told


async def test_callers_of_a_loopback_address_see_it_and_other_addresses_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shown = Terminal()
    monkeypatch.setattr(sys, "stderr", shown)
    port = free_port()
    serving_board = asyncio.create_task(failing().serve("http", port=port, debug=True))
    await until(lambda: "serving HTTP" in shown.getvalue())
    assert "KeyError: 'pear'" in await text(f"http://127.0.0.1:{port}/mcp")
    serving_board.cancel()
    with pytest.raises(asyncio.CancelledError):
        await serving_board
    others: list[Any] = [
        {"host": "0.0.0.0", "public": True, "no_auth": True},
        {"trusted_proxy": "10.0.0.1"},
    ]
    for options in others:
        with pytest.raises(SetupError, match="would show exceptions to other machines"):
            await failing(debug=True).serve("http", port=0, **options)
