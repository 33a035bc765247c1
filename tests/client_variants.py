"""The same tests by other roads: `Client(board)` there reaches the board through a WebSocket, or through a gateway.

Behind a gateway the board is a server like any other, and what was put around its tools is around the gateway's own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from types import CodeType, FunctionType, ModuleType
from typing import Any, TypeVar

import pytest

from pegboard import Board, Gateway
from pegboard.client.client import Client
from pegboard.config.config_keys import ToolOverride
from pegboard.config.gateway_config import GatewayConfig, ServerConfig, ToolboxConfig
from pegboard.server.http.guard import Guard
from pegboard.server.http.listener import Http1Server, listen
from pegboard.server.streamable_http.mcp_endpoint import HttpEndpoint

T = TypeVar("T")


async def serve(board: Board) -> Http1Server:
    return await listen(HttpEndpoint(board.handler, board.info, limits=board.limits, guard=Guard()), board.limits)


class ClientOverWs:
    """Serves the board it is given while its block lasts."""

    def __init__(self, target: Any, **options: Any) -> None:
        self._board: Board = target
        self._options = options
        self._server: Http1Server
        self._client: Client

    async def __aenter__(self) -> Client:
        await self._board.start()
        self._server = await serve(self._board)
        self._client = Client(f"ws://127.0.0.1:{self._server.port}/ws", **self._options)
        return await self._client.__aenter__()

    async def __aexit__(self, *about: object) -> None:
        await self._client.__aexit__(*about)
        await self._server.close()
        await self._board.stop()


class ClientBehindGateway:
    """Puts a gateway before the board it is given while its block lasts."""

    def __init__(self, target: Any, **options: Any) -> None:
        self._board: Board = target
        self._options = options
        self._stack = AsyncExitStack()

    async def server(self, stack: AsyncExitStack) -> dict[str, Any]:
        """How the gateway reaches the board."""
        return {"kind": "board", "board": "board"}

    async def __aenter__(self) -> Client:
        board = self._board
        async with self._stack as stack:
            # Whoever runs the gateway vouches for what the tools promise.
            shown = {
                tool.name: ToolOverride(
                    category=tool.category, tags=tuple(tool.tags), annotations=tool.annotations or None
                )
                for tool in board.tools
            }
            about: dict[str, Any] = {"name": "board", "tools": shown, **await self.server(stack)}
            server = ServerConfig(**about)
            toolbox = ToolboxConfig(name="dev", description="Under test", names="plain", servers={"board": server})
            config = GatewayConfig(path="", name=board.name, lock="off", toolboxes={"dev": toolbox})
            gateway = Gateway(config, limits=board.limits, boards={"board": board})
            stack.enter_context(around(board, gateway))
            client = await stack.enter_async_context(Client(gateway, **self._options))
            await gateway.wait_connected(10)
            assert [one.state for one in gateway.downstreams] == ["ready"], gateway.downstreams[0].problem
            self._stack = stack.pop_all()
            return client

    async def __aexit__(self, *about: object) -> None:
        await self._stack.aclose()


class ClientBehindGatewayOverHttp(ClientBehindGateway):
    """The same where the board is reached over HTTP."""

    async def server(self, stack: AsyncExitStack) -> dict[str, Any]:
        served = await serve(self._board)
        stack.push_async_callback(served.close)
        return {"kind": "http", "url": f"http://127.0.0.1:{served.port}/mcp"}


@contextmanager
def around(board: Board, gateway: Gateway) -> Iterator[None]:
    """What is around the tools of the board is around those of the gateway, and not there."""
    attached, hooks = board._attached._attachments, {tool: tool.hooks for tool in board.tools}
    shown = gateway.endpoints[0].board
    for one in attached:
        scope = {} if one.scope == "board" else {one.scope: one.target}
        shown.use(one.middleware, order=one.order, kind=one.kinds, **scope)  # type: ignore[arg-type] # the scopes are its own words
    for tool, own in hooks.items():
        shown.use(*own, tool=tool.name)
        tool.hooks = ()
    board._attached._attachments = []
    board.tools._touch()
    # What a test puts around later goes to the gateway as well.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(board, "use", shown.use)
        patch.setattr(board, "unuse", shown.unuse)
        try:
            yield
        finally:
            board._attached._attachments = attached
            for tool, own in hooks.items():
                tool.hooks = own
            board.tools._touch()


ROADS = {
    "in process": Client,
    "ws": ClientOverWs,
    "gateway": ClientBehindGateway,
    "gateway over http": ClientBehindGatewayOverHttp,
}


def on_one_machine(reason: str) -> Callable[[T], T]:
    """Keep a test off the roads behind a gateway, for a reason."""

    def mark(test: T) -> T:
        vars(test)["not_behind_a_gateway"] = reason
        return test

    return mark


def fails_here(test: T) -> T:
    """Keep a test off the roads behind a gateway, since its tool fails by an exception.

    There that is a result of the server's, which goes to the after-hooks: see tests/gateway/test_middleware.py.
    """
    return on_one_machine("a tool that fails at its server is a result")(test)


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
    """Run each test of this module by every road that makes a client."""
    if vars(metafunc.module).get("Client") is Client and _uses(metafunc.function.__code__, metafunc.module, set()):
        direct = vars(metafunc.function).get("not_behind_a_gateway")
        metafunc.parametrize("road", [road for road in ROADS if not (direct and "gateway" in road)], indirect=True)


@pytest.fixture(autouse=True)
def road(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """By which road a client reaches its board."""
    chosen: str = getattr(request, "param", "in process")
    if chosen != "in process":
        monkeypatch.setattr(request.module, "Client", ROADS[chosen])
    return chosen
