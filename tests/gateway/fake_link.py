"""A link that does as its test says, and the lane it makes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from pegboard.call import Channel, Json
from pegboard.client.known_tools import KnownTools
from pegboard.client.links.link import OutgoingRequest
from pegboard.gateway.servers.server_connection import ServerConnection


class FakeLink:
    """Opens as `opening` says, and answers as `answer` does."""

    name = "the fake"
    version = "2026-07-28"
    mirrors = False
    authorizer = None

    def __init__(self, transport: str = "http") -> None:
        self.transport = transport
        self.is_open = False
        self.opened = self.closed = 0
        self.unattributed: Channel | None = None
        self.opening: Callable[[], Awaitable[None]] | None = None
        self.answer: Callable[[OutgoingRequest], Awaitable[Mapping[str, Json]]] | None = None

    async def open(self) -> None:
        self.opened += 1
        if self.opening is not None:
            await self.opening()
        self.is_open = True

    async def close(self) -> None:
        self.closed += 1
        self.is_open = False

    async def request(self, out: OutgoingRequest) -> Mapping[str, Json]:
        if self.answer is None:
            await asyncio.get_running_loop().create_future()
        assert self.answer is not None
        return await self.answer(out)

    def connection(self, **options: Any) -> ServerConnection:
        def hang(unattributed: Channel) -> FakeLink:
            self.unattributed = unattributed
            return self

        async def list_tools() -> None: ...

        return ServerConnection(
            "fake", hang, KnownTools(), list_tools, **{"roots": (), "connect_timeout": 5.0, **options}
        )
