"""The endpoints of a gateway: one for all toolboxes, and one for each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

from pegboard.call import Around, Handler
from pegboard.config.gateway_config import MAIN, GatewayConfig, ToolboxConfig
from pegboard.gateway.gateway_endpoint import GatewayEndpoint
from pegboard.hooks.middleware import Middleware
from pegboard.stores.cluster import SharedStore
from pegboard.stores.namespaced_store import namespaced

MakeEndpoint: TypeAlias = Callable[[str, GatewayConfig, Mapping[str, ToolboxConfig]], GatewayEndpoint]


class EndpointSet(Mapping[str, Handler]):
    """The endpoints; as a mapping, the Handlers of the toolboxes by name. `make` makes an endpoint."""

    def __init__(self, config: GatewayConfig, make: MakeEndpoint) -> None:
        self._make = make
        self.main = make(MAIN, config, config.toolboxes)
        self._toolboxes: dict[str, GatewayEndpoint] = {}
        self._used: list[tuple[tuple[Middleware | Around, ...], dict[str, Any]]] = []

    @property
    def all(self) -> tuple[GatewayEndpoint, ...]:
        """The endpoint of everything, then one for each toolbox."""
        return (self.main, *self._toolboxes.values())

    def showing(self, toolbox: str) -> Iterator[GatewayEndpoint]:
        """The endpoints that show what is in a toolbox."""
        yield self.main
        if toolbox in self._toolboxes:
            yield self._toolboxes[toolbox]

    def apply(self, config: GatewayConfig) -> dict[str, GatewayEndpoint]:
        """Have an endpoint for each toolbox; returns the new ones."""
        self.main.reconfigure(config, config.toolboxes)
        for name in [name for name in self._toolboxes if name not in config.toolboxes]:
            del self._toolboxes[name]
        added = {}
        for name, toolbox in config.toolboxes.items():
            if name in self._toolboxes:
                self._toolboxes[name].reconfigure(config, {name: toolbox})
                continue
            added[name] = self._toolboxes[name] = self._make(name, config, {name: toolbox})
            for middleware, scope in self._used:
                added[name].board.use(*middleware, **scope)
        return added

    def use(self, middleware: tuple[Middleware | Around, ...], scope: dict[str, Any]) -> None:
        """Add middleware to all endpoints, and to those of toolboxes that are added to the configuration later."""
        for endpoint in self.all:
            endpoint.board.use(*middleware, **scope)
        self._used.append((middleware, scope))

    async def start(self, shared: SharedStore | None) -> None:
        await self.main.start(shared)
        for name, endpoint in self._toolboxes.items():
            await start_toolbox(name, endpoint, shared)

    def __getitem__(self, name: str) -> Handler:
        return self._toolboxes[name].handler

    def __iter__(self) -> Iterator[str]:
        return iter(self._toolboxes)

    def __len__(self) -> int:
        return len(self._toolboxes)


async def start_toolbox(name: str, endpoint: GatewayEndpoint, shared: SharedStore | None) -> None:
    """Start the endpoint of one toolbox, with its part of the store."""
    await endpoint.start(None if shared is None else namespaced(shared, f"/toolboxes/{name}"))
