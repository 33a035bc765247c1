"""The servers of a gateway: one Downstream for each that is enabled, kept when the configuration changes around it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final
from weakref import WeakKeyDictionary

from pegboard.call import Caller, Json
from pegboard.config.gateway_config import GatewayConfig, ServerConfig
from pegboard.gateway.servers.downstream import Downstream

_STOP_SECONDS: Final = 5.0

ServerKey = tuple[str, str]
"""A toolbox, and a server in it."""


class ServerSet:
    """The servers by toolbox and name, in the order of the configuration; `make` makes a new one."""

    def __init__(self, make: Callable[[str, ServerConfig], Downstream]) -> None:
        self._make = make
        self._servers: dict[ServerKey, Downstream] = {}
        self._followed: WeakKeyDictionary[Downstream, dict[object, frozenset[str]]] = WeakKeyDictionary()

    def __iter__(self) -> Iterator[Downstream]:
        return iter(self._servers.values())

    def __len__(self) -> int:
        return len(self._servers)

    def items(self) -> Iterable[tuple[ServerKey, Downstream]]:
        return self._servers.items()

    def apply(self, config: GatewayConfig, changed: frozenset[ServerKey]) -> list[Downstream]:
        """Have a Downstream for each server; those in `changed` are made again. Returns those no longer needed."""
        before, self._servers = self._servers, {}
        for toolbox in config.toolboxes.values():
            for server in toolbox.servers.values():
                key = toolbox.name, server.name
                if not server.enabled:
                    continue
                if key in before and key not in changed:
                    self._servers[key] = before.pop(key)
                    self._servers[key].reconfigure(server)
                else:
                    self._servers[key] = self._make(toolbox.name, server)
        return list(before.values())

    def start(self) -> None:
        """Start connecting those that are not connected."""
        for server in self:
            server.start()

    async def wait_connected(self, seconds: float | None, *, lazy: bool) -> None:
        """Wait until every server has responded or failed for the first time; `lazy` ones only on request."""
        wanted = [server for server in self if lazy or not server.config.lazy]
        waits = [asyncio.ensure_future(server.wait_connected()) for server in wanted]
        if waits:
            await asyncio.wait(waits, timeout=seconds)
        for wait in waits:
            wait.cancel()

    def readiness(self) -> tuple[bool, Mapping[str, Json]]:
        """Whether all required servers are up, and the state of each server."""
        states = {
            f"{server.toolbox}/{server.name}": {"state": server.state}
            | ({"required": True} if server.config.required else {})
            for server in self
        }
        return all(server.is_up for server in self if server.config.required), states

    def follow(self, endpoint: object, server: Downstream, uris: frozenset[str]) -> None:
        """Several endpoints may have subscribers to a resource; its server gets one subscription for all."""
        followed = self._followed.setdefault(server, {})
        if followed.get(endpoint, frozenset()) != uris:
            followed[endpoint] = uris
            server.follow(frozenset().union(*followed.values()))

    def end_session(self, caller: Caller) -> None:
        """End the connections that were only for one session."""
        for server in self:
            server.end_session(caller)


async def stop_servers(servers: Iterable[Downstream]) -> None:
    """Stop servers, at the same time and within a limit."""
    ending: Sequence[asyncio.Future[None]] = [asyncio.ensure_future(server.stop()) for server in servers]
    if ending:
        await asyncio.wait(ending, timeout=_STOP_SECONDS)
