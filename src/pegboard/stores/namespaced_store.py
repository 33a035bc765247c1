"""A view of a store under a prefix, for one endpoint of several."""

from __future__ import annotations

from pegboard.stores.cluster import SharedStore
from pegboard.stores.store import Feeds, Leases, Logs, Records, Store, StoredRecord


class _NamespacedRecords:
    def __init__(self, records: Records, prefix: str) -> None:
        self._records = records
        self._prefix = prefix

    async def get(self, key: str) -> StoredRecord | None:
        return await self._records.get(self._prefix + key)

    async def put(
        self, key: str, value: bytes, *, ttl: float | None = None, if_version: int | None = None
    ) -> int | None:
        return await self._records.put(self._prefix + key, value, ttl=ttl, if_version=if_version)

    async def add(self, key: str, amount: int, *, ttl: float | None = None) -> int:
        return await self._records.add(self._prefix + key, amount, ttl=ttl)

    async def delete(self, key: str) -> bool:
        return await self._records.delete(self._prefix + key)


class _NamespacedStore:
    """Only records get the prefix: logs have random names already."""

    def __init__(self, store: Store, prefix: str) -> None:
        self._store = store
        self.records: Records = _NamespacedRecords(store.records, prefix)

    @property
    def logs(self) -> Logs:
        return self._store.logs

    @property
    def feeds(self) -> Feeds:
        return self._store.feeds

    @property
    def leases(self) -> Leases:
        return self._store.leases

    async def start(self) -> None:
        """Nothing to do: the owner of the whole store starts it."""

    async def close(self) -> None:
        """Nothing to do: the owner of the whole store closes it."""


def namespaced(shared: SharedStore, place: str) -> SharedStore:
    """The same store and cluster for one endpoint; its records and messages are shared only with the same endpoint."""
    prefix = f"{place}:"
    return SharedStore(_NamespacedStore(shared.store, prefix), shared.cluster.within(prefix))
