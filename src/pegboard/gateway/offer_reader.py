"""Reads what servers list into Offers, in short turns of the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final
from weakref import WeakKeyDictionary

from pegboard.config.gateway_config import ToolboxConfig
from pegboard.gateway.forwarding.forwarder import Forwarder
from pegboard.gateway.offers import Offers
from pegboard.gateway.servers.downstream import Downstream
from pegboard.gateway.servers.server_catalog import ServerCatalog

TURN_SECONDS: Final = 0.01
"""How long definitions are read before the event loop gets its turn."""


class OfferReader:
    """Prepares the Offers of a new catalog before it is shown, so that showing it holds the event loop only briefly."""

    def __init__(self, forwarder: Forwarder, result_bytes: int) -> None:
        self._forwarder = forwarder
        self._result_bytes = result_bytes
        self._prepared: WeakKeyDictionary[Downstream, Offers] = WeakKeyDictionary()

    async def prepare(
        self, downstream: Downstream, catalog: ServerCatalog, toolbox: ToolboxConfig, middleware: Sequence[Any]
    ) -> None:
        """Read a catalog that is shown next."""
        offers = self._make(downstream, catalog, toolbox, middleware)
        loop = asyncio.get_running_loop()
        until = loop.time() + TURN_SECONDS
        for _ in offers.read():
            if loop.time() >= until:
                await asyncio.sleep(0)
                until = loop.time() + TURN_SECONDS
        self._prepared[downstream] = offers

    def read(self, downstream: Downstream, toolbox: ToolboxConfig, middleware: Sequence[Any]) -> Offers:
        """What a server offers now: as it was prepared, unless its configuration has changed since."""
        prepared = self._prepared.pop(downstream, None)
        if prepared is not None and prepared.is_made_for(downstream.catalog, toolbox, middleware):
            return prepared
        offers = self._make(downstream, downstream.catalog, toolbox, middleware)
        for _ in offers.read():
            pass
        return offers

    def _make(
        self,
        downstream: Downstream,
        catalog: ServerCatalog | None,
        toolbox: ToolboxConfig,
        middleware: Sequence[Any],
    ) -> Offers:
        return Offers(downstream, toolbox, self._forwarder, middleware, self._result_bytes, catalog)
