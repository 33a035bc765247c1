"""Clients of every revision in the same process, over messages as on a wire."""

from __future__ import annotations

import asyncio

import pytest

from pegboard import Accepted, Board, Client, Context
from pegboard.protocol.revisions import REVISIONS
from pegboard.testing import MemoryServer
from tests.waiting import until


def make_board() -> Board:
    board = Board("memory")

    @board.tool
    async def describe(ctx: Context) -> dict[str, object]:
        """Says how it was called."""
        return {"version": ctx.caller.version, "has_session": bool(ctx.caller.session)}

    @board.tool
    async def order(ctx: Context) -> str:
        """Asks and reports progress."""
        answer = await ctx.elicit("Sure?", bool, key="sure")
        await ctx.progress(1, 2, "half")
        return f"{isinstance(answer, Accepted)}"

    @board.tool
    async def wait() -> str:
        """Waits for ever."""
        await asyncio.Event().wait()
        return "never"

    return board


@pytest.mark.parametrize("version", REVISIONS)
async def test_a_client_speaks_the_revision_that_it_is_given(version: str) -> None:
    async with Client(MemoryServer(make_board()), version=version) as client:
        result = await client.call("describe")
        assert client.version == version
        assert result.text == f'{{"version":"{version}","has_session":{str(REVISIONS[version].has_sessions).lower()}}}'


async def test_without_a_version_the_newest_is_negotiated() -> None:
    async with Client(MemoryServer(make_board())) as client:
        assert (await client.call("describe")).structured == {"version": "2026-07-28", "has_session": False}


@pytest.mark.parametrize("version", ["2026-07-28", "2025-11-25"])
async def test_questions_and_progress_reach_the_client(version: str) -> None:
    seen: list[str | None] = []

    async def answer(_params: object) -> dict[str, object]:
        return {"value": True}

    async def progress(_done: float, _total: float | None, message: str | None) -> None:
        seen.append(message)

    async with Client(MemoryServer(make_board()), version=version, elicit=answer) as client:
        assert (await client.call("order", progress=progress)).text == "True"
    assert seen == ["half"]


async def test_changes_reach_a_legacy_client() -> None:
    board = make_board()
    async with Client(MemoryServer(board), version="2025-11-25") as client:
        await client.list_tools()
        changes = client.listen(tools=True)
        heard = asyncio.ensure_future(anext(changes))
        await until(lambda: bool(board.changes._watches))
        board.add(lambda: "new", name="added")
        async with asyncio.timeout(10):
            await heard
        await changes.aclose()
        assert "added" in {tool["name"] for tool in await client.list_tools()}


async def test_closing_the_client_cancels_its_calls() -> None:
    async with Client(MemoryServer(make_board()), version="2025-11-25") as client:
        call = asyncio.ensure_future(client.call("wait"))
        await client.call("describe")
    with pytest.raises(Exception, match="closed"):
        await call
