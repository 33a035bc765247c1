"""The same tests over /ws: `Client(board)` there is a client that reaches the board through a WebSocket."""

from __future__ import annotations

from types import CodeType, FunctionType, ModuleType
from typing import Any

import pytest

from pegboard import Board
from pegboard.client.client import Client
from pegboard.transports.guard import Guard
from pegboard.transports.http import HttpEndpoint
from pegboard.transports.listener import Http1Server, listen


class ClientOverWs:
    """Serves the board it is given while its block lasts."""

    def __init__(self, target: Any, **options: Any) -> None:
        self._board: Board = target
        self._options = options
        self._server: Http1Server
        self._client: Client

    async def __aenter__(self) -> Client:
        board = self._board
        endpoint = HttpEndpoint(board.handler, board.info, limits=board.limits, guard=Guard())
        self._server = await listen(endpoint, board.limits)
        self._client = Client(f"ws://127.0.0.1:{self._server.port}/ws", **self._options)
        return await self._client.__aenter__()

    async def __aexit__(self, *about: object) -> None:
        await self._client.__aexit__(*about)
        await self._server.close()


def _uses(code: CodeType, module: ModuleType, seen: set[CodeType]) -> bool:
    """Whether a function, or what it calls of its own module, makes a client."""
    if code in seen:
        return False
    seen.add(code)
    called = (vars(module).get(name) for name in code.co_names)
    inner = [one for one in code.co_consts if isinstance(one, CodeType)]
    inner += [one.__code__ for one in called if isinstance(one, FunctionType) and one.__module__ == module.__name__]
    return "Client" in code.co_names or any(_uses(one, module, seen) for one in inner)


def parametrize(metafunc: pytest.Metafunc) -> None:
    """Run each test of this module twice that makes a client."""
    if vars(metafunc.module).get("Client") is Client and _uses(metafunc.function.__code__, metafunc.module, set()):
        metafunc.parametrize("road", ["in process", "ws"], indirect=True)


@pytest.fixture(autouse=True)
def road(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """By which road a client reaches its board."""
    chosen: str = getattr(request, "param", "in process")
    if chosen == "ws":
        monkeypatch.setattr(request.module, "Client", ClientOverWs)
    return chosen
