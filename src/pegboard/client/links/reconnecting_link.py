"""A link that is opened again when it was lost."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from pegboard.call import Json
from pegboard.client.links.credentials import Authorizer
from pegboard.client.links.duplex_link import DuplexLink
from pegboard.client.links.link import OutgoingRequest
from pegboard.errors import ConnectionLost
from pegboard.protocol.revisions import MODERN


class ReconnectingLink:
    """A link over a duplex, where there is one; `make` makes the next, told whether there was one before."""

    mirrors = False
    authorizer: Authorizer | None = None

    def __init__(self, name: str, transport: str, make: Callable[[bool], Awaitable[DuplexLink]]) -> None:
        self.name = name
        self.transport = transport
        self._make = make
        self._duplex: DuplexLink | None = None
        self._closed = False
        self._opening = asyncio.Lock()

    @property
    def version(self) -> str:
        return MODERN if self._duplex is None else self._duplex.version

    @property
    def is_open(self) -> bool:
        return self._duplex is not None and not self._duplex.lost

    async def open(self) -> None:
        self._closed = False
        await self._ready()

    async def until_lost(self) -> None:
        """Wait until a link that is open is not any more, and raise why."""
        duplex = self._duplex
        if duplex is not None:
            await duplex.until_lost()

    async def close(self) -> None:
        self._closed = True
        async with self._opening:
            await self._end()

    async def request(self, out: OutgoingRequest) -> Mapping[str, Json]:
        duplex = self._duplex
        if duplex is None or duplex.lost:
            duplex = await self._ready()
        return await duplex.request(out)

    async def _ready(self) -> DuplexLink:
        async with self._opening:
            old = self._duplex
            if old is not None and not old.lost:
                return old
            if self._closed:
                # Whoever would try again would start what nobody ends.
                raise ConnectionLost(f"{self.name}: this client is closed")
            await self._end()
            self._duplex = await self._make(old is not None)
            return self._duplex

    async def _end(self) -> None:
        duplex, self._duplex = self._duplex, None
        if duplex is not None:
            await duplex.close()


async def opened(duplex: DuplexLink) -> DuplexLink:
    """The same, open; one that does not open leaves nothing behind."""
    try:
        await duplex.open()
    except BaseException:
        await duplex.close()
        raise
    return duplex
