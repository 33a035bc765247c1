"""The records of tasks: kept for their time, within bounds, and no longer."""

from __future__ import annotations

import pytest

from pegboard import Principal
from pegboard.call import Caller
from pegboard.errors import LimitReached
from pegboard.limits import Limits
from pegboard.protocol.revisions import MODERN
from pegboard.stores.memory import MemoryRecords
from pegboard.tasks.task_store import TaskStore
from pegboard.testing import FakeClock


def of(principal: str) -> Caller:
    return Caller(version=MODERN, transport="http", principal=Principal(principal), account=principal)


def make(**limits: float) -> tuple[TaskStore, FakeClock, MemoryRecords]:
    clock = FakeClock()
    records = MemoryRecords(clock)
    return TaskStore(records, Limits(**{"task_seconds": 60, **limits}), clock), clock, records  # type: ignore[arg-type]


async def test_a_task_is_kept_for_its_time_from_its_creation_however_often_it_is_written() -> None:
    shelf, clock, _ = make()
    record = await shelf.create("a", of("ada"))
    for _ in range(5):
        clock.advance(11)
        record.message = f"at {clock()}"
        await shelf.save("a", record)
    found = await shelf.read("a")
    assert found is not None
    assert (found.message, found.principal, found.seconds) == (record.message, "ada", 60)
    clock.advance(5.5)
    assert await shelf.read("a") is None
    await shelf.save("a", record)
    assert await shelf.read("a") is None
    assert len(shelf) == 0


async def test_room_comes_back_when_tasks_are_forgotten() -> None:
    shelf, clock, records = make(tasks_per_caller=1, tasks=2)
    await shelf.create("a", of("ada"))
    with pytest.raises(LimitReached) as refused:
        await shelf.create("b", of("ada"))
    assert refused.value.retry_after == 60
    clock.advance(30)
    await shelf.create("c", of("bob"))
    with pytest.raises(LimitReached):
        await shelf.create("d", of("eve"))
    clock.advance(30)
    await shelf.create("e", of("ada"))
    assert len(shelf) == 2
    assert len(records) == 2


async def test_bytes_are_counted_as_they_are_now() -> None:
    shelf, clock, _ = make(task_bytes_per_caller=1000)
    record, _ = await shelf.create("a", of("ada")), await shelf.create("b", of("bob"))
    assert shelf.has_capacity("a", 500)
    record.outcome = "x" * 900
    await shelf.save("a", record)
    assert not shelf.has_capacity("a", 500)
    assert shelf.has_capacity("b", 500)
    with pytest.raises(LimitReached):
        await shelf.create("c", of("ada"))
    record.outcome = "x" * 10
    await shelf.save("a", record)
    assert shelf.has_capacity("a", 500)
    clock.advance(60)
    await shelf.create("d", of("ada"))
    assert shelf.has_capacity("d", 700)


async def test_all_principals_together_have_a_bound_too() -> None:
    shelf, _, _ = make(task_bytes=1000)
    record = await shelf.create("a", of("ada"))
    record.outcome = "x" * 1000
    await shelf.save("a", record)
    with pytest.raises(LimitReached):
        await shelf.create("b", of("bob"))


async def test_the_store_does_not_know_the_ids_of_tasks() -> None:
    shelf, _, records = make()
    await shelf.create("secret", of("ada"))
    assert await records.get("task:secret") is None
    assert await shelf.read("secret") is not None
    assert await shelf.read("task:secret") is None


class Refusing(MemoryRecords):
    """A store that cannot be written."""

    async def put(
        self, key: str, value: bytes, *, ttl: float | None = None, if_version: int | None = None
    ) -> int | None:
        raise OSError("the disk is full")


async def test_a_task_that_could_not_be_written_takes_no_room() -> None:
    shelf = TaskStore(Refusing(), Limits())
    with pytest.raises(OSError, match="full"):
        await shelf.create("a", of("ada"))
    assert len(shelf) == 0
    assert not any(shelf.accounts.of(of("ada")).held.values())  # type: ignore[union-attr]  # it has an account
