"""With `"share": "session"`, each session has its own server process, which ends with the session."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import httpx
import pytest

from pegboard import Board, Client, Gateway
from pegboard.config.gateway_config import GatewayConfig, ServerConfig, ToolboxConfig
from tests.auth.serving import HELLO, LEGACY, Site, legacy_message, serving
from tests.client.process_leftovers import nothing_left
from tests.gateway.one_server import bad
from tests.waiting import SOON, until

pytestmark = pytest.mark.process

Call = Callable[[], Awaitable[int]]
"""Calls the tool that returns the id of its process."""


def gateway_over(server: ServerConfig, **boards: Board) -> Gateway:
    toolbox = ToolboxConfig(name="dev", description="d", names="plain", servers={server.name: server})
    return Gateway(GatewayConfig(path="x.json", lock="off", list_wait=SOON, toolboxes={"dev": toolbox}), boards=boards)


def has_ended(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


@asynccontextmanager
async def our_client(url: str) -> AsyncIterator[Call]:
    async with Client(url, version=LEGACY) as client:

        async def call() -> int:
            return int((await client.call("pid")).text)

        yield call


@asynccontextmanager
async def sse_client(site: Site) -> AsyncIterator[Call]:
    async with (
        httpx.AsyncClient(base_url=site.url, timeout=SOON) as http,
        http.stream("GET", "/sse", headers={"accept": "text/event-stream"}) as stream,
    ):
        lines = stream.aiter_lines()

        async def read() -> str:
            while not (line := await anext(lines)).startswith("data: "):
                pass
            return line.removeprefix("data: ")

        async def ask(method: str, **params: object) -> str:
            await http.post(path, json={"jsonrpc": "2.0", "id": method, "method": method, "params": params})
            while (message := json.loads(await read())).get("id") != method:
                pass
            return str(message["result"].get("content", [{"text": ""}])[0]["text"])

        async def call() -> int:
            return int(await ask("tools/call", name="pid", arguments={}))

        path = await read()
        await ask("initialize", **HELLO)
        yield call


TRANSPORTS: dict[str, Callable[[Site], AbstractAsyncContextManager[Call]]] = {
    "http": lambda site: our_client(f"{site.url}/mcp"),
    "sse": sse_client,
    "ws": lambda site: our_client(f"ws://127.0.0.1:{site.port}/ws"),
}


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_the_process_of_a_session_ends_with_it_on_every_transport(transport: str) -> None:
    gateway = gateway_over(bad(share="session"))
    async with nothing_left(), serving(gateway, store="memory") as site:
        await gateway.wait_connected()

        connect = TRANSPORTS[transport]
        async with connect(site) as stays:
            kept = await stays()
            async with connect(site) as leaves:
                ended = await leaves()
                assert await leaves() == ended != kept
            await until(lambda: has_ended(ended))
            assert await stays() == kept


@pytest.mark.parametrize("ended_at", [0, 1])
async def test_a_session_that_ends_at_one_replica_ends_its_processes_at_all(tmp_path: Path, ended_at: int) -> None:
    store = f"sqlite:{tmp_path / 'store.db'}"
    gateways = gateway_over(bad(share="session")), gateway_over(bad(share="session"))
    async with (
        nothing_left(),
        serving(gateways[0], store=store) as one,
        serving(gateways[1], store=store) as two,
    ):
        for gateway in gateways:
            await gateway.wait_connected()
        opened = await one.ask("POST", "/mcp", *legacy_message("initialize", **HELLO))
        session = opened.headers["mcp-session-id"]

        async def call(site: Site) -> int:
            message = legacy_message("tools/call", session=session, name="pid", arguments={})
            return int((await site.ask("POST", "/mcp", *message)).json["result"]["content"][0]["text"])

        pids = [await call(one), await call(two)]
        # A change at one replica leaves the process at the other one alone.
        level = legacy_message("logging/setLevel", session=session, level="error")
        assert (await one.ask("POST", "/mcp", *level)).json["result"] == {}
        assert [await call(one), await call(two)] == pids
        assert not any(map(has_ended, pids))
        await (one, two)[ended_at].ask("DELETE", "/mcp", b"", {"Mcp-Session-Id": session})
        await until(lambda: all(map(has_ended, pids)))


async def test_a_board_of_the_same_process_outlives_sessions() -> None:
    stopped: list[str] = []

    class Counted(Board):
        async def stop(self) -> None:
            stopped.append(self.name)
            await super().stop()

    board = Counted("calc")

    @board.tool
    async def pid() -> int:
        return os.getpid()

    gateway = gateway_over(ServerConfig(name="calc", kind="board", board="calc", share="session"), calc=board)
    async with serving(gateway, store="memory") as site:
        await gateway.wait_connected()
        for _ in range(2):
            async with our_client(f"{site.url}/mcp") as call:
                assert await call() == os.getpid()
                assert stopped == []
