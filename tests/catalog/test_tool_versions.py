"""Versions of a tool: the highest one is listed, each can be called by its name and version."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pegboard import Board, Client, InvalidParams, Middleware
from pegboard.errors import DeclarationError
from pegboard.middleware import Call


def answering(text: str) -> Callable[[], str]:
    def answer() -> str:
        return text

    return answer


def versioned(*versions: str, **options: Any) -> Board:
    board = Board("versions", **options)
    for version in versions:
        board.add(answering(version), name="rate", version=version)
    return board


async def test_the_highest_version_is_listed_and_each_can_be_called() -> None:
    board = versioned("2", "10", "9")
    async with Client(board) as client:
        (shown,) = await client.list_tools()
        assert (shown["name"], shown["_meta"]) == ("rate", {"dev.pegboard/version": "10"})
        assert [tool["name"] for tool in board.export("mcp")] == ["rate"]  # type: ignore[index]  # a list of definitions
        for name, version in (("rate", "10"), ("rate.v2", "2"), ("rate.v9", "9"), ("rate.v10", "10")):
            assert (await client.call(name)).text == version
        with pytest.raises(InvalidParams, match=r"Unknown tool: 'rate\.v3', did you mean 'rate'"):
            await client.call("rate.v3")
        board.remove("rate")
        assert (await client.call("rate")).text == "9"
        with pytest.raises(InvalidParams):
            await client.call("rate.v10")


async def test_rules_middleware_and_switches_hold_for_all_versions() -> None:
    seen: list[str] = []

    class Noting(Middleware):
        async def before(self, call: Call) -> None:
            seen.append(call.name)

    board = versioned("1", "2")
    board.use(Noting(), tool="rate")
    async with Client(board) as client:
        await client.call("rate")
        await client.call("rate.v1")
        assert seen == ["rate", "rate.v1"]
        board.disable("rate")
        assert await client.list_tools() == []
        for name in ("rate", "rate.v1", "rate.v2"):
            with pytest.raises(InvalidParams):
                await client.call(name)
        board.enable("rate")
        assert (await client.call("rate.v1")).text == "1"
    ruled = versioned("1", "2", rules=[{"who": "*", "deny": ["rate"]}, {"who": "*", "allow": ["*"]}])
    async with Client(ruled) as client:
        for name in ("rate", "rate.v1", "rate.v2"):
            assert "denied" in (await client.call(name)).text


async def test_versions_of_a_mounted_board_are_under_its_prefix() -> None:
    outer = Board("outer", rules=[{"who": "*", "deny": ["shop.rate"]}, {"who": "*", "allow": ["*"]}])
    outer.mount(versioned("1", "2"), "shop")
    plain = Board("plain")
    plain.mount(versioned("1", "2"), "shop")
    async with Client(plain) as client:
        assert [tool["name"] for tool in await client.list_tools()] == ["shop.rate"]
        assert (await client.call("shop.rate.v1")).text == "1"
        assert (await client.call("shop.rate")).text == "2"
    async with Client(outer) as client:
        for name in ("shop.rate", "shop.rate.v1"):
            assert "denied" in (await client.call(name)).text


def test_wrong_versions_are_rejected() -> None:
    with pytest.raises(DeclarationError, match=r"the tool name 'rate\.v1' is taken"):
        versioned("1", "1")
    with pytest.raises(DeclarationError, match="use letters, digits"):
        versioned("1 beta")
    board = Board("mixed")
    board.add(lambda: 1, name="rate")
    with pytest.raises(DeclarationError, match=r"exists without a version .*; give it one, too"):
        board.add(lambda: 2, name="rate", version="2")
