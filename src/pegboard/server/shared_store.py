"""Opens the store of a server before the first request, closes it after the last."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncIterator, Mapping
from typing import Protocol

from pegboard.auth.auth import Auth
from pegboard.call import Caller, Handler, Json
from pegboard.execution.debug_mode import DebugMode
from pegboard.limits import Limits
from pegboard.server.http_types import Route
from pegboard.stores.cluster import Cluster, SharedStore
from pegboard.stores.memory import MemoryStore
from pegboard.stores.store_url import open_store

_log = logging.getLogger("pegboard")


class ServedApp(Protocol):
    """What can be served: a board, or any object with a Handler and a name."""

    @property
    def handler(self) -> Handler: ...

    @property
    def info(self) -> Mapping[str, Json]: ...

    @property
    def limits(self) -> Limits: ...

    @property
    def places(self) -> Mapping[str, Handler] | None:
        """Parts that are also served by themselves, by name; None if there can be none."""

    @property
    def debug_mode(self) -> DebugMode | None:
        """Which callers see exceptions; None if it has no tools of its own."""

    @property
    def auth(self) -> Auth | None:
        """Which credentials it accepts; None if it does not authenticate."""

    @property
    def routes(self) -> Mapping[str, Route]:
        """What is served beside the MCP endpoint, by the first part of its path."""

    def readiness(self) -> tuple[bool, Mapping[str, Json]]:
        """Whether the servers that it requires are up, and the state of each of its servers."""

    def end_session(self, caller: Caller) -> None:
        """The session of a legacy client has ended in this process."""

    def metrics(self) -> str | None:
        """The text for a Prometheus scrape; None if there is none."""

    async def start(self, shared: SharedStore | None = None) -> None:
        """Prepare for calls; shared state is kept in the store."""

    async def stop(self) -> None: ...


@contextlib.asynccontextmanager
async def open_shared_store(address: str, served: ServedApp) -> AsyncIterator[SharedStore | None]:
    """Open the store, if it is a persistent one, and attach everything that is kept in it."""
    store = open_store(address, served.limits)
    if isinstance(store, MemoryStore):
        await served.start()
        yield None
        return
    await store.start()
    shared = SharedStore(store, Cluster(store, served.limits))
    try:
        await shared.cluster.start()
        await served.start(shared)
        yield shared
    finally:
        await shared.cluster.close()
        await store.close()


async def clean_up(served: ServedApp) -> None:
    """Stop what was served."""
    try:
        await served.stop()
    except Exception:  # noqa: BLE001 — an author's clean-up may raise anything; we end all the same
        _log.exception("cleaning up failed")
