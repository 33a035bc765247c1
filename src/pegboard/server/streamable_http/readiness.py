"""The response at `/ready`: whether new calls can be served."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final, TypeAlias

import msgspec

from pegboard.call import Json
from pegboard.errors import StoreDown
from pegboard.server.http_types import Answer, Headers
from pegboard.stores.cluster import SharedStore

STORE_SECONDS: Final = 2.0
"""How long the store may take to answer."""

# It may change at any moment.
FRESH: Final[Headers] = ((b"cache-control", b"no-store"),)

Parts: TypeAlias = Callable[[], tuple[bool, Mapping[str, Json]]]
"""Whether the servers that an application requires are up, and the state of each of its servers."""


class Readiness:
    """Ready means that the store answers and that all required servers are up."""

    def __init__(self, shared: SharedStore | None, parts: Parts) -> None:
        self._shared = shared
        self._parts = parts

    def check(self, *, detailed: bool) -> Answer | Coroutine[Any, Any, Answer]:
        """The response; with the state of each server for clients that may see it."""
        return self._answer({}, detailed) if self._shared is None else self._with_store(self._shared, detailed)

    async def _with_store(self, shared: SharedStore, detailed: bool) -> Answer:
        try:
            async with asyncio.timeout(STORE_SECONDS):
                await shared.store.records.get("ready")
        except (StoreDown, TimeoutError):
            return self._answer({"store": "unavailable"}, detailed)
        # It may be read and not written, as when its disk is full.
        return self._answer({"store": "ready" if shared.cluster.in_touch else "unavailable"}, detailed)

    def _answer(self, found: Mapping[str, Json], detailed: bool) -> Answer:
        up, servers = self._parts()
        ready = up and found.get("store") != "unavailable"
        body: dict[str, Json] = {"status": "ready" if ready else "unready", **found}
        if servers and detailed:
            body["servers"] = servers
        return Answer(200 if ready else 503, msgspec.json.encode(body), headers=FRESH)


def always_ready() -> tuple[bool, Mapping[str, Json]]:
    """The readiness of an application without servers."""
    return True, {}
