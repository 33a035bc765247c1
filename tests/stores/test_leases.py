"""A lease is held for a time after each renewal, and every process sees who holds one."""

from __future__ import annotations

from tests.stores.backends import Backend, Clock, opened, shared


async def test_a_lease_is_held_until_its_time_is_over_or_it_is_released(backend: Backend) -> None:
    clock = Clock()
    async with opened(backend, clock) as store:
        leases = store.leases
        assert list(await leases.holders()) == []
        await leases.renew("b", 3)
        await leases.renew("a", 3)
        assert list(await leases.holders()) == ["a", "b"]
        clock.now += 2
        await leases.renew("a", 3)
        clock.now += 1
        assert list(await leases.holders()) == ["a"]
        await leases.release("a")
        await leases.release("a")
        assert list(await leases.holders()) == []


async def test_a_short_lease_does_not_end_a_long_one(backend: Backend) -> None:
    clock = Clock()
    async with opened(backend, clock) as store:
        await store.leases.renew("long", 1000)
        await store.leases.renew("short", 1)
        clock.now += 500
        await store.leases.renew("short", 1)
        assert list(await store.leases.holders()) == ["long", "short"]


async def test_a_lease_is_seen_by_every_process(shared_backend: Backend) -> None:
    async with shared(shared_backend) as (one, two):
        await one.leases.renew("one", 10)
        assert list(await two.leases.holders()) == ["one"]
        await two.leases.release("one")
        assert list(await one.leases.holders()) == []
