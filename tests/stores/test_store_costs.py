"""Each operation costs one round trip on a server, and one transaction in a file."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from pegboard.limits import Limits
from pegboard.stores.cluster import Workers
from pegboard.stores.redis.redis_connection import RedisConnection
from pegboard.stores.sqlite.hint_poller import HintPoller
from pegboard.stores.sqlite.reader_thread import ReaderThread
from pegboard.stores.sqlite.writer_thread import WriterThread
from pegboard.stores.store import Store
from tests.stores.backends import Backend, opened
from tests.waiting import until

LOG = ("session", "stream")

Operation = Callable[[Store], Awaitable[object]]
OPERATIONS: dict[str, Operation] = {
    "open": lambda store: store.logs.open(LOG),
    "append": lambda store: store.logs.append(LOG, 1, b"x", keep=True),
    "read": lambda store: store.logs.read(LOG, 0, 10),
    "release": lambda store: store.logs.release(LOG, 1),
    "end": lambda store: store.logs.append(LOG, 2, b"x", end=True),
    "touch": lambda store: store.logs.touch("session"),
    "drop": lambda store: store.logs.drop("session"),
    "put": lambda store: store.records.put("key", b"x", ttl=10),
    "get": lambda store: store.records.get("key"),
    "add": lambda store: store.records.add("sum", 1),
    "delete": lambda store: store.records.delete("key"),
    "renew": lambda store: store.leases.renew("name", 10),
    "holders": lambda store: store.leases.holders(),
    "publish": lambda store: store.feeds.publish("feed", b"x", keep=10, holder="name"),
    "read feed": lambda store: store.feeds.read("feed", 0, 10),
    "trim": lambda store: store.feeds.trim("feed", 1),
    "release lease": lambda store: store.leases.release("name"),
}


@pytest.fixture
def costs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """One entry for each round trip or transaction, but for the polls of a file: they come with time, not with work."""
    found: list[str] = []

    def count(owner: type, method: str) -> None:
        real = getattr(owner, method)

        async def counted(*arguments: Any, **options: Any) -> object:
            if not any(isinstance(getattr(argument, "__self__", None), HintPoller) for argument in arguments):
                found.append(method)
            return await real(*arguments, **options)

        monkeypatch.setattr(owner, method, counted)

    count(RedisConnection, "exchange")
    count(WriterThread, "run")
    count(ReaderThread, "run")
    return found


async def test_each_operation_costs_one_round_trip_or_transaction(shared_backend: Backend, costs: list[str]) -> None:
    async with opened(shared_backend) as store:
        # A server learns a script when it is first used.
        for operation in OPERATIONS.values():
            await operation(store)
        for name, operation in OPERATIONS.items():
            costs.clear()
            await operation(store)
            assert len(costs) == 1, (name, costs)


async def test_a_message_to_a_process_costs_at_most_three(shared_backend: Backend, costs: list[str]) -> None:
    async with opened(shared_backend) as store:
        workers, came = Workers(store, Limits()), list[bytes]()
        await workers.beat()
        workers.receive(came.append, came.clear)
        for number in range(20):
            await workers.send(workers.me, b"x")
            await until(lambda count=number: len(came) > count)  # type: ignore[misc]
        costs.clear()
        for number in range(20, 40):
            await workers.send(workers.me, b"x")
            await until(lambda count=number: len(came) > count)  # type: ignore[misc]
        # Send it, read it, and in a file delete the one before.
        assert len(costs) <= 3 * 20 + 3
        await workers.stop()
