"""What the console shows of a gateway: a lane for each server."""

from __future__ import annotations

from collections.abc import Iterator
from time import time

from pegboard.auth.principal import Principal
from pegboard.board import Board
from pegboard.call import Json
from pegboard.console.console_subject import about, describe
from pegboard.errors import InvalidParams
from pegboard.gateway.gateway import Gateway
from pegboard.gateway.modes.mode_choice import ModeCosts
from pegboard.gateway.modes.tool_directory import Directory
from pegboard.gateway.servers.downstream import Downstream
from pegboard.middleware.observability.history import History
from pegboard.middleware.observability.masking import mask_command, mask_text


class GatewaySubject:
    """A gateway: a lane for each server."""

    def __init__(self, gateway: Gateway, history: History | None = None) -> None:
        self.served = gateway
        self.history = history or History()
        gateway.use(self.history)
        self._since = time()
        # Changes made in the console: an open page may hold an older state than the one it was last sent.
        self._changes = 0
        self._costs: tuple[Directory, ModeCosts] | None = None

    @property
    def board(self) -> Board:
        """The board of the endpoint of all toolboxes."""
        return self.served.endpoints[0].board

    def overview(self) -> dict[str, Json]:
        endpoint = self.served.endpoints[0]
        # Open pages ask for it every second; the tokens are counted again only when the tools change.
        if self._costs is None or self._costs[0] is not endpoint.directory:
            self._costs = endpoint.directory, endpoint.costs()
        costs = self._costs[1]
        return {
            **about("gateway", self.served, self._since),
            "mode": self.served.config.mode,
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
            downstream.name: downstream for downstream in self.served.downstreams if downstream.toolbox == toolbox
        }
        for name in self.served.config.toolboxes[toolbox].servers:
            server = running.get(name)
            yield {"name": name, "state": "stopped"} if server is None else _server(server)

    def tools(self) -> list[dict[str, Json]]:
        return [
            describe(
                entry.name,
                entry.definition,
                f"{entry.place.toolbox}/{entry.place.server}",
                entry.place.toolbox,
                entry.place.server,
                entry.place.tool,
            )
            for entry in self.served.endpoints[0].directory
        ]

    def search(self, query: str) -> list[str]:
        found = self.served.endpoints[0].directory.search(query, lambda _: True)
        return [entry.name for entry in found]

    async def change_server(self, toolbox: str, server: str, action: str) -> None:
        self._changes += 1
        match action:
            case "restart":
                await self.served.restart_server(toolbox, server)
            case _:
                await self.served.enable_server(toolbox, server, on=action == "start")

    def server_tools(self, toolbox: str, server: str) -> list[Json]:
        for found in self.served.downstreams:
            if (found.toolbox, found.name) == (toolbox, server) and found.catalog is not None:
                switched = found.config.tools
                names = [str(tool.get("name")) for tool in found.catalog.tools]
                return [{"name": name, "on": name not in switched or switched[name].enabled} for name in names]
        return []

    async def switch_tool(self, toolbox: str, server: str, tool: str, *, on: bool) -> None:
        self._changes += 1
        await self.served.enable_tool(toolbox, server, tool, on=on)

    async def connections(self, principal: Principal) -> Json:
        connections = self.served.connections
        if connections is None:
            return None
        return [
            {"toolbox": one.toolbox, "server": one.server, "kind": one.kind, "since": one.since}
            for one in await connections.of(principal)
        ]

    async def change_connection(self, principal: Principal, toolbox: str, server: str, action: str) -> str:
        connections = self.served.connections
        if connections is None:
            raise InvalidParams("No server of this gateway is connected by its users")
        if action == "remove":
            return await connections.remove(principal, toolbox, server)
        return (await connections.start_login(principal, toolbox, server)).path

    async def lock(self) -> Json:
        report = await self.served.compare_with_lock()
        return None if report is None else report.as_json()

    async def accept(self, names: list[str]) -> None:
        await self.served.accept_definitions(names)


def _server(server: Downstream) -> dict[str, Json]:
    config = server.config
    catalog = server.catalog
    breaker = server.breaker
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
        "login": "" if config.auth is None else config.auth.kind,
        "failures": 0 if breaker is None else breaker.failures,
        "retry": 0 if breaker is None or not breaker.is_open else max(1, round(breaker.retry_seconds)),
        "off": sum(not override.enabled for override in config.tools.values()),
        "output": mask_text(server.output),
    }
