"""One server in a board: a gateway with a single server, whose offers the board mounts."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final

from pegboard.board import Board
from pegboard.call import Caller
from pegboard.client.links.in_process import InProcessServer
from pegboard.config.gateway_config import read_config
from pegboard.config.mistakes import ConfigReport
from pegboard.errors import DeclarationError
from pegboard.gateway.gateway import Gateway, name_boards
from pegboard.limits import Limits
from pegboard.stores.cluster import SharedStore
from pegboard.tools.tool import Tool

CONNECT_SECONDS: Final = 5.0
"""How long the start of a board waits for a server; it connects in the background after that."""

_TOOLBOX: Final = "remote"


class RemoteServer:
    """A downstream server, started with the first board that uses it and stopped with the last."""

    opens = True

    def __init__(self, name: str, server: str | Sequence[str] | Mapping[str, Any], limits: Limits) -> None:
        entry = {"mcpServers": {name: _read_entry(name, server)}, "names": "plain", "description": f"the server {name}"}
        report = ConfigReport(f"remote({name!r}, …)", root="the entry")
        # The author has written the entry alone.
        report.origins = {("toolboxes", _TOOLBOX, "mcpServers", name): ()}
        boards: dict[str, InProcessServer] = {}
        tree = name_boards({"toolboxes": {_TOOLBOX: entry}}, boards)
        self._gateway = Gateway(
            read_config(tree, boards=boards, report=report), mode="all", limits=limits, boards=boards
        )
        self._starts = 0
        self._until = 0.0

    @property
    def board(self) -> Board:
        """The board that has what the server offers."""
        return self._gateway.endpoints[0].board

    @staticmethod
    def accepts(tool: Tool) -> bool:
        """Whether a tool is one of the server, and not one of the gateway's own."""
        return bool(tool.server)

    async def open(self) -> None:
        """Begin to connect, without waiting for the server."""
        self._starts += 1
        if self._starts == 1:
            self._until = asyncio.get_running_loop().time() + CONNECT_SECONDS
            await self._gateway.start()

    async def wait_connected(self) -> None:
        """Wait until the server has responded or failed, or the time that a start waits is up."""
        await self._gateway.wait_connected(max(0.0, self._until - asyncio.get_running_loop().time()))

    async def close(self) -> None:
        """Disconnect, after the last board that uses it."""
        self._starts = max(0, self._starts - 1)
        if not self._starts:
            await self._gateway.stop()

    async def share(self, _shared: SharedStore) -> None:
        """Questions that wait for their answer stay in this process."""

    def end_session(self, caller: Caller, seconds: float) -> None:
        """A session has ended: connections that were only for it end, too."""
        self._gateway.end_session(caller, seconds)


def _read_entry(name: str, server: str | Sequence[str] | Mapping[str, Any]) -> Mapping[str, Any]:
    match server:
        case str() if "://" in server:
            return {"url": server}
        case Mapping():
            return server
        case [str() as command, *arguments]:
            return {"command": command, "args": list(arguments)}
    raise DeclarationError(
        f"remote({name!r}, …): got {server!r:.80}; use a URL, a command as a list of texts, or an entry with the keys of a "
        "gateway's file (docs/gateway-config.md)"
    )
