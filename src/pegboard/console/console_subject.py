"""What the console shows, as JSON documents: the part that boards and gateways share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from pegboard import __version__
from pegboard.auth.principal import Principal
from pegboard.board import Board
from pegboard.call import Json
from pegboard.middleware.observability.history import History
from pegboard.middleware.observability.token_count import tokens_of
from pegboard.server.hosting import Hosted


class ConsoleSubject(Protocol):
    """A board or a gateway, as the console sees it."""

    history: History

    @property
    def served(self) -> Hosted: ...

    @property
    def board(self) -> Board:
        """The board of the endpoint: its tools, as clients see them, and the rules about them."""

    def overview(self) -> dict[str, Json]:
        """Name, servers and token costs."""

    def tools(self) -> list[dict[str, Json]]:
        """Every tool, with its definition, its lane and its tokens."""

    def search(self, query: str) -> list[str]:
        """The names of the tools that match, in the order in which a model would find them."""

    async def change_server(self, toolbox: str, server: str, action: str) -> None:
        """Start, stop or restart a server."""

    def server_tools(self, toolbox: str, server: str) -> list[Json]:
        """The names of the tools of a server, and whether they are switched on."""

    async def switch_tool(self, toolbox: str, server: str, tool: str, *, on: bool) -> None:
        """Serve a tool of a server, or stop serving it."""

    async def connections(self, principal: Principal) -> Json:
        """The servers that a person connects themselves, and whether they have; null if there are none."""

    async def change_connection(self, principal: Principal, toolbox: str, server: str, action: str) -> str:
        """Start to connect a person to a server, and return the path of the page for it; or remove the connection."""

    async def lock(self) -> Json:
        """How the definitions of the servers differ from the accepted ones; null without a lock file."""

    async def accept(self, names: list[str]) -> None:
        """Accept the current definitions of these tools or servers."""


def about(kind: str, served: Hosted, since: float) -> dict[str, Json]:
    return {
        "kind": kind,
        "name": served.info["name"],
        "version": served.info["version"],
        "keys": served.auth is not None and served.auth.keys,
        "pegboard": __version__,
        "since": since,
    }


def describe(
    name: str, definition: Mapping[str, Json], lane: str, toolbox: str, server: str, tool: str
) -> dict[str, Json]:
    return {
        **definition,
        "name": name,
        "lane": lane,
        "toolbox": toolbox,
        "server": server,
        "tool": tool,
        "tokens": tokens_of(definition),
    }
