"""The memory backend never waits, which callers that cannot wait count on."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, TypeVar

from pegboard.stores.memory import MemoryStore

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
