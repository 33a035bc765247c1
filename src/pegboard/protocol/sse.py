"""Server-sent events as bytes, out and in."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from msgspec import Struct

KEEP_ALIVE: Final = b": keep-alive\n\n"


def event(data: bytes, event_id: str | None = None, name: str | None = None) -> bytes:
    """One event; the data is one line, as encoded JSON always is."""
    if event_id is None and name is None:
        return b"data: %b\n\n" % data
    head = b"" if event_id is None else b"id: %b\n" % event_id.encode()
    if name is not None:
        head += b"event: %b\n" % name.encode()
    return b"%bdata: %b\n\n" % (head, data)


def retry(milliseconds: int) -> bytes:
    """How long a client shall wait before it comes back."""
    return b"retry: %d\n\n" % milliseconds


def prime(event_id: str, milliseconds: int) -> bytes:
    """An event without data: the id to come back with, should the connection break before the first real one."""
    return b"id: %b\nretry: %d\ndata: \n\n" % (event_id.encode(), milliseconds)


class Event(Struct, frozen=True):
    """An event as read from a stream."""

    data: str
    name: str = "message"
    id: str | None = None
    retry: int | None = None


class EventReader:
    """Reads events from bytes in whatever pieces they come; a line longer than the limit is refused."""

    def __init__(self, limit: int = 16 * 1024 * 1024) -> None:
        self._limit = limit
        self._rest = b""
        self._parts: list[bytes] = []
        self._size = 0
        self._lines: list[bytes] = []
        self._held = 0

    def feed(self, chunk: bytes) -> Iterator[Event]:
        """The events that the chunk completes."""
        if b"\n" not in chunk and b"\r" not in chunk and not self._rest.endswith(b"\r"):
            # A long line comes in many pieces: joining them one by one would take time with the square of its length.
            self._parts.append(chunk)
            self._size += len(chunk)
            if len(self._rest) + self._size + self._held > self._limit:
                raise ValueError(f"an event of more than {self._limit} bytes")
            return
        # A CR at the very end may be half of a CRLF: wait for what follows.
        text = b"".join((self._rest, *self._parts, chunk))
        self._parts.clear()
        self._size = 0
        held_back = text.endswith(b"\r")
        lines = (text[:-1] if held_back else text).replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        self._rest = lines.pop() + (b"\r" if held_back else b"")
        if len(self._rest) + self._held > self._limit:
            raise ValueError(f"an event of more than {self._limit} bytes")
        for line in lines:
            if line:
                self._lines.append(line)
                self._held += len(line)
                continue
            found, self._lines, self._held = self._lines, [], 0
            made = _event(found)
            if made is not None:
                yield made


def _event(lines: list[bytes]) -> Event | None:
    data: list[str] = []
    name, event_id, wait = "message", None, None
    for line in lines:
        field, _, raw = line.partition(b":")
        value = raw.removeprefix(b" ").decode("utf-8", "replace")
        match field:
            case b"data":
                data.append(value)
            case b"event":
                name = value
            case b"id" if "\0" not in value:
                event_id = value
            case b"retry" if value.isdecimal():
                wait = int(value)
            case _:
                pass
    if not data and wait is None and event_id is None:
        return None
    return Event("\n".join(data), name, event_id, wait)
