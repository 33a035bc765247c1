"""Server-sent events as bytes: encoding and parsing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from msgspec import Struct

KEEP_ALIVE: Final = b": keep-alive\n\n"


def event(data: bytes, event_id: str | None = None, name: str | None = None) -> bytes:
    """One event; data of several lines (never encoded JSON) takes a field for each, so that it cannot end early."""
    if data.find(b"\n") >= 0 or data.find(b"\r") >= 0:
        data = b"\ndata: ".join(data.splitlines())
    if event_id is None and name is None:
        return b"data: %b\n\n" % data
    head = b"" if event_id is None else b"id: %b\n" % event_id.encode()
    if name is not None:
        head += b"event: %b\n" % name.encode()
    return b"%bdata: %b\n\n" % (head, data)


def retry(milliseconds: int) -> bytes:
    """How long a client should wait before it reconnects."""
    return b"retry: %d\n\n" % milliseconds


def prime(event_id: str, milliseconds: int) -> bytes:
    """An event without data: its id lets the client resume if the connection breaks before the first real event."""
    return b"id: %b\nretry: %d\ndata: \n\n" % (event_id.encode(), milliseconds)


class Event(Struct, frozen=True):
    """An event as read from a stream."""

    data: str
    name: str = "message"
    id: str | None = None
    retry: int | None = None


class EventReader:
    """Reads events from chunks of bytes of any size; an event longer than the limit is rejected.

    The data of an event is kept in one piece: a list of its lines would take many times their size.
    """

    __slots__ = ("_after_cr", "_data", "_has_data", "_id", "_limit", "_name", "_retry", "_unfinished")

    def __init__(self, limit: int = 16 * 1024 * 1024) -> None:
        self._limit = limit
        self._unfinished = bytearray()
        self._after_cr = False
        self._begin()

    def feed(self, chunk: bytes) -> Iterator[Event]:
        """The events that the chunk completes."""
        if self._after_cr and chunk:
            # The second half of a CRLF whose first half already ended a line.
            self._after_cr = False
            chunk = chunk.removeprefix(b"\n")
        if b"\r" in chunk:
            self._after_cr = chunk.endswith(b"\r")
            chunk = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        start = 0
        while (end := chunk.find(b"\n", start)) >= 0:
            line = chunk[start:end]
            start = end + 1
            if self._unfinished:
                self._unfinished += line
                line = bytes(self._unfinished)
                self._unfinished = bytearray()
            if line:
                self._take(line)
            else:
                made = self._finish()
                if made is not None:
                    yield made
        self._unfinished += chunk[start:] if start else chunk
        self._check()

    def _begin(self) -> None:
        self._data = bytearray()
        self._has_data = False
        self._name = "message"
        self._id: str | None = None
        self._retry: int | None = None

    def _take(self, line: bytes) -> None:
        field, _, raw = line.partition(b":")
        value = raw.removeprefix(b" ")
        match field:
            case b"data":
                if self._has_data:
                    self._data += b"\n"
                self._has_data = True
                self._data += value
                self._check()
            case b"event":
                self._name = value.decode("utf-8", "replace")
            case b"id" if b"\0" not in value:
                self._id = value.decode("utf-8", "replace")
            case b"retry" if value.isdigit() and len(value) < 10:
                self._retry = int(value)
            case _:
                pass

    def _finish(self) -> Event | None:
        if not self._has_data and self._retry is None and self._id is None:
            self._name = "message"
            return None
        made = Event(self._data.decode("utf-8", "replace"), self._name, self._id, self._retry)
        self._begin()
        return made

    def _check(self) -> None:
        if len(self._unfinished) + len(self._data) > self._limit:
            raise ValueError(f"an event has more than {self._limit} bytes")
