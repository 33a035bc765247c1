"""Clients that come and go, on either event loop: a hundred on each, by every transport, leave nothing behind."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import pytest
import uvloop

from pegboard import Client
from pegboard.client.links import era_cache
from pegboard.errors import ConnectionLost, ResponseTimeout
from tests.client.fakes import script
from tests.client.process_leftovers import nothing_left
from tests.depth import EXPLORE, deeper
from tests.server_processes import HttpChild

pytestmark = pytest.mark.process

FILE = Path(__file__).with_name("battery_board.py")
CLIENTS: Final = 200 if EXPLORE else 100
# A client is cancelled after up to so many turns of the loop.
TURNS: Final = 40
AT_ONCE: Final = 8
ECHO: Final = "discovered(read())\nwhile True:\n    asked = read()\n    if 'id' in asked: text(asked, 'hi')\n"
DIES: Final = "discovered(read())\nread()\nos.kill(os.getpid(), signal.SIGKILL)\n"
SILENT: Final = "discovered(read())\nwhile True: read()\n"

Run = Callable[[Coroutine[Any, Any, None]], None]


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with HttpChild(target=FILE) as child:
        yield child.port


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    return asyncio.run if request.param == "asyncio" else uvloop.run


async def use(target: Any, **options: Any) -> None:
    async with Client(target, **options) as client:
        assert (await client.call("add", {"a": 1, "b": 2})).text in ("3", "hi")


async def lose(target: Any) -> None:
    async with Client(target) as client:
        with pytest.raises(ConnectionLost):
            await client.call("add")


async def give_up(target: Any, tool: str, arguments: dict[str, Any]) -> None:
    async with Client(target) as client:
        with pytest.raises(ResponseTimeout):
            await client.call(tool, arguments, timeout=0.05)


async def change_ones_mind(target: Any, rounds: int) -> None:
    """Cancelled after a few turns of the loop, wherever it is then."""
    task = asyncio.create_task(use(target))
    for _ in range(rounds):
        await asyncio.sleep(0)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


def life(number: int, port: int) -> Coroutine[Any, Any, None]:
    url, socket = f"http://127.0.0.1:{port}/mcp", f"ws://127.0.0.1:{port}/ws"
    lives: list[Callable[[], Coroutine[Any, Any, None]]] = [
        lambda: use(url),
        lambda: use(url, version="2025-11-25"),
        lambda: use(socket),
        lambda: use(script(ECHO)),
        lambda: lose(script(DIES)),
        lambda: give_up(script(SILENT), "any", {}),
        lambda: give_up(url, "hold", {"key": str(number)}),
        lambda: change_ones_mind(url, TURNS * number // CLIENTS),
        lambda: change_ones_mind(socket, TURNS * number // CLIENTS),
        lambda: change_ones_mind(script(ECHO), TURNS * number // CLIENTS),
    ]
    return lives[number % len(lives)]()


@deeper
def test_many_short_lives_leave_nothing(run: Run, port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(era_cache, "_eras", {})

    async def main() -> None:
        # What a loop opens with its first child it keeps for the next.
        await use(script(ECHO))
        room = asyncio.Semaphore(AT_ONCE)

        async def live(number: int) -> None:
            async with room:
                await life(number, port)

        async with nothing_left(), asyncio.TaskGroup() as group:
            for number in range(CLIENTS):
                group.create_task(live(number))

    run(main())
