"""The memory backend never waits, which callers that cannot wait count on."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from pegboard.limits import Limits
from pegboard.stores.memory import MemoryLogs, MemoryStore

T = TypeVar("T")
LOG = ("session", "stream")


def at_once(work: Coroutine[Any, Any, T]) -> T:
    """The value of a coroutine that does not wait."""
    try:
        work.send(None)
    except StopIteration as end:
        value: T = end.value
        return value
    raise AssertionError("it waits")


def test_no_method_waits_and_an_entry_is_there_when_its_hint_comes() -> None:
    store = MemoryStore()
    assert at_once(store.logs.open(LOG))
    seen: list[int] = []

    def look() -> None:
        page = at_once(store.logs.read(LOG, 0, 10))
        assert page is not None
        seen.append(page.last)

    store.logs.watch(LOG, look)
    assert at_once(store.logs.append(LOG, 1, b"x", keep=True))
    at_once(store.logs.release(LOG, 1))
    assert seen == [1]
    assert at_once(store.records.put("a", b"x")) == 1
    assert at_once(store.records.add("n", 1)) == 1
    assert at_once(store.records.get("a"))
    assert at_once(store.records.delete("a"))


async def test_an_ended_log_expires_without_being_accessed() -> None:
    logs, gone = MemoryLogs(Limits(ended_seconds=0.01)), asyncio.Event()
    for name in ("a", "b"):
        await logs.open(("session", name))
        await logs.append(("session", name), 1, b"x", end=True)
    logs.watch(("session", "b"), gone.set)
    await gone.wait()
    assert await logs.read(("session", "a"), 0, 10) is None


async def test_where_all_hold_too_much_a_log_with_nothing_to_spare_is_passed_over_until_it_has() -> None:
    logs = MemoryLogs(Limits(stored_bytes=1000))
    await logs.open(("first", "a"))
    await logs.append(("first", "a"), 1, b"x" * 400, keep=True)
    await logs.open(("second", "a"))
    for seq in range(1, 20):
        await logs.append(("second", "a"), seq, b"x" * 200)

    async def kept(session: str) -> list[int]:
        page = await logs.read((session, "a"), 0, 100)
        assert page is not None
        return [entry.seq for entry in page.entries]

    assert (await kept("first"), await kept("second")) == ([1], [17, 18, 19])
    await logs.release(("first", "a"), 1)
    await logs.append(("second", "a"), 20, b"x" * 900, keep=True)
    assert (await kept("first"), await kept("second")) == ([], [20])
