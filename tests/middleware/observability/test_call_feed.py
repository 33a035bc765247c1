"""The calls in a store: of all processes, within bounds, also after a restart."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from pegboard import Board
from pegboard.errors import StoreDown
from pegboard.limits import Limits
from pegboard.middleware.observability.call_feed import FEED, CallFeed, StoredCall, split_batches
from pegboard.middleware.observability.history import History
from pegboard.stores.cluster import Cluster, SharedStore
from pegboard.stores.store import Store, wait_for_hint
from pegboard.testing import make_call
from tests.stores.backends import Backend, opened, shared
from tests.stores.conftest import backend, server, shared_backend
from tests.waiting import SOON, until

__all__ = ["backend", "server", "shared_backend"]


def stored(name: str, size: int = 10) -> StoredCall:
    details = Raw(msgspec.json.encode({"sent": "x" * size}))
    return StoredCall(at=1.0, ms=2.0, method="tools/call", name=name, outcome="ok", details=details)


async def publish(feed: CallFeed, *calls: StoredCall) -> None:
    for batch, count in split_batches(calls):
        await feed.publish(batch, count)


def names(calls: list[StoredCall]) -> list[str]:
    return [call.name for call in calls]


async def test_calls_are_read_in_order_from_any_place(backend: Backend) -> None:
    async with opened(backend) as store:
        feed = CallFeed(store.feeds, 10_000, 1 << 20)
        assert (await feed.since(0, 10), await feed.latest(10), await feed.find(1024)) == ([], [], None)
        for number in range(150):
            await publish(feed, *(stored(f"{number}-{place}") for place in range(2)))
        found = await feed.since(0, 1000)
        assert names(found) == [f"{number}-{place}" for number in range(150) for place in range(2)]
        numbers = [call.number for call in found]
        assert numbers == sorted(set(numbers))
        # They are exact in a browser, too.
        assert numbers[-1] < 2**53
        for place in (0, 1, 127, 130, 298, 299):
            assert names(await feed.since(numbers[place], 1000)) == names(found[place + 1 :])
            assert names(await feed.since(numbers[place], 3)) == names(found[place + 1 : place + 4])
        for count in (1, 2, 3, 129, 300, 1000):
            assert names(await feed.latest(count)) == names(found[-count:])
        middle = await feed.find(numbers[77])
        assert middle is not None
        assert (middle.name, middle.everything()["sent"]) == ("38-1", "x" * 10)
        assert numbers[-1] <= await feed.last()


async def test_the_number_of_calls_is_bounded_whatever_the_size_of_batches(backend: Backend) -> None:
    async with opened(backend) as store:
        feed = CallFeed(store.feeds, 100, 1 << 30)
        for number in range(300):
            await publish(feed, stored(str(number)))
        assert names(await feed.latest(1000)) == [str(number) for number in range(200, 300)]
        await publish(feed, *(stored(f"more {number}") for number in range(1000)))
        assert 100 <= len(await feed.latest(10_000)) < 1100


async def test_the_bytes_are_bounded(backend: Backend) -> None:
    async with opened(backend) as store:
        feed = CallFeed(store.feeds, 1 << 30, 100_000)
        for number in range(300):
            await publish(feed, stored(str(number), 5000))
        kept = await feed.latest(1000)
        assert 10 <= len(kept) <= 20
        assert kept[-1].name == "299"


async def test_an_entry_of_another_version_is_skipped(backend: Backend) -> None:
    async with opened(backend) as store:
        feed = CallFeed(store.feeds, 100, 1 << 20)
        await publish(feed, stored("a"))
        await store.feeds.publish(FEED, b'{"another": "form"}', keep=100)
        await publish(feed, stored("b"))
        assert names(await feed.latest(10)) == names(await feed.since(0, 10)) == ["a", "b"]


# -- the histories of several processes --------------------------------------------------------------------------------


def board_of(history: History) -> Board:
    board = Board("kept")
    board.use(history)

    @board.tool
    def greet(name: str, password: str = "") -> str:
        return f"Hello {name}"

    return board


async def greet(board: Board, name: str) -> str:
    call = make_call("greet", {"name": name, "password": "hunter2"})
    result: Any = (await board.handler(call)).result
    return str(result["content"][0]["text"])


def share(store: Store) -> SharedStore:
    return SharedStore(store, Cluster(store, Limits()))


async def test_every_process_sees_the_calls_of_all_also_after_they_have_ended(shared_backend: Backend) -> None:
    async with shared(shared_backend) as (one, two):
        histories = History(), History()
        boards = [board_of(history) for history in histories]
        for board, store in zip(boards, (one, two), strict=True):
            await board.start(share(store))
        heard: list[int] = []
        leave = histories[0].watch(lambda: heard.append(1))
        for board, name in zip(boards, ("ann", "bob"), strict=True):
            await greet(board, name)
        await histories[1].latest(1)
        await until(lambda: len(heard) > 1)
        leave()
        for history in histories:
            kept: list[Any] = [call.everything() for call in await history.latest(10)]
            assert sorted(call["sent"]["name"] for call in kept) == ["ann", "bob"]
            assert "hunter2" not in json.dumps(kept)
        for board in boards:
            await board.stop()
        late = History()
        board = board_of(late)
        await board.start(share(one))
        assert len(await late.latest(10)) == 2
        await board.stop()


async def test_calls_are_stored_while_no_one_looks(shared_backend: Backend) -> None:
    async with shared(shared_backend) as (one, two):
        board = board_of(History())
        await board.start(share(one))
        await greet(board, "ann")
        feed, hint = CallFeed(two.feeds, 1, 1), asyncio.Event()
        leave = feed.watch(hint.set)
        async with asyncio.timeout(SOON):
            while not (found := await feed.latest(10)):
                await wait_for_hint(hint, SOON)
        leave()
        assert names(found) == ["greet"]
        await board.stop()


async def test_a_history_that_is_not_stored_stays_in_memory(shared_backend: Backend) -> None:
    async with shared(shared_backend) as (one, two):
        history = History(store=False)
        board = board_of(history)
        await board.start(share(one))
        await greet(board, "ann")
        assert len(await history.latest(10)) == 1
        await board.stop()
        assert await CallFeed(two.feeds, 1, 1).latest(10) == []


async def test_a_store_that_is_down_costs_the_calls_nothing_and_is_logged_once(
    shared_backend: Backend, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(shared_backend) as store:
        history = History()
        board = board_of(history)
        history.use_store(store)
        await board.start()

        async def fail(batch: bytes, count: int) -> None:
            raise StoreDown("it is away")

        with monkeypatch.context() as patch:
            patch.setattr(history._feed, "publish", fail)
            for _ in range(3):
                assert await greet(board, "ann") == "Hello ann"
                # The second time there is nothing to store, which does not show that the store is back.
                for _ in range(2):
                    await history._move_quietly(10)
        assert [record.getMessage() for record in caplog.records] == [
            "calls are not kept in the history now: it is away"
        ]
        await greet(board, "bob")
        await history._move_quietly(10)
        assert names(await CallFeed(store.feeds, 1, 1).latest(10)) == ["greet"]
        await board.stop()
