"""A quota holds over all processes that share a store, without asking the store for each request."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from pegboard import Principal
from pegboard.accounts import account as account_module
from pegboard.accounts.account import Account
from pegboard.accounts.accounts import Accounts
from pegboard.accounts.quota import Quota, Quotas
from pegboard.accounts.stored_shares import StoredShares
from pegboard.errors import QuotaExceeded, StoreDown
from pegboard.limits import Limits
from pegboard.server.access import Access
from pegboard.stores.cluster import Cluster, SharedStore
from pegboard.stores.store import Records
from tests.stores.backends import Backend, shared
from tests.waiting import SOON

pytestmark = pytest.mark.process

ANN = Access(Principal("ann"))


@pytest.fixture(autouse=True)
def no_rejection_is_held_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(account_module, "HELD_BACK_SECONDS", 0.0)


class Time:
    """The monotonic clock of a process."""

    def __init__(self) -> None:
        self.now = 50_000.0

    def __call__(self) -> float:
        return self.now


class CountingRecords:
    """Records that count what is asked of them, and can be away."""

    def __init__(self, records: Records) -> None:
        self._records = records
        self.asked = 0
        self.away = False

    def __getattr__(self, name: str) -> Any:
        self.asked += 1
        if self.away:
            raise StoreDown("away")
        return getattr(self._records, name)


class Store:
    """A store whose records are counted."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.records = CountingRecords(store.records)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


class Process:
    """One process of several, as far as accounts are concerned."""

    def __init__(self, store: Any, clock: Time, quota: Quota) -> None:
        self.store = Store(store)
        self.cluster = Cluster(store, Limits())
        self.accounts = Accounts(Limits(), Quotas(everyone=quota), clock)
        self.shares = StoredShares(self.accounts, SharedStore(self.store, self.cluster), clock)

    @property
    def account(self) -> Account:
        found = self.accounts.of(ANN)
        assert found is not None
        return found

    async def enter(self, size: int = 1) -> bool:
        """Whether a request is admitted."""
        try:
            pending: Awaitable[None] | None = self.account.enter(size)
            if pending is not None:
                await asyncio.wait_for(pending, SOON)
        except QuotaExceeded:
            return False
        return True

    async def flood(self, requests: int) -> int:
        return sum([await self.enter() for _ in range(requests)])

    async def take(self, name: str, tries: int) -> int:
        """How much is held after so many attempts, each after a claim."""
        for _ in range(tries):
            if self.account.take(name):
                continue
            share = self.shares._share_of(self.account)
            if share.task is not None:
                await asyncio.wait({share.task})
        return self.account.held[name]


@asynccontextmanager
async def processes(backend: Backend, **quota: Any) -> AsyncIterator[tuple[Process, Process, Time]]:
    clock = Time()
    async with shared(backend) as (one, other):
        both = [Process(store, clock, Quota(**quota)) for store in (one, other)]
        for process in both:
            await process.cluster.start()
            process.shares.start()
        for process in both:
            process.cluster._living = (-1.0, frozenset())
        try:
            yield both[0], both[1], clock
        finally:
            for process in both:
                await process.shares.close()
                await process.cluster.close()


async def test_two_processes_together_admit_the_rate_and_no_more(shared_backend: Backend) -> None:
    async with processes(shared_backend, rate="100/hour") as (one, two, clock):
        admitted = await asyncio.gather(one.flood(150), two.flood(150))
        assert 95 <= sum(admitted) <= 100
        clock.now += 1800
        assert 45 <= sum(await asyncio.gather(one.flood(150), two.flood(150))) <= 51


async def test_a_caller_of_one_process_gets_almost_all_of_a_period_at_once(shared_backend: Backend) -> None:
    async with processes(shared_backend, rate="1000/hour") as (one, two, clock):
        assert await two.enter()
        assert 950 <= await one.flood(1100) < 1000
        assert one.account.meters["rate"].units + two.account.meters["rate"].units <= 1000
        clock.now += 1800
        # The other process claims some of it back.
        assert await two.enter()
        assert 400 <= await one.flood(1100) <= 500


async def test_what_callers_hold_is_limited_over_both(shared_backend: Backend) -> None:
    async with processes(shared_backend, streams=10, sessions=1) as (one, two, clock):
        assert await one.enter()
        assert await two.enter()
        held = await one.take("streams", 30)
        clock.now += 2
        held += await two.take("streams", 30)
        assert held == 10
        clock.now += 2
        assert await one.take("sessions", 3) + await two.take("sessions", 3) == 1
        for _ in range(one.account.held["streams"]):
            one.account.give_back("streams")
        for _ in range(4):
            clock.now += 2
            await two.take("streams", 10)
        assert two.account.held["streams"] > 5, "what one process has given back, the other gets"
        assert two.account.held["streams"] <= 10


async def test_a_request_does_not_ask_the_store(shared_backend: Backend) -> None:
    async with processes(shared_backend, rate="100000/minute", calls=50) as (one, two, _):
        assert await one.enter()
        assert await two.enter()
        asked = one.store.records.asked
        assert await one.flood(5_000) == 5_000
        assert one.store.records.asked == asked
        one.account.held["calls"] = 50
        for _ in range(20):
            # Until the other process has nothing to return.
            assert not await one.enter()
        asked = one.store.records.asked
        for _ in range(1_000):
            with pytest.raises(QuotaExceeded):
                one.account.enter(1)
        assert one.store.records.asked == asked, "a rejection does not ask it either"
        one.account.held["calls"] = 0


async def test_the_part_of_a_process_that_is_gone_goes_to_the_others(shared_backend: Backend) -> None:
    async with processes(shared_backend, rate="100/hour", calls=4) as (one, two, clock):
        assert await two.enter()
        assert 50 <= await one.flood(100) < 100
        await two.shares.close()
        await two.cluster.close()
        one.cluster._living = (-1.0, frozenset())
        clock.now += 3600
        assert await one.flood(1)
        for _ in range(5):
            clock.now += 2
            await one.flood(100)
        assert one.account.meters["rate"].units == 100
        await two.cluster.start()


async def test_without_the_store_each_process_applies_its_part_and_says_so_once(
    shared_backend: Backend, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "pegboard.limits")
    async with processes(shared_backend, rate="100/hour") as (one, two, clock):
        one.shares._processes = two.shares._processes = 2
        one.store.records.away = two.store.records.away = True
        assert [await one.flood(100), await two.flood(100)] == [50, 50]
        clock.now += 5
        await one.flood(10)
        said = [record.message for record in caplog.records if "part of the limits per caller" in record.message]
        assert len(said) == 2
        one.store.records.away = two.store.records.away = False
        clock.now += 5
        await one.flood(3)
        await two.flood(3)
        assert one.account.meters["rate"].units + two.account.meters["rate"].units <= 100
        assert sum("can be reached again" in record.message for record in caplog.records) == 2


async def test_a_process_that_others_took_for_dead_claims_again(shared_backend: Backend) -> None:
    async with processes(shared_backend, rate="100/hour") as (one, two, _):
        assert await one.flood(10) == 10
        assert await two.enter()
        one.shares.forget_claims()
        assert one.account.unclaimed
        assert await one.flood(100) <= 89
        assert one.account.meters["rate"].units + two.account.meters["rate"].units <= 100


async def test_a_quota_that_becomes_smaller_holds_after_the_next_claim(shared_backend: Backend) -> None:
    async with processes(shared_backend, rate="100/hour") as (one, two, clock):
        assert await one.enter()
        assert await two.enter()
        for process in (one, two):
            process.accounts.configure(Quotas(everyone=Quota(rate="10/hour")))
        for _ in range(2):
            clock.now += 3600
            assert sum(await asyncio.gather(one.flood(50), two.flood(50))) <= 10
        clock.now += 3600
        assert sum(await asyncio.gather(one.flood(50), two.flood(50))) >= 9


async def test_many_new_callers_at_once_do_not_flood_the_store(shared_backend: Backend) -> None:
    async with processes(shared_backend, rate="100/hour") as (one, _, __):
        callers = [one.accounts.of(Access(Principal(f"p{number}"))) for number in range(300)]
        waiting = [account.enter(1) for account in callers if account is not None]
        assert one.shares._claiming <= 64
        await asyncio.gather(*(pending for pending in waiting if pending is not None))
        assert one.shares._claiming == 0
