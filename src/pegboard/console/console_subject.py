"""What the console shows: the tools and servers of a board or a gateway, as JSON documents."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from time import time
from typing import Protocol

from pegboard import __version__
from pegboard.board import Board
from pegboard.call import Handler, Json
from pegboard.errors import InvalidParams
from pegboard.gateway.gateway import Gateway
from pegboard.gateway.modes.mode_choice import tokens_of
from pegboard.gateway.modes.mode_costs import ModeCosts
from pegboard.gateway.modes.tool_directory import Directory
from pegboard.gateway.servers.downstream import Downstream
from pegboard.middleware.observability.history import History
from pegboard.middleware.observability.masking import mask_command, mask_text


class ConsoleSubject(Protocol):
    """A board or a gateway, as the console sees it."""

    history: History

    @property
    def handler(self) -> Handler: ...

    @property
    def info(self) -> Mapping[str, Json]: ...

    def overview(self) -> dict[str, Json]:
        """Name, servers and token costs."""

    def tools(self) -> list[dict[str, Json]]:
        """Every tool, with its definition, its lane and its tokens."""

    def search(self, query: str) -> list[str]:
        """The names of the tools that match, in the order in which a model would find them."""

    async def change_server(self, toolbox: str, server: str, action: str) -> None:
        """Start, stop or restart a server."""

    async def lock(self) -> Json:
        """How the definitions of the servers differ from the accepted ones; null without a lock file."""

    async def accept(self, names: list[str]) -> None:
        """Accept the current definitions of these tools or servers."""


class BoardSubject:
    """A board: one lane, no servers."""

    def __init__(self, board: Board, history: History) -> None:
        self._board = board
        self.history = history
        self._since = time()
        self._counted: tuple[int, dict[str, Json]] = (-1, {})

    @property
    def handler(self) -> Handler:
        return self._board.handler

    @property
    def info(self) -> Mapping[str, Json]:
        return self._board.info

    def overview(self) -> dict[str, Json]:
        # Open pages ask for it every second; the tokens are counted again only when the tools change.
        if self._counted[0] != self._board.tools.generation:
            tools = self.tools()
            costs: dict[str, Json] = {"tools": len(tools), "all": sum(_tokens(tool) for tool in tools)}
            self._counted = self._board.tools.generation, costs
        return {**_about("board", self.info, self._since), "toolboxes": [], "costs": self._counted[1]}

    def tools(self) -> list[dict[str, Json]]:
        name = self._board.name
        return [_describe(tool.name, tool.definition(), name, "", "", tool.name) for tool in self._board.tools]

    def search(self, query: str) -> list[str]:
        words = query.lower().split()
        return [
            tool.name
            for tool in self._board.tools
            if all(word in f"{tool.name} {tool.title} {tool.description}".lower() for word in words)
        ]

    async def change_server(self, toolbox: str, server: str, action: str) -> None:
        raise InvalidParams("A board has no servers")

    async def lock(self) -> Json:
        return None

    async def accept(self, names: list[str]) -> None:
        raise InvalidParams("A board has no lock file")


class GatewaySubject:
    """A gateway: a lane for each server."""

    def __init__(self, gateway: Gateway, history: History) -> None:
        self._gateway = gateway
        self.history = history
        self._since = time()
        # Changes made in the console: an open page may hold an older state than the one it was last sent.
        self._changes = 0
        self._costs: tuple[Directory, ModeCosts] | None = None

    @property
    def handler(self) -> Handler:
        return self._gateway.handler

    @property
    def info(self) -> Mapping[str, Json]:
        return self._gateway.info

    def overview(self) -> dict[str, Json]:
        endpoint = self._gateway.endpoints[0]
        # Open pages ask for it every second; the tokens are counted again only when the tools change.
        if self._costs is None or self._costs[0] is not endpoint.directory:
            self._costs = endpoint.directory, endpoint.costs()
        costs = self._costs[1]
        return {
            **_about("gateway", self.info, self._since),
            "mode": self._gateway.config.mode,
            "changes": self._changes,
            "toolboxes": [
                {
                    "name": toolbox.name,
                    "description": toolbox.description,
                    "servers": list(self._servers(toolbox.name)),
                }
                for toolbox in endpoint.toolboxes
            ],
            "costs": {
                "tools": costs.tools,
                "all": costs.all,
                "dynamic": costs.dynamic,
                "proxy": costs.proxy,
                "opened": dict(costs.opened),
            },
        }

    def _servers(self, toolbox: str) -> Iterator[dict[str, Json]]:
        running = {
            downstream.name: downstream for downstream in self._gateway.downstreams if downstream.toolbox == toolbox
        }
        for name in self._gateway.config.toolboxes[toolbox].servers:
            server = running.get(name)
            yield {"name": name, "state": "stopped"} if server is None else _server(server)

    def tools(self) -> list[dict[str, Json]]:
        return [
            _describe(
                entry.name,
                entry.definition,
                f"{entry.place.toolbox}/{entry.place.server}",
                entry.place.toolbox,
                entry.place.server,
                entry.place.tool,
            )
            for entry in self._gateway.endpoints[0].directory
        ]

    def search(self, query: str) -> list[str]:
        found = self._gateway.endpoints[0].directory.search(query, lambda _: True)
        return [entry.name for entry in found]

    async def change_server(self, toolbox: str, server: str, action: str) -> None:
        self._changes += 1
        match action:
            case "restart":
                await self._gateway.restart_server(toolbox, server)
            case "stop" | "start":
                await self._gateway.enable_server(toolbox, server, on=action == "start")
            case _:
                raise InvalidParams(f"Unknown action {action[:40]!r}; use start, stop or restart")

    async def lock(self) -> Json:
        report = await self._gateway.compare_with_lock()
        return None if report is None else report.as_json()

    async def accept(self, names: list[str]) -> None:
        await self._gateway.accept_definitions(names)


def _about(kind: str, info: Mapping[str, Json], since: float) -> dict[str, Json]:
    return {
        "kind": kind,
        "name": info["name"],
        "version": info["version"],
        "pegboard": __version__,
        "since": since,
    }


def _describe(
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


def _tokens(tool: Mapping[str, Json]) -> int:
    tokens = tool["tokens"]
    return tokens if isinstance(tokens, int) else 0


def _server(server: Downstream) -> dict[str, Json]:
    config = server.config
    catalog = server.catalog
    return {
        "name": server.name,
        "state": server.state,
        "problem": mask_text(server.problem),
        "kind": config.kind,
        "target": " ".join(mask_command(config.command)) if config.kind == "stdio" else mask_text(config.url or ""),
        "version": "" if catalog is None else catalog.version,
        "tools": 0 if catalog is None else len(catalog.tools),
        "spawns": server.spawns,
        "in_flight": server.in_flight,
        "output": mask_text(server.output),
    }
