"""Limits act where they are set: on a board, a client and a gateway."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from pegboard import Accepted, Board, Client, Context, Elicit, Gateway, Limits, ToolError
from pegboard.errors import InvalidParams, MalformedMessage
from pegboard.protocol.revisions import NEWEST_LEGACY
from tests.gateway.minimal_gateway import served

THIS = Path(__file__)

board = Board("bounded")


@board.tool
def long() -> str:
    return "x" * 5000


@board.tool
def deep() -> Any:
    return [[[[[[["deep"]]]]]]]


@board.tool
async def ask(ctx: Context) -> str:
    answer = await ctx.elicit("Name?", str)
    return f"Hello {answer.content}" if isinstance(answer, Accepted) else "no"


def asker(limits: Limits) -> Board:
    """A board whose tool asks two questions in two rounds, or both at once."""
    made = Board("asker", limits=limits)

    @made.tool
    async def in_rounds(ctx: Context) -> str:
        for question in ("First?", "Second?"):
            await ctx.elicit(question, str)
        return "done"

    @made.tool
    async def at_once(ctx: Context) -> str:
        await ctx.ask(first=Elicit("First?", str), second=Elicit("Second?", str))
        return "done"

    return made


def answer(_asked: object) -> dict[str, Any]:
    return {"value": "Ann"}


@pytest.mark.parametrize(
    ("tool", "limits", "problem"),
    [
        ("at_once", Limits(questions=1), "2 questions in one round; the limit is 1"),
        ("in_rounds", Limits(rounds=1), "asked its caller 1 times"),
        ("in_rounds", Limits(ticket_bytes=100), "collected more state than a request can carry"),
    ],
)
async def test_a_board_bounds_what_its_tools_ask(tool: str, limits: Limits, problem: str) -> None:
    async with Client(asker(limits), elicit=answer, rounds=True) as client:
        assert problem in (await client.call(tool)).text
    async with Client(asker(Limits()), elicit=answer, rounds=True) as client:
        assert (await client.call(tool)).text == "done"


async def test_a_board_bounds_how_long_an_answer_is_waited_for_between_rounds() -> None:
    async with Client(asker(Limits(ticket_seconds=-1)), elicit=answer, rounds=True) as client:
        with pytest.raises(InvalidParams, match="expired"):
            await client.call("in_rounds")


@asynccontextmanager
async def targets(kind: str) -> AsyncIterator[Any]:
    """The board above, reached by one transport."""
    if kind == "stdio":
        yield [sys.executable, "-m", "pegboard", "run", str(THIS), "--stdio"]
    else:
        async with served(board) as url:
            yield url if kind == "http" else url.replace("http", "ws", 1).replace("/mcp", "/ws")


TRANSPORTS = ["http", pytest.param("stdio", marks=pytest.mark.process), "ws"]


@pytest.mark.parametrize("version", [None, NEWEST_LEGACY])
@pytest.mark.parametrize("kind", TRANSPORTS)
async def test_a_client_bounds_the_messages_that_it_accepts(kind: str, version: str | None) -> None:
    async with targets(kind) as target:
        limits = Limits(server_message_bytes=4000)
        async with Client(target, limits=limits, version=version, timeout=20, retries=0) as client:
            with pytest.raises(MalformedMessage):
                await client.call("long")
            assert "deep" in (await client.call("deep")).text


@pytest.mark.parametrize("kind", ["http", "ws"])
async def test_a_client_bounds_how_deep_messages_are_nested(kind: str) -> None:
    async with targets(kind) as target:
        async with Client(target, timeout=20) as client:
            assert "tools" in await client.request("tools/list")
        with pytest.raises((MalformedMessage, ToolError, TimeoutError)):
            async with Client(target, limits=Limits(json_depth=3), timeout=1, connect_timeout=1) as client:
                await client.request("tools/list")


@pytest.mark.parametrize("limits", [Limits(questions=0), None])
async def test_a_client_bounds_the_questions_of_a_legacy_server(limits: Limits | None) -> None:
    async with served(board) as url, Client(url, limits=limits, elicit=answer, version=NEWEST_LEGACY) as client:
        result = await client.call("ask")
        assert result.is_error == (limits is not None)


@pytest.mark.parametrize(
    ("limits", "problem"),
    [
        (Limits(parked=0), "Too many calls are waiting for answers"),
        (Limits(questions=0), ""),
        (Limits(server_message_bytes=100), ""),
        (None, None),
    ],
)
async def test_the_limits_of_a_gateway_reach_its_servers_and_parked_calls(
    tmp_path: Path, limits: Limits | None, problem: str | None
) -> None:
    async with served(board) as url:
        config = tmp_path / "gateway.json"
        config.write_text(json.dumps({"mcpServers": {"asker": {"url": url, "version": NEWEST_LEGACY}}, "lock": "off"}))
        gateway = Gateway(config, limits=limits, environ={"XDG_STATE_HOME": str(tmp_path)})
        async with Client(gateway, elicit=answer, rounds=True, timeout=20) as client:
            tools = {tool["name"].rpartition("__")[2]: tool["name"] for tool in await client.list_tools()}
            if limits is not None and limits.server_message_bytes == 100:
                assert tools == {}
                return
            result = await client.call(tools["ask"])
            if problem is None:
                assert result.text == "Hello Ann"
            else:
                assert result.is_error
                assert problem in result.text


def test_the_page_of_limits_is_that_of_the_source() -> None:
    """Every field has a docstring, too: the script rejects one without."""
    root = THIS.parent.parent
    command = [sys.executable, str(root / "scripts" / "limits_page.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
