"""The streams of one session: each the log of a call that spoke before its answer, and the connection it is sent on.

Theory of operation. An event is in the log before any byte of it is sent, so a client never holds an id that the log does
not have. A connection is a cursor: whoever comes back with the id of the last event it has seen reads the log from there
and goes on reading as it grows. Replay and live are one loop, so there is no moment between them in which something could
be lost or sent twice. A stream is sent on one connection: the newest.
"""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
from collections.abc import Awaitable, Callable
from typing import Final, Protocol, TypeAlias

from msgspec import Struct

from pegboard.protocol import jsonrpc, sse
from pegboard.stores.store import Entry, LogName, Logs, Page

_log = logging.getLogger("pegboard.sessions")

_PAGE: Final = 100
_LOOK_AGAIN_SECONDS: Final = 5.0
_EVENT_ID: Final = re.compile(r"([0-9a-f]{8})-([0-9]{1,15})", re.ASCII)


class Cursor(Struct, frozen=True):
    """A place in a stream: after the event of that number."""

    stream: str
    after: int


def event_id(stream: str, seq: int) -> str:
    return f"{stream}-{seq}"


def read_event_id(text: str) -> Cursor | None:
    """The place that an event id names; None where it is no id of ours."""
    found = _EVENT_ID.fullmatch(text)
    return None if found is None else Cursor(found[1], int(found[2]))


Write: TypeAlias = Callable[[bytes, str], Awaitable[None]]
"""Sends an event, whose id is told beside; waits while its reader is behind."""


class Holder(Protocol):
    """The connection that a stream is sent on."""

    def let_go(self, retry_ms: int | None) -> None:
        """End the connection, not the stream: another one carries it, or the client is to come back after a while."""


class Stream:
    """One stream as its call writes it; one append at a time.

    Who writes may be interrupted, and then does not know whether its entry is in the log: it looks before the next.
    """

    __slots__ = ("_last", "_log", "_logs", "_unsure", "id")

    def __init__(self, logs: Logs, session: str, stream: str) -> None:
        self._logs = logs
        self._log: LogName = session, stream
        self._last = 0
        self._unsure = False
        self.id = stream

    async def append(self, data: bytes, *, keep: bool = False, end: bool = False) -> int:
        """Put the next event into the log, its number; 0 where the log is over."""
        looked, self._unsure = self._unsure, True
        if looked:
            await self._look()
        stored = await self._logs.append(self._log, self._last + 1, data, keep=keep, end=end)
        if looked and not stored:
            # What was interrupted has come in only now.
            await self._look()
            stored = await self._logs.append(self._log, self._last + 1, data, keep=keep, end=end)
        self._unsure = False
        if not stored:
            return 0
        self._last += 1
        return self._last

    async def read(self, after: int) -> tuple[Entry, ...]:
        """What is in the log behind that number."""
        page = await self._logs.read(self._log, after, _PAGE)
        return () if page is None else page.entries

    async def _look(self) -> None:
        page = await self._logs.read(self._log, self._last, 1)
        if page is not None:
            self._last = page.last

    async def release(self, seq: int) -> None:
        """An event that was to be kept may go."""
        await self._logs.release(self._log, seq)


class Streams:
    """The streams of one session that this process sends."""

    __slots__ = ("_holders", "_logs", "_session")

    def __init__(self, logs: Logs, session: str) -> None:
        self._logs = logs
        self._session = session
        self._holders: dict[str, Holder] = {}

    async def open(self, holder: Holder, about: bytes = b"") -> Stream | None:
        """A new stream, sent on the connection of its call; None where the session has too many."""
        stream = Stream(self._logs, self._session, secrets.token_hex(4))
        if not await self._logs.open((self._session, stream.id), about):
            return None
        self._holders[stream.id] = holder
        return stream

    def part(self, stream: str, retry_ms: int) -> None:
        """End the connection of a stream, whichever it is; its client is to come back."""
        holder = self._holders.pop(stream, None)
        if holder is not None:
            holder.let_go(retry_ms)

    def release(self, stream: str, holder: Holder) -> None:
        """A connection is over."""
        if self._holders.get(stream) is holder:
            del self._holders[stream]

    async def follow(self, last: str, holder: Holder, write: Write) -> None:
        """Send what is after the event of that id, and what comes, until the stream has ended.

        Its older connection is closed. Of a stream that we do not have, or have no more, nothing is sent.
        """
        cursor = read_event_id(last)
        if cursor is None:
            _log.info("a client came back with an event id that is none of ours: %r", last[:80])
            return
        log, after = (self._session, cursor.stream), cursor.after
        wake = asyncio.Event()
        end_watch = self._logs.watch(log, wake.set)
        try:
            page = await self._logs.read(log, after, _PAGE)
            if page is None or after > page.last:
                _log.info("a client came back for what follows event %s, which is not kept", last)
                return
            older, self._holders[cursor.stream] = self._holders.get(cursor.stream), holder
            if older is not None:
                older.let_go(None)
            while page is not None:
                after = await _send(page, cursor.stream, after, write)
                if page.ended and not page.more:
                    return
                if not page.more:
                    await _wait(wake)
                wake.clear()
                page = await self._logs.read(log, after, _PAGE)
        finally:
            end_watch()
            self.release(cursor.stream, holder)


async def _send(page: Page, stream: str, after: int, write: Write) -> int:
    """Write the entries of a page, and say what is missing between them; the new place."""
    for entry in page.entries:
        if entry.seq > after + 1:
            await write(_lost(stream, after, entry.seq - 1), event_id(stream, entry.seq - 1))
        after = entry.seq
        if entry.data:
            name = event_id(stream, after)
            await write(sse.event(entry.data, name), name)
    if not page.more and page.last > after:
        await write(_lost(stream, after, page.last), event_id(stream, page.last))
        after = page.last
    return after


def _lost(stream: str, after: int, last: int) -> bytes:
    """What stands in for events that were trimmed; it is said whatever level of messages a client wants."""
    count = last - after
    text = f"{count} message{'s' if count > 1 else ''} of this stream came before you did, and could not be kept"
    params = {"level": "warning", "logger": "pegboard", "data": text}
    return sse.event(jsonrpc.notification("notifications/message", params), event_id(stream, last))


async def _wait(wake: asyncio.Event) -> None:
    # A hint may be lost.
    try:
        async with asyncio.timeout(_LOOK_AGAIN_SECONDS):
            await wake.wait()
    except TimeoutError:
        pass
