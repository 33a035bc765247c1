"""Servers that others wrote, of both eras, behind the gateway, for callers of both."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from pegboard import Client
from tests.client.process_leftovers import nothing_left
from tests.gateway.minimal_gateway import LEGACY, MODERN, Crossing, crossing, served
from tests.peers.judges import HERE, MCP1_PYTHON, PYTHON, ROOT
from tests.peers.test_foreign_servers import started

pytestmark = pytest.mark.peer


@dataclass(frozen=True)
class Server:
    """How a server is run, and the revision that it is spoken to in."""

    name: str
    program: tuple[str | Path, ...]
    version: str

    def __str__(self) -> str:
        return f"{self.name}-{self.version[:4]}"


SERVERS = (
    Server("python-1", (MCP1_PYTHON, HERE / "mcp1_server.py"), LEGACY),
    Server("python-2", (PYTHON, HERE / "mcp2_server.py"), LEGACY),
    Server("python-2", (PYTHON, HERE / "mcp2_server.py"), MODERN),
)


@asynccontextmanager
async def behind(server: Server, transport: str) -> AsyncIterator[Crossing]:
    async with AsyncExitStack() as stack:
        words = [str(word) for word in server.program]
        target: Any = [*words, "stdio"]
        if transport == "http":
            target = stack.enter_context(started([*words, "http", "PORT"], "/mcp"))
        yield await stack.enter_async_context(crossing(target, server.version, connect_timeout=30))


def _note(steps: list[Any], *step: Any) -> None:
    steps.append(step)


@pytest.mark.parametrize("transport", ["stdio", "http"])
@pytest.mark.parametrize("server", SERVERS, ids=str)
async def test_official_servers_are_called_ask_and_tell_for_callers_of_both_eras(
    server: Server, transport: str
) -> None:
    async with nothing_left(), behind(server, transport) as gateway, served(gateway.board) as url:
        for caller in (LEGACY, MODERN):
            steps: list[Any] = []
            count = partial(_note, steps)
            async with Client(url, version=caller, elicit=lambda _: {"name": "tea", "count": 2}) as client:
                assert (await client.call("add", {"a": 2, "b": 3})).structured == {"result": 5}
                assert (await client.call("order")).text == "2 tea"
                told = await client.call("steps", {"count": 3}, progress=count)
                assert told.text == "done"
                assert steps == [(1, 3, "step 1"), (2, 3, "step 2"), (3, 3, "step 3")]
            async with Client(url, version=caller) as silent:
                # The official 2.x server asks whoever calls, and stumbles over what it did not expect.
                said = await silent.call("order")
                assert said.is_error if server.version == MODERN else said.text == "decline"


EVERYTHING = (sys.executable, "-m", "pegboard", "run", str(ROOT / "examples" / "everything.py"), "--stdio")


@pytest.mark.parametrize("version", [LEGACY, MODERN])
async def test_our_board_of_everything_behind_a_gateway_asks_all_it_asks_by_itself(version: str) -> None:
    def elicit(asked: Any) -> dict[str, Any]:
        return {"name": "Ann", "color": "red", "ok": True, "username": "ann", "email": "a@b.example"}

    able: dict[str, Any] = {"elicit": elicit, "sample": lambda _: "Paris", "roots": ["file:///home"]}
    tools = {
        "test_simple_text": "This is a simple text response for testing.",
        "test_input_required_result_elicitation": "Hello, Ann!",
        "test_input_required_result_sampling": "The model says: Paris",
        "test_input_required_result_list_roots": "Roots: file:///home",
        "test_input_required_result_request_state": "state-ok: accept",
        "test_input_required_result_multiple_inputs": "Paris Ann works in file:///home",
        "test_input_required_result_multi_round": "Ann likes red",
        "test_streaming_elicitation": "The user said accept.",
    }
    async with nothing_left(), crossing(list(EVERYTHING), version) as gateway, served(gateway.board) as url:
        for caller in (LEGACY, MODERN):
            async with Client(url, version=caller, **able) as client:
                assert {name: (await client.call(name)).text for name in tools} == tools
                failed = await client.call("test_error_handling")
                assert (failed.is_error, failed.text) == (True, "This tool intentionally returns an error for testing")
        assert gateway.downstream.spawns == 1
