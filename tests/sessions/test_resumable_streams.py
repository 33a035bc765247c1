"""Streams: what is sent was stored before, and whoever comes back gets the rest, each event once and in order."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pegboard.limits import Limits
from pegboard.protocol.framing.sse import EventReader
from pegboard.sessions.resumable_streams import Cursor, SessionStream, SessionStreams, event_id, read_event_id
from pegboard.stores.memory import MemoryLogs

SESSION = "5" * 32


class Reader:
    """A client that follows a stream on one connection; it may stop reading."""

    def __init__(self) -> None:
        self.events: list[tuple[str, Any]] = []
        self.let_go_with: list[int | None] = []
        self.open = asyncio.Event()
        self.open.set()
        self.task: asyncio.Task[None] | None = None

    def follow(self, streams: SessionStreams, last: str) -> asyncio.Task[None]:
        self.task = asyncio.ensure_future(streams.follow(last, self, self.write))
        return self.task

    async def write(self, event: bytes, name: str) -> None:
        await self.open.wait()
        for read in EventReader().feed(event):
            assert read.id == name
            self.events.append((name, json.loads(read.data)))

    def detach_connection(self, retry_ms: int | None) -> None:
        self.let_go_with.append(retry_ms)
        if self.task is not None:
            self.task.cancel()


class Nobody:
    """A connection that is not looked at."""

    def __init__(self) -> None:
        self.let_go_with: list[int | None] = []

    def detach_connection(self, retry_ms: int | None) -> None:
        self.let_go_with.append(retry_ms)


async def open_stream(streams: SessionStreams, holder: Any = None) -> SessionStream:
    stream = await streams.open(holder or Nobody())
    assert stream is not None
    return stream


def message(number: int) -> bytes:
    return b'{"n":%d}' % number


async def turn() -> None:
    """Let everybody who can go on do so."""
    for _ in range(10):
        await asyncio.sleep(0)


def numbers(reader: Reader) -> list[int]:
    return [data["n"] for _, data in reader.events]


def test_an_event_id_names_its_stream_and_its_place() -> None:
    assert read_event_id(event_id("0123abcd", 17)) == Cursor("0123abcd", 17)
    for strange in ("", "g-3", "0123abcd", "0123abcd-", "0123abcd-x", "0123ABCD-1", "0123abcd-1-1", "0123abcd--1",
                    "0123abcd-" + "9" * 400, "0123abcd-١"):  # fmt: skip
        assert read_event_id(strange) is None


async def test_who_comes_back_gets_what_it_has_not_seen_and_what_comes_then() -> None:
    streams = SessionStreams(MemoryLogs(Limits()), SESSION)
    stream = await open_stream(streams)
    for number in (1, 2, 3):
        assert await stream.append(message(number)) == number
    reader = Reader()
    following = reader.follow(streams, event_id(stream.id, 1))
    await turn()
    assert reader.events == [(f"{stream.id}-2", {"n": 2}), (f"{stream.id}-3", {"n": 3})]
    await stream.append(message(4))
    await turn()
    await stream.append(message(5), end=True)
    await following
    assert numbers(reader) == [2, 3, 4, 5]


async def test_the_first_id_is_before_the_first_event_and_is_never_stored() -> None:
    streams = SessionStreams(MemoryLogs(Limits()), SESSION)
    stream = await open_stream(streams)
    reader = Reader()
    following = reader.follow(streams, event_id(stream.id, 0))
    await turn()
    assert reader.events == []
    await stream.append(message(1), end=True)
    await following
    assert numbers(reader) == [1]


async def test_a_stream_that_has_ended_is_replayed_as_often_as_it_is_asked_for() -> None:
    streams = SessionStreams(MemoryLogs(Limits()), SESSION)
    stream = await open_stream(streams)
    await stream.append(message(1))
    await stream.append(message(2), end=True)
    for _ in range(2):
        reader = Reader()
        await reader.follow(streams, event_id(stream.id, 0))
        assert numbers(reader) == [1, 2]


async def test_a_long_stream_is_replayed_whole() -> None:
    streams = SessionStreams(MemoryLogs(Limits()), SESSION)
    stream = await open_stream(streams)
    for number in range(1, 251):
        await stream.append(message(number), end=number == 250)
    reader = Reader()
    await reader.follow(streams, event_id(stream.id, 0))
    assert numbers(reader) == list(range(1, 251))


async def test_a_stream_without_an_answer_ends_without_an_event() -> None:
    streams = SessionStreams(MemoryLogs(Limits()), SESSION)
    stream = await open_stream(streams)
    await stream.append(message(1))
    await stream.append(b"", end=True)
    reader = Reader()
    await reader.follow(streams, event_id(stream.id, 0))
    assert numbers(reader) == [1]


async def test_only_the_events_of_that_stream_come() -> None:
    streams = SessionStreams(MemoryLogs(Limits()), SESSION)
    one, two = await open_stream(streams), await open_stream(streams)
    assert one.id != two.id
    await one.append(message(1), end=True)
    await two.append(message(2), end=True)
    reader = Reader()
    await reader.follow(streams, event_id(two.id, 0))
    assert numbers(reader) == [2]


async def test_an_id_that_is_unknown_expired_or_another_session_s_brings_nothing_and_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "pegboard.sessions")
    logs = MemoryLogs(Limits())
    streams, others = SessionStreams(logs, SESSION), SessionStreams(logs, "6" * 32)
    stream = await open_stream(streams)
    await stream.append(message(1), end=True)
    for asked, last in (
        (streams, "nonsense"), (streams, "00000000-0"), (streams, event_id(stream.id, 2)), (others, event_id(stream.id, 0)),
    ):  # fmt: skip
        reader = Reader()
        await reader.follow(asked, last)
        assert reader.events == []
        assert caplog.messages
        caplog.clear()


async def test_coming_back_closes_the_older_connection() -> None:
    streams = SessionStreams(MemoryLogs(Limits()), SESSION)
    post = Nobody()
    stream = await open_stream(streams, post)
    first, second = Reader(), Reader()
    first.follow(streams, event_id(stream.id, 0))
    await turn()
    assert post.let_go_with == [None]
    await stream.append(message(1))
    await turn()
    following = second.follow(streams, event_id(stream.id, 1))
    await turn()
    assert first.let_go_with == [None]
    await stream.append(message(2), end=True)
    await following
    assert (numbers(first), numbers(second)) == ([1], [2])


async def test_a_connection_is_parted_with_once_wherever_the_stream_is() -> None:
    streams = SessionStreams(MemoryLogs(Limits()), SESSION)
    post, reader = Nobody(), Reader()
    stream = await open_stream(streams, post)
    await streams.hand_off(stream.id, 500)
    await streams.hand_off(stream.id, 500)
    assert post.let_go_with == [500]
    reader.follow(streams, event_id(stream.id, 0))
    await turn()
    await streams.hand_off(stream.id, 700)
    assert (post.let_go_with, reader.let_go_with) == ([500], [700])


async def test_a_follower_ends_when_its_session_does() -> None:
    logs = MemoryLogs(Limits())
    streams = SessionStreams(logs, SESSION)
    stream = await open_stream(streams)
    reader = Reader()
    following = reader.follow(streams, event_id(stream.id, 0))
    await turn()
    await logs.drop(SESSION)
    await following
    assert await stream.append(message(1)) == 0


async def test_what_was_trimmed_is_said_once_under_the_id_before_the_first_event_that_is_kept() -> None:
    streams = SessionStreams(MemoryLogs(Limits(stream_events=2)), SESSION)
    stream = await open_stream(streams)
    for number in range(1, 6):
        await stream.append(message(number))
    reader = Reader()
    following = reader.follow(streams, event_id(stream.id, 1))
    await turn()
    [said, *rest] = reader.events
    assert said[0] == event_id(stream.id, 3)
    assert said[1]["method"] == "notifications/message"
    assert said[1]["params"]["level"] == "warning"
    assert said[1]["params"]["data"].startswith("2 messages")
    assert [data["n"] for _, data in rest] == [4, 5]
    following.cancel()


async def test_a_last_event_that_was_trimmed_is_said_too() -> None:
    streams = SessionStreams(MemoryLogs(Limits(stream_bytes=5)), SESSION)
    stream = await open_stream(streams)
    await stream.append(message(1))
    reader = Reader()
    following = reader.follow(streams, event_id(stream.id, 0))
    await turn()
    assert [(name, data["method"]) for name, data in reader.events] == [(f"{stream.id}-1", "notifications/message")]
    following.cancel()


async def test_an_open_question_is_not_trimmed_and_what_is_missing_around_it_is_said() -> None:
    streams = SessionStreams(MemoryLogs(Limits(stream_events=2)), SESSION)
    stream = await open_stream(streams)
    await stream.append(message(1))
    asked = await stream.append(message(2), keep=True)
    for number in (3, 4, 5):
        await stream.append(message(number))
    reader = Reader()
    following = reader.follow(streams, event_id(stream.id, 0))
    await turn()
    assert [name.partition("-")[2] for name, _ in reader.events] == ["1", "2", "4", "5"]
    assert [data.get("n") for _, data in reader.events] == [None, 2, None, 5]
    following.cancel()
    await stream.release(asked)
    await stream.append(message(6))
    again = Reader()
    following = again.follow(streams, event_id(stream.id, 0))
    await turn()
    assert [data.get("n") for _, data in again.events] == [None, 5, 6]
    following.cancel()


async def test_a_session_that_has_too_many_streams_gets_no_more() -> None:
    streams = SessionStreams(MemoryLogs(Limits(session_streams=1)), SESSION)
    await open_stream(streams)
    assert await streams.open(Nobody()) is None


# -- the promise -----------------------------------------------------------------------------------------------------

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(0, 40)),
        st.tuples(st.just("ask"), st.integers(0, 40)),
        st.tuples(st.sampled_from(["settle", "cut", "resume", "stall", "read", "wait"]), st.just(0)),
    ),
    max_size=80,
)


def check_dense(seen: list[tuple[int, Any]], last: int) -> None:
    """Each number comes once and in order, or is counted by the message that stands in for it."""
    place = 0
    for number, data in seen:
        if data.get("method") == "notifications/message":
            lost = int(data["params"]["data"].split()[0])
            assert number == place + lost
        else:
            assert number == place + 1
            assert data["n"] == number
        place = number
    assert place == last


class Visitor:
    """A call that writes its stream, and a client that loses its connection and comes back with the last id it has."""

    def __init__(self, streams: SessionStreams, stream: SessionStream) -> None:
        self.streams = streams
        self.stream = stream
        self.last = 0
        self.asked: list[int] = []
        self.seen: list[tuple[int, Any]] = []
        self.reader = Reader()

    async def append(self, size: int, *, keep: bool = False, end: bool = False) -> None:
        body = json.dumps({"n": self.last + 1, "pad": "x" * size}).encode()
        self.last = await self.stream.append(body, keep=keep, end=end)

    async def ask(self, size: int) -> None:
        await self.append(size, keep=True)
        self.asked.append(self.last)

    async def settle(self, _: int) -> None:
        if self.asked:
            await self.stream.release(self.asked.pop(0))

    async def cut(self, _: int) -> None:
        if self.reader.task is not None:
            self.reader.task.cancel()

    async def resume(self, _: int) -> None:
        # What a connection that the client has given up still brings, it never sees.
        await self.cut(0)
        self.collect()
        self.reader = Reader()
        self.reader.follow(self.streams, event_id(self.stream.id, self.seen[-1][0] if self.seen else 0))

    async def stall(self, _: int) -> None:
        self.reader.open.clear()

    async def read(self, _: int) -> None:
        self.reader.open.set()

    async def wait(self, _: int) -> None:
        await turn()

    def collect(self) -> None:
        self.seen.extend((int(name.partition("-")[2]), told) for name, told in self.reader.events)
        self.reader.events.clear()


@given(steps=STEPS, pauses=st.integers(0, 2**80))
async def test_a_client_sees_each_event_once_and_in_order_whatever_is_cut_resumed_and_trimmed(
    steps: list[tuple[str, int]], pauses: int
) -> None:
    streams = SessionStreams(MemoryLogs(Limits(stream_events=6, stream_bytes=400)), SESSION)
    visitor = Visitor(streams, await open_stream(streams))
    for number, (step, size) in enumerate(steps):
        await getattr(visitor, step)(size)
        if pauses >> number & 1:
            await turn()
    await visitor.append(0, end=True)
    await visitor.resume(0)
    assert visitor.reader.task is not None
    await visitor.reader.task
    visitor.collect()
    check_dense(visitor.seen, visitor.last)
    assert visitor.seen[-1] == (visitor.last, {"n": visitor.last, "pad": ""})
