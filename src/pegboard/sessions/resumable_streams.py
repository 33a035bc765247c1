"""The streams of a session: the log of a call's events, and the connection that sends them.

Theory of operation. An event is in the log before any byte of it is sent, so a client never holds an id that the log
does not have. A connection is a cursor: a client that returns with the id of the last event it saw reads the log from
there and follows it as it grows. Replay and live events are one loop, so no event is lost or sent twice between them. A
stream is sent on one connection: the newest.

Where several processes share the logs, a stream may be read in one and written in another. A reader at the end of an
unfinished log whose writer is dead appends the missing response. The number of an entry can be taken only once: of
several processes that try, one succeeds, and a writer that was only slow finds its number taken and ends its call.
"""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, Protocol, TypeAlias

import msgspec
from msgspec import Struct

from pegboard.call import RequestId
from pegboard.errors import InternalFailure
from pegboard.protocol import jsonrpc
from pegboard.protocol.framing import sse
from pegboard.stores.cluster import Cluster
from pegboard.stores.store import LogEntry, LogName, LogPage, Logs, digest, wait_for_hint

_log = logging.getLogger("pegboard.sessions")

_PAGE: Final = 100
_LATEST: Final = 8
"""How many streams of a session are remembered for people to look at."""
_POLL_SECONDS: Final = 5.0
_WRITER_POLL_SECONDS: Final = 0.5
_EVENT_ID: Final = re.compile(r"([0-9a-f]{8})-([0-9]{1,15})", re.ASCII)


class Cursor(Struct, frozen=True):
    """A position in a stream: after the event with that number."""

    stream: str
    after: int


def event_id(stream: str, seq: int) -> str:
    return f"{stream}-{seq}"


def read_event_id(text: str) -> Cursor | None:
    """The position that an event id names; None if it is not one of ours."""
    found = _EVENT_ID.fullmatch(text)
    return None if found is None else Cursor(found[1], int(found[2]))


STREAM_HANDOFF: Final = "part"
"""Tells another process to release the connection of a stream."""


class StreamHandoff(Struct, array_like=True):
    session: str
    stream: str
    retry_ms: int | None


Write: TypeAlias = Callable[[bytes, str], Awaitable[None]]
"""Sends an event with its id; waits while its reader is behind."""


class StreamConnection(Protocol):
    """The connection that a stream is sent on."""

    def detach_connection(self, retry_ms: int | None) -> None:
        """End the connection, not the stream: another connection carries it, or the client reconnects later."""


class SessionStream:
    """One stream, written by its call; one append at a time.

    An interrupted writer does not know whether its entry is in the log, so it checks before the next one.
    """

    __slots__ = ("_last", "_log", "_logs", "_unsure", "id")

    def __init__(self, logs: Logs, session: str, stream: str) -> None:
        self._logs = logs
        self._log: LogName = session, stream
        self._last = 0
        self._unsure = False
        self.id = stream

    @property
    def last_event(self) -> str:
        """The id of the last event that was written; empty before the first."""
        return event_id(self.id, self._last) if self._last else ""

    async def append(self, data: bytes, *, keep: bool = False, end: bool = False) -> int:
        """Append the next event; returns its number, or 0 if the log has ended."""
        looked, self._unsure = self._unsure, True
        if looked:
            await self._look()
        stored = await self._logs.append(self._log, self._last + 1, data, keep=keep, end=end)
        if looked and not stored:
            # The interrupted append has succeeded after all.
            await self._look()
            stored = await self._logs.append(self._log, self._last + 1, data, keep=keep, end=end)
        self._unsure = False
        if not stored:
            return 0
        self._last += 1
        return self._last

    async def read(self, after: int) -> tuple[LogEntry, ...]:
        """The entries after that number."""
        page = await self._logs.read(self._log, after, _PAGE)
        return () if page is None else page.entries

    async def _look(self) -> None:
        page = await self._logs.read(self._log, self._last, 1)
        if page is not None:
            self._last = page.last

    async def release(self, seq: int) -> None:
        """A kept event may be trimmed."""
        await self._logs.release(self._log, seq)


class StreamTally(Struct):
    """What happened to the streams of a session in this process.

    opened: streams that its calls began.
    resumed: how often a client continued one after a lost connection.
    refused: how often that was not possible, because the events were no longer kept.
    lost: events that were trimmed before a client had read them.
    """

    opened: int = 0
    resumed: int = 0
    refused: int = 0
    lost: int = 0


class SessionStreams(Struct, eq=False):
    """The streams of one session that this process sends; with shared logs, as one process of a cluster."""

    logs: Logs
    session: str
    cluster: Cluster | None = None
    _holders: dict[str, StreamConnection] = {}
    tally: StreamTally = msgspec.field(default_factory=StreamTally)
    latest: deque[SessionStream] = msgspec.field(default_factory=partial(deque, maxlen=_LATEST))

    def is_connected(self, stream: str) -> bool:
        """Whether a stream is sent on a connection here."""
        return stream in self._holders

    @property
    def held(self) -> bool:
        """Whether any of them has a connection here."""
        return bool(self._holders)

    async def open(self, holder: StreamConnection, request: RequestId = "") -> SessionStream | None:
        """A new stream on the connection of this call; None if there are too many."""
        stream = SessionStream(self.logs, self.session, secrets.token_hex(4))
        about = _encode(_About("" if self.cluster is None else self.cluster.me, request))
        if not await self.logs.open((self.session, stream.id), about):
            return None
        self._holders[stream.id] = holder
        self.latest.append(stream)
        self.tally.opened += 1
        return stream

    async def hand_off(self, stream: str, retry_ms: int) -> None:
        """End the connection of a stream in any process; its client reconnects."""
        await self._detach_everywhere(stream, retry_ms)

    async def take_over(self, last: str) -> None:
        """End the connection of the stream of that event in any process, before another one sends it."""
        cursor = read_event_id(last)
        if cursor is not None:
            await self._detach_everywhere(cursor.stream, None)

    async def _detach_everywhere(self, stream: str, retry_ms: int | None) -> None:
        if not self.detach_connection(stream, retry_ms) and self.cluster is not None:
            handoff = StreamHandoff(digest(self.session), stream, retry_ms)
            await self.cluster.ask_others(STREAM_HANDOFF, _encode(handoff))

    def detach_connection(self, stream: str, retry_ms: int | None) -> bool:
        """End the connection of a stream if it is here; returns whether it was."""
        holder = self._holders.pop(stream, None)
        if holder is None:
            return False
        holder.detach_connection(retry_ms)
        return True

    def release(self, stream: str, holder: StreamConnection) -> None:
        """A connection has ended."""
        if self._holders.get(stream) is holder:
            del self._holders[stream]

    async def holds(self, last: str) -> bool:
        """Whether a stream can be resumed after that id: it is one of this session, and is still kept."""
        cursor = read_event_id(last)
        page = None if cursor is None else await self.logs.read((self.session, cursor.stream), cursor.after, 1)
        if page is not None and cursor is not None and cursor.after <= page.last:
            return True
        self.tally.refused += 1
        _log.info("a client resumed after event %r, which is unknown or no longer kept", last[:80])
        return False

    async def follow(self, last: str, holder: StreamConnection, write: Write) -> None:
        """Send the events after that id, and new ones, until the stream ends.

        Its older connection is closed. For an unknown or expired stream, nothing is sent.
        """
        cursor = read_event_id(last)
        if cursor is None:
            _log.info("a client resumed with an unknown event id: %r", last[:80])
            return
        log, after = (self.session, cursor.stream), cursor.after
        wake = asyncio.Event()
        end_watch = self.logs.watch(log, wake.set)
        try:
            page = await self.logs.read(log, after, _PAGE)
            if page is None or after > page.last:
                _log.info("a client resumed after event %s, which is no longer kept", last)
                return
            self.detach_connection(cursor.stream, None)
            self._holders[cursor.stream] = holder
            self.tally.resumed += 1
            while page is not None:
                after = await _send(page, cursor.stream, after, write, self.tally)
                if page.ended and not page.more:
                    return
                if not page.more and not await self._end_for_dead_writer(log, page):
                    await wait_for_hint(wake, self._poll_seconds(page))
                wake.clear()
                page = await self.logs.read(log, after, _PAGE)
        finally:
            end_watch()
            self.release(cursor.stream, holder)

    def _poll_seconds(self, page: LogPage) -> float:
        if self.cluster is None or _decode_about(page.about).writer == self.cluster.me:
            return _POLL_SECONDS
        return _WRITER_POLL_SECONDS

    async def _end_for_dead_writer(self, log: LogName, page: LogPage) -> bool:
        """Append the response for a writer that has died; returns whether that was tried."""
        if self.cluster is None:
            return False
        about = _decode_about(page.about)
        if await self.cluster.is_alive(about.writer):
            return False
        lost = InternalFailure("The server process that ran this call ended before it could respond")
        ended = await self.logs.append(log, page.last + 1, jsonrpc.refusal(about.request, lost), end=True)
        if ended:
            _log.warning("the process that wrote stream %s is gone: its call was ended with an error", log[1])
        return True


class _About(Struct, array_like=True):
    """The header of a stream: the process that writes it, and the request that it answers."""

    writer: str
    request: RequestId


_encode = msgspec.msgpack.Encoder().encode
_decode_about = msgspec.msgpack.Decoder(_About).decode


async def _send(page: LogPage, stream: str, after: int, write: Write, tally: StreamTally) -> int:
    """Write the entries of a page, and report gaps between them; returns the new position."""
    for entry in page.entries:
        if entry.seq > after + 1:
            tally.lost += entry.seq - after - 1
            await write(_lost(stream, after, entry.seq - 1), event_id(stream, entry.seq - 1))
        after = entry.seq
        if entry.data:
            name = event_id(stream, after)
            await write(sse.event(entry.data, name), name)
    if not page.more and page.last > after:
        tally.lost += page.last - after
        await write(_lost(stream, after, page.last), event_id(stream, page.last))
        after = page.last
    return after


def _lost(stream: str, after: int, last: int) -> bytes:
    """The message in place of trimmed events; sent whatever log level a client has set."""
    count = last - after
    text = f"{count} message{'s' if count > 1 else ''} of this stream could not be kept until you resumed"
    params = {"level": "warning", "logger": "pegboard", "data": text}
    return sse.event(jsonrpc.notification("notifications/message", params), event_id(stream, last))
