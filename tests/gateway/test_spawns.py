"""How often a gateway starts its servers: once each, and again only for those that died."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pegboard import Client
from tests.server_processes import HttpChild
from tests.waiting import SOON, until

pytestmark = pytest.mark.process

# It counts itself, so that nobody's bookkeeping is believed.
SERVER = """
import os
from pathlib import Path

from pegboard import Board

with Path(__file__).with_suffix(".starts").open("a") as starts:
    starts.write(f"{os.getpid()}\\n")

board = Board("counted")


@board.tool
async def add(a: int, b: int) -> int:
    return a + b


@board.tool
async def pid() -> int:
    return os.getpid()
"""
CALLS = 1000
AT_ONCE = 32
# One of each era.
ERAS = {"one": "2026-07-28", "two": "2025-11-25"}


class Counted:
    """A gateway as a process over two servers on stdio, and how often each of these was started."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        servers: dict[str, Any] = {}
        for name, version in ERAS.items():
            file = folder / f"{name}.py"
            file.write_text(SERVER)
            words = ["-m", "pegboard", "run", str(file), "--stdio"]
            servers[name] = {"command": sys.executable, "args": words, "version": version}
        self.config = folder / "gateway.json"
        self.config.write_text(json.dumps({"toolboxes": {"dev": {"description": "Counted", "mcpServers": servers}}}))

    def starts(self, name: str) -> list[int]:
        """The processes of a server so far."""
        return [int(line) for line in (self._folder / f"{name}.starts").read_text().split()]


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[tuple[Counted, str]]:
    counted = Counted(tmp_path)
    state = str(tmp_path / "state")
    with HttpChild("--no-watch", verb="up", target=counted.config, PEGBOARD_STATE=state) as child:
        yield counted, f"http://127.0.0.1:{child.port}/mcp"


async def add(client: Client, server: str, number: int, turns: asyncio.Semaphore) -> str:
    async with turns:
        return (await client.call(f"dev__{server}__add", {"a": number, "b": 1})).text


async def test_a_thousand_calls_over_two_servers_are_two_spawns(gateway: tuple[Counted, str]) -> None:
    counted, url = gateway
    turns = asyncio.Semaphore(AT_ONCE)
    async with Client(url) as client:
        servers = [tuple(ERAS)[number % 2] for number in range(CALLS)]
        told = await asyncio.gather(*(add(client, server, n, turns) for n, server in enumerate(servers)))
        pids = [(await client.call(f"dev__{name}__pid")).text for name in ERAS]

    assert told == [str(number + 1) for number in range(CALLS)]
    assert [counted.starts(name) for name in ERAS] == [[int(pid)] for pid in pids]


async def test_a_killed_server_comes_back_and_calls_to_others_do_not_notice(gateway: tuple[Counted, str]) -> None:
    counted, url = gateway
    told: list[str] = []
    back = asyncio.Event()

    async def keep_calling(client: Client) -> None:
        while not back.is_set():
            told.append((await client.call("dev__two__add", {"a": 1, "b": 1})).text)

    async with Client(url) as client, asyncio.TaskGroup() as others:
        first = int((await client.call("dev__one__pid")).text)
        for _ in range(4):
            others.create_task(keep_calling(client))
        await until(lambda: len(told) > 20)
        os.kill(first, signal.SIGKILL)
        before = len(told)
        async with asyncio.timeout(SOON):
            # What was under way or comes at once may fail, and the model is told so.
            while (again := await client.call("dev__one__pid")).is_error:
                assert "dev/one" in again.text
        await until(lambda: len(told) > before + 20)
        back.set()

    assert set(told) == {"2"}
    assert counted.starts("one") == [first, int(again.text)]
    assert len(counted.starts("two")) == 1
