"""Whatever is asked of a store, a file and a server answer as memory does."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from pegboard.limits import Limits
from pegboard.stores.memory import MemoryStore
from pegboard.stores.store import Store
from tests.depth import examples
from tests.stores.backends import Backend, Clock, started

LIMITS = Limits(stream_events=4, stream_bytes=30, session_streams=3, session_bytes=50, ended_streams=2)
SESSIONS, STREAMS, KEYS = "xy", "abcd", "kl"

sessions, streams = st.sampled_from("xxxxxxxy"), st.sampled_from("aaabbcd")
logs = st.tuples(sessions, streams)
ttls = st.sampled_from([None, 5.0, 500.0])
# Far more often the next number than another: else logs would stay empty.
off = st.sampled_from([0, 0, 0, 0, 0, 0, 1, -1])

appending = st.tuples(
    st.just("append"), logs, off, st.sampled_from([0, 3, 9, 14]), st.sampled_from(["", "", "", "keep", "end"])
)
waiting = st.tuples(st.just("wait"), st.sampled_from([1, 10, 200]))
opening = st.tuples(st.just("open"), logs)

LOG_STEP = st.one_of(
    appending,
    appending,
    appending,
    appending,
    opening,
    waiting,
    st.tuples(st.just("release"), logs, st.integers(0, 8)),
    st.tuples(st.just("read"), logs, st.integers(-1, 8), st.integers(1, 5)),
    st.tuples(st.sampled_from(["drop", "touch"]), st.just("y")),
)
RECORD_STEP = st.one_of(
    waiting,
    st.tuples(st.just("put"), st.sampled_from(KEYS), st.binary(max_size=4), ttls, st.sampled_from([None, 0, 1, 2])),
    st.tuples(st.sampled_from(["get", "delete"]), st.sampled_from(KEYS)),
    st.tuples(st.just("add"), st.sampled_from("mn"), st.integers(-3, 9), ttls),
)


async def do(store: Store, what: str, *how: Any) -> Any:
    """One step; what came of it."""
    match what, how:
        case "append", (log, away, size, mark):
            page = await store.logs.read(log, 0, 1)
            seq = (0 if page is None else page.last) + 1 + away
            return await store.logs.append(log, seq, b"x" * size, keep=mark == "keep", end=mark == "end")
        case "put", (key, value, ttl, if_version):
            return await store.records.put(key, value, ttl=ttl, if_version=if_version)
        case "add", (key, amount, ttl):
            return await store.records.add(key, amount, ttl=ttl)
        case (("get" | "delete"), (key,)):
            return await getattr(store.records, what)(key)
        case _:
            return await getattr(store.logs, what)(*how)


async def compare(backend: Backend, steps: list[tuple[Any, ...]]) -> None:
    clock = Clock()
    model = MemoryStore(LIMITS, clock)
    with backend() as place:
        async with started(place(LIMITS, clock)) as store:
            for step in steps:
                # Those that end at one moment may go in any order: no two do here.
                clock.now += 0.01
                if step[0] == "wait":
                    clock.now += step[1]
                else:
                    assert await do(store, *step) == await do(model, *step), step
            for log in [(session, stream) for session in SESSIONS for stream in STREAMS]:
                assert await store.logs.read(log, 0, 100) == await model.logs.read(log, 0, 100), log


@settings(max_examples=examples(15), deadline=None)
@given(steps=st.lists(LOG_STEP, min_size=20, max_size=60))
async def test_each_step_with_logs_comes_to_the_same(shared_backend: Backend, steps: list[tuple[Any, ...]]) -> None:
    await compare(shared_backend, [("open", ("x", "a")), ("open", ("x", "b")), *steps])


@settings(max_examples=examples(10), deadline=None)
@given(steps=st.lists(RECORD_STEP, max_size=40))
async def test_each_step_with_records_comes_to_the_same(shared_backend: Backend, steps: list[tuple[Any, ...]]) -> None:
    await compare(shared_backend, steps)
