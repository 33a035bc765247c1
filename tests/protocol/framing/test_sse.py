"""Events written are the events read, however the bytes are cut."""

from __future__ import annotations

import itertools
import tracemalloc
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pegboard.protocol.framing import sse
from pegboard.protocol.framing.sse import KEEP_ALIVE, Event, EventReader, event, retry
from tests.work import grows_linearly

pytestmark = pytest.mark.same_on_every_python

LINE = st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"]), max_size=20)
NAME = st.text(st.characters(exclude_characters="\r\n\0", exclude_categories=["Cs"]), min_size=1, max_size=8)
EVENTS = st.lists(st.tuples(LINE, st.none() | NAME, st.none() | NAME), max_size=5)


def read(*chunks: bytes, limit: int = 1000) -> list[Event]:
    reader = EventReader(limit)
    return [made for chunk in chunks for made in reader.feed(chunk)]


@settings(deadline=None)
@given(EVENTS, st.lists(st.integers(0, 400), max_size=8), st.sampled_from([b"\n", b"\r\n", b"\r"]))
def test_events_are_decoded_with_any_chunking_and_any_line_endings(
    events: list[tuple[str, str | None, str | None]], cuts: list[int], newline: bytes
) -> None:
    stream = b"".join(
        event(data.encode(), event_id, name) + (KEEP_ALIVE if index % 2 else b"")
        for index, (data, event_id, name) in enumerate(events)
    ).replace(b"\n", newline)
    edges = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    # A CR at the end may be half of a line end: what follows tells.
    chunks = [stream[start:end] for start, end in itertools.pairwise(edges)] + [b":"]
    wanted = [Event(data, name or "message", event_id) for data, event_id, name in events]
    assert read(*chunks) == wanted
    assert read(*(bytes([byte]) for byte in stream), b":") == wanted


@settings(deadline=None)
@given(st.lists(st.binary(max_size=20), max_size=8))
def test_any_bytes_are_read_without_a_failure(chunks: list[bytes]) -> None:
    assert read(*chunks) == read(b"".join(chunks))


def test_several_data_lines_are_one_text() -> None:
    assert read(b"data: a\ndata:b\ndata:  c\n\n") == [Event("a\nb\n c")]


def test_an_event_without_data_tells_its_id_or_how_long_to_wait() -> None:
    assert read(b"id: 7\ndata:\n\n") == [Event("", id="7")]
    assert read(retry(1500)) == [Event("", retry=1500)]
    assert read(b"retry: soon\n\n", b"event: x\n\n") == []


def test_comments_and_unknown_fields_are_passed_over() -> None:
    assert read(KEEP_ALIVE, b": x\ndata: a\ncolour: red\n\n") == [Event("a")]


def test_an_id_with_a_null_is_ignored() -> None:
    assert read(b"id: a\0b\ndata: x\n\n") == [Event("x")]


@pytest.mark.parametrize("chunks", [[b"data: " + b"x" * 200], [b"data: x\n" * 60, b"data"], [b"x"] * 200])
def test_an_event_over_the_limit_is_refused(chunks: list[bytes]) -> None:
    with pytest.raises(ValueError, match="more than 100 bytes"):
        read(*chunks, limit=100)


@pytest.mark.parametrize(
    "piece",
    [b"data:x\n", b"data:\n", b":\n", b"x\n", b"\n", b"id:a\n", b"xy", b"data: 0123456789\r\n"],
    ids=repr,
)
@pytest.mark.parametrize("size", [2, 64 * 1024])
def test_what_is_held_weighs_about_what_was_fed(piece: bytes, size: int) -> None:
    # Many small pieces are slow to trace, and a smaller stream shows as much.
    stream = (piece * 50_000)[: 40_000 if size == 2 else 100_000]
    most = 1.3 * len(stream) + 4 * size
    held, transient = weigh(stream, size)
    if transient >= most:
        # Other threads of this process allocate too, which the peak includes.
        held, transient = weigh(stream, size)
    assert held < 1.35 * len(stream)
    assert transient < most


def weigh(stream: bytes, size: int) -> tuple[int, int]:
    """What a reader holds that was fed a stream in pieces of that size, and how much more there was at the peak."""
    reader = EventReader(1_000_000)
    tracemalloc.start()
    try:
        for at in range(0, len(stream), size):
            assert list(reader.feed(stream[at : at + size])) == []
        in_all, most = tracemalloc.get_traced_memory()
        held = sum(
            trace.size for trace in tracemalloc.take_snapshot().traces if trace.traceback[0].filename == sse.__file__
        )
    finally:
        tracemalloc.stop()
    return held, most - in_all


@pytest.mark.parametrize("piece", [b"data:x\n", b"data:x\n\n", b":\n", b"\n", b"xy", b"id:a\r\n"], ids=repr)
@pytest.mark.parametrize("size", [2, 4096])
def test_reading_costs_in_proportion_to_what_is_fed(piece: bytes, size: int) -> None:
    def feed(count: int) -> Callable[[], object]:
        stream = piece * count

        def run() -> None:
            reader = EventReader()
            for at in range(0, len(stream), size):
                for _ in reader.feed(stream[at : at + size]):
                    pass

        return run

    assert grows_linearly(feed, 500 if size == 2 else 2_000)


def test_an_excessive_retry_time_is_ignored() -> None:
    assert read(b"retry: " + b"9" * 900 + b"\ndata: a\n\n") == [Event("a")]


def test_an_event_is_there_as_soon_as_its_last_line_has_ended() -> None:
    assert read(b"data: a\r\r") == [Event("a")]
    assert read(b"data: a\r\n\r", b"\ndata: b\r", b"\n\r\n") == [Event("a"), Event("b")]


def test_an_event_is_one_line_of_data() -> None:
    assert event(b"{}") == b"data: {}\n\n"
    assert event(b"{}", "a-1", "message") == b"id: a-1\nevent: message\ndata: {}\n\n"


@given(st.lists(LINE, min_size=1), st.sampled_from(["\n", "\r", "\r\n"]))
def test_data_of_several_lines_is_one_event(lines: list[str], line_break: str) -> None:
    written = event(line_break.join([*lines, ""]).encode(), "a-1")
    assert read(written) == [Event("\n".join(lines), "message", "a-1")]
