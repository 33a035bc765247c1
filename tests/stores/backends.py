"""The backends that one suite holds to one contract."""

from __future__ import annotations

import secrets
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from pathlib import Path

from pegboard.limits import Limits
from pegboard.stores.memory import MemoryStore
from pegboard.stores.redis.redis_store import RedisStore
from pegboard.stores.sqlite.sqlite_store import SqliteStore
from pegboard.stores.store import Store
from tests.middleware.valkey import Valkey


class Clock:
    """Time that passes when told."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


Place = Callable[[Limits, Clock], Store]
"""Somewhere to keep things: each call is another process that uses it."""

Backend = Callable[[], AbstractContextManager[Place]]
"""A new place for the time of a block."""


@contextmanager
def memory() -> Iterator[Place]:
    yield MemoryStore


@contextmanager
def folder() -> Iterator[Path]:
    """In memory where the system can: what is proved here is not the disk."""
    shared = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=shared if shared.is_dir() else None) as made:
        yield Path(made)


@contextmanager
def sqlite() -> Iterator[Place]:
    with folder() as where:
        yield lambda limits, clock: SqliteStore(where / "store.db", limits, clock)


def redis(server: Valkey) -> Backend:
    @contextmanager
    def place() -> Iterator[Place]:
        prefix = f"test-{secrets.token_hex(4)}"
        yield lambda limits, clock: RedisStore(server.url, limits, clock, prefix=prefix)

    return place


@asynccontextmanager
async def opened(backend: Backend, clock: Clock | None = None, **limits: float) -> AsyncIterator[Store]:
    """A store at a new place."""
    with backend() as place:
        async with started(place(Limits(**limits), clock or Clock())) as store:
            yield store


@asynccontextmanager
async def shared(backend: Backend, clock: Clock | None = None, **limits: float) -> AsyncIterator[tuple[Store, Store]]:
    """Two processes at one new place, as far as they can tell."""
    bounds, time = Limits(**limits), clock or Clock()
    with backend() as place:
        async with started(place(bounds, time)) as one, started(place(bounds, time)) as two:
            yield one, two


@asynccontextmanager
async def started(store: Store) -> AsyncIterator[Store]:
    await store.start()
    try:
        yield store
    finally:
        await store.close()
