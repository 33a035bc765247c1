"""A stream of events as a line that several calls write to."""

from __future__ import annotations

import asyncio

from pegboard.server.deprecated.event_line import EventLine
from tests.server.fake_sink import RecordedSink


def begin(*, numbered: bool = False) -> tuple[RecordedSink, EventLine]:
    sink = RecordedSink()
    sink.start(200, ())
    return sink, EventLine(sink, numbered=numbered)


def test_messages_and_other_events_are_numbered_together_where_they_are() -> None:
    sink, line = begin(numbered=True)
    line.write(b"1")
    line.write_event("done", b"{}")
    assert bytes(sink.written) == b"id: 1\nevent: message\ndata: 1\n\nid: 2\nevent: done\ndata: {}\n\n"


def test_a_line_without_numbers_has_no_ids() -> None:
    sink, line = begin()
    line.write(b"1")
    assert bytes(sink.written) == b"event: message\ndata: 1\n\n"


def test_what_comes_after_the_end_is_dropped() -> None:
    sink, line = begin()
    line.close()
    line.write(b"1")
    line.keep_alive()
    line.close()
    assert sink.ended
    assert not sink.written
    assert not line.open


def test_a_disconnected_client_receives_nothing_more_and_its_stream_is_not_ended() -> None:
    sink, line = begin()
    line.leave()
    line.write(b"1")
    line.keep_alive()
    line.close()
    assert not sink.written
    assert not sink.ended


async def test_a_line_is_full_until_its_reader_has_caught_up() -> None:
    sink, line = begin()
    sink.clog()
    line.write(b"1")
    assert line.full
    draining = asyncio.ensure_future(line.drain())
    await asyncio.sleep(0)
    assert not draining.done()
    sink.unclog()
    await draining
    assert line.open
    assert not line.full


async def test_draining_raises_no_exception_when_the_reader_disconnects() -> None:
    sink, line = begin()
    sink.clog()
    line.write(b"1")
    draining = asyncio.ensure_future(line.drain())
    await asyncio.sleep(0)
    sink.leave()
    await draining
    assert not line.open
