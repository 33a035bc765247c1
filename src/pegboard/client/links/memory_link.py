"""The link to a board in the same process over messages as on a wire, in any protocol revision."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from pegboard.call import Channel
from pegboard.client.links.duplex_link import DuplexLink
from pegboard.client.links.in_process import InProcessServer
from pegboard.client.links.link import Identity, LinkOptions
from pegboard.errors import ServerFault
from pegboard.protocol.revisions import MODERN


class ServerLine(Protocol):
    """The server's end of a line in memory."""

    def send(self, message: bytes) -> None: ...

    async def close(self) -> None: ...


class LineServer(InProcessServer, Protocol):
    """A board or a gateway, which can also be reached over messages."""

    def open_line(self, receive: Callable[[bytes], None]) -> ServerLine: ...


class MemoryLink(DuplexLink):
    """A link over messages in memory; the board is started and stopped with it."""

    def __init__(self, board: LineServer, identity: Identity, unattributed: Channel, options: LinkOptions) -> None:
        super().__init__("the board", "memory", identity, unattributed, options)
        self._board = board

    async def open(self) -> None:
        await self._board.start()
        try:
            await super().open()
        except BaseException:
            await self._board.stop()
            raise

    async def close(self) -> None:
        await super().close()
        await self._board.stop()

    async def _connect(self, _again: bool, version: str | None) -> None:
        await self._speak(_MemoryPipe(self._board), version or MODERN)


class _MemoryPipe:
    """The client's end."""

    name = "the board"
    transport = "memory"

    def __init__(self, board: LineServer) -> None:
        self._board = board
        self._line: ServerLine

    async def open(self, receive: Callable[[bytes], None], _lost: Callable[[ServerFault], None]) -> None:
        self._line = self._board.open_line(receive)

    async def send(self, message: bytes) -> None:
        self._line.send(message)

    def send_now(self, message: bytes) -> None:
        self._line.send(message)

    async def close(self) -> None:
        await self._line.close()
