"""Server-sent events: the same events however the bytes are cut, a bound on what is held, what is written is read back."""

from __future__ import annotations

from contextlib import suppress

from pegboard.protocol.framing.sse import Event, EventReader, event

SMALL = 256


def check(data: bytes) -> None:
    whole = read([data])
    assert read([data[at : at + 1] for at in range(len(data))]) == whole
    assert read([data[: len(data) // 3], data[len(data) // 3 :]]) == whole
    reader = EventReader(SMALL)
    with suppress(ValueError):
        for at in range(0, len(data), 7):
            for found in reader.feed(data[at : at + 7]):
                assert len(found.data) <= SMALL + 7
    for one in whole:
        # Any line of data, as encoded JSON is one.
        text = one.data.replace("\n", " ").replace("\r", " ")
        assert read([event(text.encode(), "1", "message")]) == [Event(text, "message", "1")]


def read(parts: list[bytes]) -> list[Event]:
    reader = EventReader()
    return [found for part in parts for found in reader.feed(part)]
