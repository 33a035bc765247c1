"""Servers in processes of their own that are killed in the middle of a call, and come back at the same address."""

from __future__ import annotations

import asyncio
import itertools
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import NamedTuple

import pytest

from pegboard import Client
from pegboard.call import Change
from pegboard.errors import ConnectionLost, ResponseTimeout, Unreachable
from tests.client.process_leftovers import nothing_left
from tests.server_processes import HttpChild
from tests.waiting import SOON, until

pytestmark = pytest.mark.process

FILE = Path(__file__).with_name("battery_board.py")
LEGACY = "2025-11-25"


class Road(NamedTuple):
    """A way to the same server: what it is started with, where it is, and which revision is spoken."""

    url: str
    version: str | None = None
    flags: tuple[str, ...] = ()


ROADS = {
    "http": Road("http://127.0.0.1:{}/mcp"),
    "http-legacy": Road("http://127.0.0.1:{}/mcp", LEGACY),
    "sse": Road("http://127.0.0.1:{}/sse", None, ("--legacy-endpoints", "sse")),
    "ws": Road("ws://127.0.0.1:{}/ws"),
    "ws-legacy": Road("ws://127.0.0.1:{}/ws", LEGACY),
}


@pytest.fixture(params=ROADS)
def road(request: pytest.FixtureRequest) -> Road:
    return ROADS[request.param]


async def start(road: Road, processes: ExitStack, port: int = 0) -> HttpChild:
    server = await asyncio.to_thread(lambda: HttpChild(*road.flags, "--port", str(port), target=FILE))
    return processes.enter_context(server)


async def kill(server: HttpChild) -> None:
    server.process.kill()
    await asyncio.to_thread(server.wait)


async def test_a_server_killed_in_a_call_fails_it_and_serves_the_next_when_it_is_back(road: Road) -> None:
    async with nothing_left():
        with ExitStack() as processes:
            server = await start(road, processes)
            async with Client(road.url.format(server.port), version=road.version, break_after=0) as client:
                begun: list[float] = []
                calls = [
                    asyncio.create_task(client.call("dawdle", progress=lambda far, *_: begun.append(far), timeout=SOON))
                    for _ in range(4)
                ]
                await until(lambda: len(begun) == 4)
                await kill(server)
                await start(road, processes, server.port)
                told = await asyncio.gather(*calls, return_exceptions=True)
                # A stream of the legacy era is asked for again, and nobody knows of it any more.
                assert {type(one) for one in told} == {ConnectionLost}
                assert all("127.0.0.1" in str(one) for one in told)
                assert (await client.call("add", {"a": 2, "b": 3})).text == "5"


async def test_a_server_that_does_not_restart_causes_an_error_within_the_deadline(road: Road) -> None:
    async with nothing_left():
        with ExitStack() as processes:
            server = await start(road, processes)
            async with Client(road.url.format(server.port), version=road.version, break_after=0) as client:
                begun = asyncio.Event()
                call = asyncio.create_task(client.call("dawdle", progress=lambda *_: begun.set(), timeout=1.5))
                await begun.wait()
                await kill(server)
                with pytest.raises((ConnectionLost, ResponseTimeout), match=r"127\.0\.0\.1"):
                    await call
                with pytest.raises(Unreachable, match="Is the server running"):
                    await client.call("add", {"a": 2, "b": 3}, timeout=1.5)


async def test_who_listens_hears_on_through_a_restart(road: Road) -> None:
    heard: list[Change] = []
    numbers = itertools.count()

    async def listen(client: Client) -> None:
        async for change in client.listen(tools=True):
            heard.append(change)  # noqa: PERF401 — each is looked at as it comes

    async def grow(client: Client, times: int) -> None:
        """Each is heard of, once the listening has begun; one alone could be what is told for a restart."""
        for _ in range(times):
            before = len(heard)
            while len(heard) == before:
                await client.call("grow", {"name": f"tool_{next(numbers)}"})
                with suppress(TimeoutError):
                    await until(lambda: len(heard) > before, 0.2)  # noqa: B023 — it is called in this round

    async with nothing_left():
        with ExitStack() as processes:
            server = await start(road, processes)
            async with Client(road.url.format(server.port), version=road.version, break_after=0) as client:
                listening = asyncio.create_task(listen(client))
                await grow(client, 1)
                await kill(server)
                await start(road, processes, server.port)
                await grow(client, 3)
                assert set(heard) == {Change("tools")}
                listening.cancel()
                await asyncio.wait([listening])
