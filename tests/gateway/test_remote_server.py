"""`board.remote`: what one downstream server offers, in a board."""

from __future__ import annotations

import asyncio
import logging
import sys
from pathlib import Path
from typing import Any

import pytest

from pegboard import Board, Client, Context
from pegboard.errors import DeclarationError, ResourceNotFound, SetupError
from pegboard.gateway import remote_server
from tests.auth.serving import serving
from tests.waiting import SOON, until

EXAMPLE = Path(__file__).resolve().parent.parent.parent / "examples" / "hello.py"


def shop() -> Board:
    board = Board("shop")

    @board.tool(tags={"orders"})
    async def order(item: str, count: int) -> str:
        """Orders an item."""
        return f"{count} {item}"

    @board.tool
    async def sure(ctx: Context) -> str:
        return str(await ctx.elicit("Sure?", bool))

    @board.resource("stock://{item}")
    async def stock(item: str) -> str:
        return f"5 {item}"

    @board.prompt
    async def greet(name: str) -> str:
        return f"Greet {name}."

    return board


async def test_tools_prompts_and_resources_of_a_server_are_served_under_its_name() -> None:
    async with serving(shop()) as site:
        board = Board("office")
        board.remote("shop", f"{site.url}/mcp")

        @board.tool
        async def order_apples(ctx: Context) -> str:
            return (await ctx.call("shop.order", {"item": "apples", "count": "2"})).text

        async with asyncio.timeout(SOON), Client(board, elicit=lambda _: {"value": True}) as client:
            names = [tool["name"] for tool in await client.list_tools()]
            assert names == ["order_apples", "shop.order", "shop.sure"]
            assert (await client.call("shop.order", {"item": "pears", "count": "3"})).text == "3 pears"
            assert (await client.call("order_apples")).text == "2 apples"
            assert "True" in (await client.call("shop.sure")).text
            (read,) = await client.read("stock://shop/apples")
            assert (read["uri"], read["text"]) == ("stock://shop/apples", "5 apples")
            (message,) = await client.prompt("shop.greet", {"name": "Ada"})
            assert message["content"]["text"] == "Greet Ada."


async def test_a_remote_tool_can_be_transformed_by_its_entry_and_its_calls_wrapped() -> None:
    async with serving(shop()) as site:
        board = Board("office")
        entry: dict[str, Any] = {
            "url": f"{site.url}/mcp",
            "tools": {"order": {"name": "order_one", "arguments": {"count": {"value": 1}}}, "sure": {"enabled": False}},
        }
        board.remote("shop", entry, prefix="s")
        async with asyncio.timeout(SOON), Client(board) as client:
            (shown,) = await client.list_tools()
            assert shown["name"] == "s.order_one"
            assert list(shown["inputSchema"]["properties"]) == ["item"]
            assert (await client.call("s.order_one", {"item": "pears"})).text == "1 pears"


async def test_the_rules_of_the_board_know_the_names_under_its_prefix() -> None:
    async with serving(shop()) as site:
        board = Board("office", rules=[{"who": "*", "deny": ["shop.order"]}, {"who": "*", "allow": ["*"]}])
        board.remote("shop", f"{site.url}/mcp")
        async with asyncio.timeout(SOON), Client(board) as client:
            assert "denied" in (await client.call("shop.order", {"item": "pears", "count": 3})).text


async def test_a_server_that_is_down_blocks_neither_the_start_nor_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_server, "CONNECT_SECONDS", 0.01)
    board = Board("office")
    board.remote("down", "http://127.0.0.1:9/mcp")

    @board.tool
    async def here() -> str:
        return "here"

    async with asyncio.timeout(SOON), Client(board) as client:
        assert [tool["name"] for tool in await client.list_tools()] == ["here"]
        assert (await client.call("here")).text == "here"


async def test_a_server_runs_as_long_as_a_client_of_the_board() -> None:
    async with serving(shop()) as site:
        board = Board("office")
        board.remote("shop", f"{site.url}/mcp")
        async with asyncio.timeout(SOON), Client(board) as first:
            async with Client(board):
                pass
            assert (await first.call("shop.order", {"item": "pears", "count": 3})).text == "3 pears"


async def test_a_changed_list_of_the_server_is_followed() -> None:
    offered = shop()
    async with serving(offered) as site:
        board = Board("office")
        board.remote("shop", f"{site.url}/mcp")
        async with asyncio.timeout(SOON), Client(board):
            offered.add(lambda: "late", name="late")
            await until(lambda: "shop.late" in board.tools)


async def test_a_tool_whose_name_is_taken_is_left_out_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    async with serving(shop()) as site:
        board = Board("office")
        board.add(lambda: "mine", name="order")
        board.remote("shop", f"{site.url}/mcp", prefix="")
        with caplog.at_level(logging.WARNING):
            async with asyncio.timeout(SOON), Client(board) as client:
                assert [tool["name"] for tool in await client.list_tools()] == ["order", "sure"]
                assert (await client.call("order")).text == "mine"
        assert "a tool is left out" in caplog.text


@pytest.mark.process
async def test_prompts_and_resources_whose_names_are_taken_are_left_out_and_those_of_the_board_stay(
    caplog: pytest.LogCaptureFixture,
) -> None:
    theirs = shop()

    @theirs.resource("stock://all")
    async def everything() -> str:
        return "theirs"

    @theirs.resource("{scheme}://{+rest}")
    async def capture(scheme: str, rest: str) -> str:
        return f"captured {scheme} {rest}"

    async with serving(theirs) as site:
        board = Board("office")

        @board.resource("stock://shop/all")
        async def ours() -> str:
            return "ours"

        @board.prompt(name="shop.greet")
        async def welcome() -> str:
            return "Welcome."

        board.remote("shop", f"{site.url}/mcp")
        with caplog.at_level(logging.WARNING, "pegboard.tools"):
            async with asyncio.timeout(SOON), Client(board) as client:
                assert (await client.read("stock://shop/all"))[0]["text"] == "ours"
                with pytest.raises(ResourceNotFound):
                    await client.read("bank://account")
                (message,) = await client.prompt("shop.greet")
                assert message["content"]["text"] == "Welcome."
        assert sum("is left out" in record.message for record in caplog.records) >= 3


async def test_a_command_is_started_with_the_board_and_stopped_with_it() -> None:
    board = Board("office")
    board.remote("hello", [sys.executable, str(EXAMPLE)])
    async with asyncio.timeout(4 * SOON), Client(board) as client:
        await until(lambda: "hello.add" in board.tools)
        assert (await client.call("hello.add", {"a": 1, "b": "2"})).text == "3"


def test_wrong_servers_are_told_with_the_key() -> None:
    board = Board("office")
    with pytest.raises(DeclarationError, match=r"remote\('x', …\): got 'no-url'; use a URL, a command as a list"):
        board.remote("x", "no-url")
    with pytest.raises(SetupError) as typo:
        board.remote("x", {"urll": "http://127.0.0.1/mcp", "command": "x", "args": "y"})
    assert str(typo.value).splitlines() == [
        "remote('x', …) has 2 mistakes:",
        "- urll: a server has no key 'urll'; did you mean 'url'?",
        "- args: The server: 'args' must be an array: got \"y\", expected a list of strings; put it in brackets: [...]",
    ]
    with pytest.raises(SetupError, match="the entry: The server must have a 'command' field"):
        board.remote("x", {})


async def test_servers_that_do_not_respond_are_waited_for_at_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    waiting: set[object] = set()
    all_wait = asyncio.Event()

    async def wait_connected(gateway: object, *_: object) -> None:
        waiting.add(gateway)
        if len(waiting) == 3:
            all_wait.set()
        await all_wait.wait()

    monkeypatch.setattr(remote_server.Gateway, "wait_connected", wait_connected)
    inner = Board("inner")
    board = Board("office")
    board.mount(inner, "inner")
    for owner, name in ((inner, "one"), (board, "two"), (board, "three")):
        owner.remote(name, "http://127.0.0.1:9/mcp")
    async with asyncio.timeout(SOON), Client(board):
        assert len(waiting) == 3


async def test_a_board_in_an_entry_is_served_in_this_process() -> None:
    board = Board("office")
    board.remote("shop", {"board": shop()})
    async with asyncio.timeout(SOON), Client(board) as client:
        assert (await client.call("shop.order", {"item": "pears", "count": 3})).text == "3 pears"
