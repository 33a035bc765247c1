"""The lock file of a running gateway: differences from it, accepting them, and what needs a review."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from typing import TypeAlias

from pegboard.config.gateway_config import GatewayConfig
from pegboard.errors import InvalidParams
from pegboard.gateway.lock.lock_file import Lock, Report, accept, compare, read_lock, write_lock
from pegboard.gateway.lock.pins import Pins, read_pins
from pegboard.gateway.lock.scanner import Scanner
from pegboard.gateway.servers.server_catalog import ServerCatalog

Catalogs: TypeAlias = Mapping[tuple[str, str], ServerCatalog]
"""The definitions of each connected server, by toolbox and name."""


class AcceptedDefinitions:
    """What the lock file says about the definitions of the servers; `pins` decide what is served."""

    def __init__(self, config: GatewayConfig, catalogs: Callable[[], Catalogs]) -> None:
        self._config = config
        self._catalogs = catalogs
        self._scanner = Scanner()
        self.pins = read_pins(config)

    def configure(self, config: GatewayConfig, pins: Pins) -> None:
        """Use another configuration, of which these are the pins."""
        self._config, self.pins = config, pins

    @property
    def pinned(self) -> bool:
        """Whether definitions are compared with the lock file."""
        return self._config.lock == "off" or not self.pins.is_empty

    async def compare(self) -> Report | None:
        """How the definitions of the connected servers differ from the accepted ones; None without a lock file."""
        catalogs, unread = self._catalogs(), self._unread()
        lock = await asyncio.to_thread(self._read)
        return None if lock is None else await asyncio.to_thread(compare, lock, catalogs, unread)

    async def accept(self, names: Collection[str]) -> Pins:
        """Accept the current definitions of these tools, servers or toolboxes; of all without a name."""
        catalogs, unread = self._catalogs(), self._unread()

        def write() -> Pins:
            lock = self._read()
            if lock is None:
                raise InvalidParams("This gateway has no lock file; create one with `pegboard lock`")
            write_lock(accept(lock, catalogs, unread, names), self._config.lock_path)
            return read_pins(self._config)

        return await asyncio.to_thread(write)

    async def scan(self) -> list[str]:
        """What an operator should review in the definitions of servers."""
        return await self._scanner.scan_newest(self._catalogs, lambda: self.pins)

    def _read(self) -> Lock | None:
        config = self._config
        return None if config.lock == "off" or not config.lock_path else read_lock(config.lock_path)

    def _unread(self) -> set[tuple[str, str]]:
        """The servers whose definitions are unknown now."""
        named = {(toolbox.name, name) for toolbox in self._config.toolboxes.values() for name in toolbox.servers}
        return named - self._catalogs().keys()
