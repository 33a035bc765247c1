"""Opens the store of a server before the first request, closes it after the last."""

from __future__ import annotations

import contextlib
import logging
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from functools import cached_property
from weakref import WeakSet

from pegboard import auth as authentication
from pegboard import middleware, server
from pegboard.accounts.accounts import Accounts
from pegboard.accounts.stored_shares import StoredShares
from pegboard.call import Caller, Handler, Json
from pegboard.execution.debug_mode import DebugMode
from pegboard.limits import Limits
from pegboard.logs.audit_sink import NO_AUDIT, AuditSink
from pegboard.middleware.observability.metric_families import MetricFamily
from pegboard.server.http_types import Route
from pegboard.stores.cluster import Cluster, SharedStore
from pegboard.stores.memory import MemoryStore
from pegboard.stores.store_url import open_store

_log = logging.getLogger("pegboard")


class ServedApp(ABC):
    """What can be served: a board or a gateway.

    `auth` says which credentials it accepts, `debug_mode` which callers see exceptions. `places` are the parts that are
    also served by themselves, by name; None if there can be none.
    """

    limits: Limits
    accounts: Accounts
    auth: authentication.Auth | None = None
    debug_mode: DebugMode | None = None
    places: Mapping[str, Handler] | None

    @cached_property
    def routes(self) -> dict[str, Route]:
        """What is served beside the MCP endpoint, by the first part of its path: `/console`."""
        return {}

    @cached_property
    def custom_routes(self) -> server.CustomRoutes:
        """The routes of the author, which are looked up last."""
        return server.CustomRoutes()

    @property
    def opens(self) -> bool:
        """Whether something has to be opened before the first request."""
        return True

    @property
    @abstractmethod
    def handler(self) -> Handler: ...

    @property
    @abstractmethod
    def info(self) -> Mapping[str, Json]: ...

    def listens_at(self, url: str) -> None:  # noqa: B027 — a server without pages has no use for it
        """It is served over HTTP at this URL."""

    @cached_property
    def endpoints_served(self) -> WeakSet[server.HttpEndpoint]:
        """The HTTP endpoints that serve it now, for people to look at its sessions."""
        return WeakSet()

    def readiness(self) -> tuple[bool, Mapping[str, Json]]:
        """Whether the servers that it requires are up, and the state of each of its servers."""
        return True, {}

    @property
    def audit(self) -> AuditSink:
        """Where decisions about it are recorded, such as changes in the console: its Audit middleware, if it has one."""
        return NO_AUDIT

    def end_session(self, caller: Caller, seconds: float) -> None:
        """The session of a legacy client has ended in this process."""
        metrics = self.find_metrics()
        if metrics is not None:
            metrics.count_session(caller, seconds)

    def find_metrics(self) -> middleware.Metrics | None:
        """The middleware that measures its calls, if it has one."""
        return None

    def measure(self) -> Iterator[MetricFamily]:
        """The figures of this process that do not come from calls."""
        if self.endpoints_served:
            yield from server.measure_endpoints(self.endpoints_served)

    def metrics(self) -> str | None:
        """The text for a Prometheus scrape; None if calls are not measured."""
        found = self.find_metrics()
        if found is None:
            return None
        found.add_source(self.measure)
        return found.render()

    def list_digests(self) -> Mapping[str, str]:
        """A digest of each list that clients can subscribe to, by its kind, such as `tools`; of what is known at the start."""
        return {}

    async def announce_changes(self, kinds: Iterable[str]) -> None:  # noqa: B027 — for what has lists of its own
        """Publish in the store that these lists differ from those of the process that served before this one."""

    async def catch_up(self) -> None:  # noqa: B027 — for what has lists of its own
        """Read the changes that other processes have published."""

    @abstractmethod
    async def start(self, shared: SharedStore | None = None) -> None:
        """Prepare for calls; shared state is kept in the store."""

    @abstractmethod
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
    shares = StoredShares(served.accounts, shared)
    try:
        await shared.cluster.start()
        shares.start()
        await served.start(shared)
        yield shared
    finally:
        await shares.close()
        await shared.cluster.close()
        await store.close()


async def clean_up(served: ServedApp) -> None:
    """Stop what was served."""
    try:
        await served.stop()
    except Exception:  # noqa: BLE001 — an author's clean-up may raise anything; we end all the same
        _log.exception("cleaning up failed")
