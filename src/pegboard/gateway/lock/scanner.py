"""Scans new definitions while the gateway runs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from pegboard.gateway.lock.definition_scan import find_shadows, scan_definition
from pegboard.gateway.lock.lock_file import Place, Server, pin_all
from pegboard.gateway.lock.pins import Pins
from pegboard.gateway.servers.server_catalog import ServerCatalog
from pegboard.logs.printable import printable
from pegboard.tools.qualified_names import ToolName

MAX_CATALOG_BYTES: Final = 4 * 1024 * 1024
"""How much of one server's definitions is scanned, in bytes of JSON."""


class Scanner:
    """Caches its findings by the digest of a server's catalog."""

    def __init__(self) -> None:
        self._read: dict[Server, tuple[str, dict[Place, list[str]]]] = {}
        self._reading = asyncio.Lock()
        self._waiting = False

    async def scan_newest(
        self, catalogs: Callable[[], Mapping[Server, ServerCatalog]], pins: Callable[[], Pins]
    ) -> list[str]:
        """A sentence for each finding in definitions that were not accepted; cached for the same definitions.

        While one scan runs, one more waits to read what is newest then; any other finds nothing that this one does not.
        """
        if self._waiting:
            return []
        self._waiting = True
        try:
            await self._reading.acquire()
        finally:
            self._waiting = False
        try:
            now, accepted = dict(catalogs()), pins()
            return await asyncio.to_thread(lambda: list(self._report(now, accepted)))
        finally:
            self._reading.release()

    def _report(self, catalogs: Mapping[Server, ServerCatalog], pins: Pins) -> Iterator[str]:
        self._read = {server: read for server, read in self._read.items() if server in catalogs}
        tools = {}
        for server, catalog in catalogs.items():
            if server not in self._read or self._read[server][0] != catalog.digest:
                self._read[server] = catalog.digest, dict(self._scan(server, catalog))
            for tool in catalog.tools:
                tools[ToolName(*server, str(tool["name"]))] = tool
            yield from self._unaccepted(server, catalog, pins)
        for name, findings in find_shadows(tools).items():
            if not pins.has_accepted("tools", name.toolbox, name.server, tools[name]):
                place = printable(f"{name.toolbox}/{name.server}/{name.tool}")
                yield from (f"{place}: {finding}" for finding in findings)

    def _scan(self, server: Server, catalog: ServerCatalog) -> Iterator[tuple[Place, list[str]]]:
        size = 0
        for place, pin in pin_all({server: catalog}).items():
            size += pin.size
            if size > MAX_CATALOG_BYTES:
                yield place, [f"is not scanned, nor is the rest: its server sends more than {MAX_CATALOG_BYTES} bytes"]
                return
            found = [str(finding) for finding in scan_definition(pin.definition)]
            if found:
                yield place, found

    def _unaccepted(self, server: Server, catalog: ServerCatalog, pins: Pins) -> Iterator[str]:
        found = self._read[server][1]
        if not found:
            return
        now = pin_all({server: catalog})
        for place, findings in found.items():
            if not pins.has_accepted(place[0], *server, now[place].definition):
                yield from (f"{printable(place[1])}: {finding}" for finding in findings)
