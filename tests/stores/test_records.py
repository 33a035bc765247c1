"""Records and hints keep their promise in every backend."""

from __future__ import annotations

from pegboard.stores.memory import MemoryRecords
from pegboard.stores.store import StoredRecord
from tests.stores.backends import Backend, Clock, opened


async def test_a_value_is_read_as_it_was_written_and_its_version_counts_the_writes(backend: Backend) -> None:
    async with opened(backend) as store:
        records = store.records
        assert await records.get("a") is None
        assert await records.put("a", b"\0one") == 1
        assert await records.get("a") == StoredRecord(b"\0one", 1)
        assert await records.put("a", b"two") == 2
        assert await records.get("a") == StoredRecord(b"two", 2)
        assert await records.get("b") is None


async def test_a_write_can_ask_for_the_version_it_knows(backend: Backend) -> None:
    async with opened(backend) as store:
        records = store.records
        assert await records.put("a", b"late", if_version=1) is None
        assert await records.put("a", b"first", if_version=0) == 1
        assert await records.put("a", b"second", if_version=0) is None
        assert await records.put("a", b"third", if_version=1) == 2
        assert await records.get("a") == StoredRecord(b"third", 2)


async def test_a_value_expires_after_its_ttl_which_each_write_restarts(backend: Backend) -> None:
    clock = Clock()
    async with opened(backend, clock) as store:
        records = store.records
        await records.put("a", b"x", ttl=10)
        await records.put("forever", b"x")
        clock.now += 9
        await records.put("a", b"y", ttl=10)
        clock.now += 9
        assert await records.get("a") == StoredRecord(b"y", 2)
        clock.now += 1
        assert await records.get("a") is None
        assert await records.put("a", b"z", if_version=0) == 1
        assert await records.get("forever") == StoredRecord(b"x", 1)


async def test_a_sum_counts_until_the_time_of_its_first_addition_is_over(backend: Backend) -> None:
    clock = Clock()
    async with opened(backend, clock) as store:
        records = store.records
        assert await records.add("n", 2, ttl=10) == 2
        clock.now += 6
        assert await records.add("n", 3, ttl=10) == 5
        assert await records.add("n", -1) == 4
        clock.now += 5
        assert await records.add("n", 1, ttl=10) == 1


async def test_what_is_deleted_is_gone_once(backend: Backend) -> None:
    async with opened(backend) as store:
        records = store.records
        await records.put("a", b"x")
        assert await records.delete("a")
        assert not await records.delete("a")
        assert await records.get("a") is None


async def test_what_is_over_does_not_pile_up_in_memory() -> None:
    clock = Clock()
    records = MemoryRecords(clock)
    for number in range(1000):
        await records.put(str(number), b"x", ttl=10)
        clock.now += 1
    assert len(records) <= 11
    for _ in range(1000):
        await records.put("same", b"x", ttl=1e6)
        await records.delete("same")
    assert len(records._due) < 200
