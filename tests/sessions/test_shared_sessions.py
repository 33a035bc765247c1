"""Two processes share a store: each serves the sessions of both, and keeps no copy that is not true."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest

from pegboard.auth.principal import Principal
from pegboard.call import Caller
from pegboard.errors import InvalidParams, SessionNotFound, StoreDown
from pegboard.limits import Limits
from pegboard.sessions.session import Session
from pegboard.sessions.sessions import Sessions
from pegboard.stores.cluster import Cluster, SharedStore
from pegboard.stores.store import Store
from tests.stores import backends
from tests.stores.backends import Clock
from tests.waiting import SOON, until


class Process:
    """One of them; what it asks of the store is counted."""

    def __init__(self, store: Store, clock: Clock, limits: Limits) -> None:
        self.store = store
        self.cluster = Cluster(store, Limits(worker_seconds=100_000))
        self.ended: list[str] = []
        self.sessions = Sessions(limits, clock, on_end=lambda caller, _: self.ended.append(caller.session))
        self.sessions.share(SharedStore(store, self.cluster), clock)
        self.asked: list[str] = []
        for name in ("get", "put", "delete"):
            self._count(name, getattr(store.records, name))

    def _count(self, name: str, method: Any) -> None:
        async def counted(*args: Any, **options: Any) -> Any:
            found = await method(*args, **options)
            self.asked.append(name)
            return found

        setattr(self.store.records, name, counted)

    def has_put(self, times: int) -> bool:
        return self.asked.count("put") >= times

    async def open(self, principal: str = "") -> Session:
        session = self.sessions.open(
            lambda name: Caller(
                version="2025-11-25",
                transport="http",
                session=name,
                principal=Principal(principal),
                client={"name": "t", "version": "1"},
                capabilities={"elicitation": {}},
            )
        )
        await self.sessions.enter(session)
        return session

    async def find(self, session: Session, principal: str = "") -> Session:
        name = session.caller.session
        return self.sessions.find(name, principal) or await self.sessions.load(name, principal)


@pytest.fixture(autouse=True)
def _is_patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that did not run for a quarter of a second is not stuck here: a busy machine decides that."""
    for ask in (Cluster.ask, Cluster.ask_others):
        monkeypatch.setattr(ask, "__defaults__", (SOON,))


@asynccontextmanager
async def processes(clock: Clock | None = None, **limits: float) -> AsyncIterator[tuple[Process, Process]]:
    clock = clock or Clock()
    async with backends.shared(backends.sqlite, clock, worker_seconds=100_000, **limits) as (one, two):
        both = Process(one, clock, Limits(**limits)), Process(two, clock, Limits(**limits))
        for process in both:
            await process.cluster.start()
        try:
            yield both
        finally:
            for process in both:
                await process.cluster.close()


async def test_a_session_is_read_once_from_the_store_and_then_cached() -> None:
    async with processes() as (one, two):
        session = await one.open()
        assert one.asked == ["put"]
        found = await two.find(session)
        assert found.caller == session.caller
        assert two.asked == ["get"]
        for _ in range(100):
            assert two.sessions.find(session.caller.session, "") is found
        assert two.asked == ["get"]


async def test_all_who_look_for_a_session_at_one_time_read_it_once() -> None:
    async with processes() as (one, two):
        session = await one.open()
        found = await asyncio.gather(*(two.find(session) for _ in range(10)))
        assert len(set(map(id, found))) == 1
        assert two.asked == ["get"]


@pytest.mark.parametrize("sent", ["", "x" * 32, "0" * 31, "0" * 32 + "\n"])
async def test_what_can_be_no_id_is_not_looked_for(sent: str) -> None:
    async with processes() as (one, _):
        with pytest.raises(SessionNotFound):
            await one.sessions.load(sent, "")
        assert one.asked == []


async def test_a_session_belongs_to_its_principal_everywhere() -> None:
    async with processes() as (one, two):
        session = await one.open("ann")
        for _ in range(2):
            with pytest.raises(SessionNotFound):
                await two.find(session, "bob")
        assert (await two.find(session, "ann")).caller.principal.id == "ann"


async def test_a_change_is_known_everywhere_once_it_is_made() -> None:
    async with processes() as (one, two):
        session = await one.open()
        copy = await two.find(session)
        await one.sessions.change(session, lambda known: known.set_level("error"))
        assert (await two.find(session)).caller.log_level == "error"
        await two.sessions.change(await two.find(session), lambda known: known.subscribe("a://b", Limits()))
        assert (await one.find(session)).uris == {"a://b"}
        assert copy.caller.log_level == "error", "a copy is refreshed, not replaced"


async def test_a_copy_with_something_under_way_is_renewed_in_place() -> None:
    async with processes() as (one, two):
        session = await one.open()
        copy = await two.find(session)
        task = asyncio.ensure_future(asyncio.Event().wait())
        copy.calls[1] = task
        uris = copy.uris
        await one.sessions.change(session, lambda known: known.subscribe("a://b", Limits()))
        await until(lambda: uris == {"a://b"})
        assert two.sessions.find(session.caller.session, "") is copy
        await one.sessions.change(session, lambda known: known.unsubscribe("a://b"))
        await until(lambda: uris == set())
        await one.sessions.end(session)
        await until(task.cancelled)


async def test_every_process_with_a_copy_learns_that_the_session_ended() -> None:
    async with processes() as (one, two):
        ended, kept = await one.open(), await one.open()
        for session in (ended, kept):
            await two.find(session)
            await one.sessions.change(session, lambda known: known.set_level("error"))
        assert (one.ended, two.ended) == ([], [])
        await one.sessions.end(ended)
        assert one.ended == [ended.caller.session]
        await until(lambda: two.ended == [ended.caller.session])
        assert len(two.sessions) == 1


async def test_what_is_kept_for_a_session_ends_with_the_expired_copy() -> None:
    clock = Clock()
    async with processes(clock, session_seconds=60) as (one, two):
        session = await one.open()
        await two.find(session)
        clock.now += 50
        await one.find(session)
        clock.now += 20
        assert (one.sessions.reap(), two.sessions.reap()) == (0, 1)
        assert (one.ended, two.ended) == ([], [session.caller.session])


async def test_changes_made_at_two_places_at_once_are_both_made() -> None:
    async with processes() as (one, two):
        session = await one.open()
        copy = await two.find(session)
        await asyncio.gather(
            *(
                one.sessions.change(session, lambda known, at=n: known.subscribe(f"one://{at}", Limits()))
                for n in range(5)
            ),  # type: ignore[misc]
            *(
                two.sessions.change(copy, lambda known, at=n: known.subscribe(f"two://{at}", Limits()))
                for n in range(5)
            ),  # type: ignore[misc]
        )
        for process in (one, two):
            assert len((await process.find(session)).uris) == 10


async def test_a_change_that_is_refused_is_made_nowhere() -> None:
    async with processes() as (one, two):
        session = await one.open()
        with pytest.raises(InvalidParams):
            await one.sessions.change(session, lambda known: known.set_level("loud"))
        assert one.asked == ["put"]
        assert (await two.find(session)).caller.log_level is None


async def test_a_session_that_was_ended_while_it_was_changed_is_not_there() -> None:
    async with processes() as (one, two):
        session = await one.open()
        copy = await two.find(session)
        await two.store.records.delete("session:" + session.caller.session)
        with pytest.raises(SessionNotFound):
            await one.sessions.change(session, lambda known: known.set_level("error"))
        assert copy.caller.session == session.caller.session


async def test_a_session_that_ends_while_it_is_read_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    async with processes() as (one, two):
        session = await one.open()
        read, go_on, reads = two.store.records.get, asyncio.Event(), list[str]()

        async def read_slowly(key: str) -> Any:
            record = await read(key)
            reads.append(key)
            await go_on.wait()
            return record

        monkeypatch.setattr(two.store.records, "get", read_slowly)
        finding = asyncio.ensure_future(two.find(session))
        await until(lambda: len(reads) == 1)
        await one.sessions.end(session)
        go_on.set()
        with pytest.raises(SessionNotFound):
            await finding
        assert len(two.sessions) == 0


async def test_use_is_written_at_most_once_a_minute_and_keeps_a_session_alive() -> None:
    clock = Clock()
    async with processes(clock, session_seconds=1800) as (one, two):
        session = await one.open()
        for minutes in range(1, 30):
            for _ in range(3):
                clock.now += 20
                await one.find(session)
            clock.now += 1
            await one.find(session)
            await until(partial(one.has_put, 1 + minutes))
        await asyncio.sleep(0)
        assert one.asked == ["put"] * 30
        # Used for half an hour at one place, it lives at the other.
        clock.now += 1790
        assert (await two.find(session)).caller == session.caller
        await until(partial(two.has_put, 1))
        clock.now += 1790
        assert await one.find(session)


async def test_an_unused_session_expires_in_all_processes() -> None:
    clock = Clock()
    async with processes(clock, session_seconds=1800) as (one, two):
        session = await one.open()
        await two.find(session)
        clock.now += 1861
        for process in (one, two):
            with pytest.raises(SessionNotFound):
                await process.find(session)
            assert len(process.sessions) == 0


async def test_a_session_that_makes_room_is_forgotten_by_all_unless_another_process_uses_it() -> None:
    clock = Clock()
    async with processes(clock, sessions=2) as (one, two):
        idle, used = await one.open(), await one.open()
        clock.now += 200
        await two.find(used)
        await until(lambda: "put" in two.asked)
        third, fourth = await one.open(), await one.open()
        assert len(one.sessions) == 2
        await until(lambda: one.asked.count("delete") == 1)
        with pytest.raises(SessionNotFound):
            await two.find(idle)
        assert await two.find(used)
        assert await one.find(third)
        assert await one.find(fourth)


async def test_a_session_that_cannot_be_written_down_is_not_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    async with processes() as (one, _):

        async def fail(*_: Any, **__: Any) -> None:
            raise StoreDown("gone fishing")

        monkeypatch.setattr(one.store.records, "put", fail)
        with pytest.raises(StoreDown):
            await one.open()
        assert len(one.sessions) == 0


async def test_who_may_have_missed_something_trusts_no_copy() -> None:
    async with processes() as (one, two):
        session, other = await one.open(), await one.open()
        copy, busy = await two.find(session), await two.find(other)
        task = asyncio.ensure_future(asyncio.Event().wait())
        busy.calls[1] = task
        # As if the word of it had never come.
        for gone in (session, other):
            await one.store.records.delete("session:" + gone.caller.session)
        assert two.sessions.find(copy.caller.session, "") is copy
        two.sessions.invalidate_all()
        with pytest.raises(SessionNotFound):
            await two.find(session)
        await asyncio.wait([task], timeout=5)
        assert task.cancelled()
