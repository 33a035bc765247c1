"""One server in a board: a gateway with a single server, whose offers the board mounts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from pegboard.board import Board
from pegboard.call import Caller
from pegboard.errors import DeclarationError
from pegboard.gateway.gateway import Gateway
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
        self._gateway = Gateway({"toolboxes": {_TOOLBOX: entry}}, mode="all", limits=limits)
        self._starts = 0

    @property
    def board(self) -> Board:
        """The board that has what the server offers."""
        return self._gateway.endpoints[0].board

    @staticmethod
    def accepts(tool: Tool) -> bool:
        """Whether a tool is one of the server, and not one of the gateway's own."""
        return bool(tool.server)

    async def _open(self) -> None:
        self._starts += 1
        if self._starts == 1:
            await self._gateway.start()
            await self._gateway.wait_connected(CONNECT_SECONDS)

    async def _close(self) -> None:
        self._starts = max(0, self._starts - 1)
        if not self._starts:
            await self._gateway.stop()

    async def _share(self, _shared: SharedStore) -> None:
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
