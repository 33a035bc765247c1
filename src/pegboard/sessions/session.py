"""Sessions of legacy clients: opened by `initialize`, kept while used, ended by DELETE or by time."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable
from typing import Any, Protocol

from msgspec import structs

from pegboard.call import Caller, RequestId
from pegboard.errors import Busy, InvalidParams, SessionNotFound
from pegboard.limits import Limits
from pegboard.protocol.jsonrpc import Message
from pegboard.protocol.versions import LOG_LEVELS
from pegboard.sessions.asks import Asks
from pegboard.sessions.streams import Streams
from pegboard.stores.memory import MemoryLogs
from pegboard.stores.store import Logs


class Listener(Protocol):
    """A stream by which a session hears of the board's changes: its place in their log, and whether it is passed over."""

    after: int
    idle: bool

    def end(self) -> None: ...


class Session:
    """What one client of the older revisions has said of itself, and what it has under way.

    Most have nothing under way most of the time, so what is seldom needed is made when it is.
    """

    __slots__ = ("_asks", "_logs", "_streams", "_uris", "caller", "calls", "heard", "listeners", "touched")

    def __init__(self, caller: Caller, now: float = 0.0, logs: Logs | None = None) -> None:
        self.caller = caller
        self.touched = now
        # None: let in, but not begun.
        self.calls: dict[RequestId, asyncio.Task[Any] | None] = {}
        # The newest is the one that hears; `heard` is how far they have come when there is none.
        self.listeners: tuple[Listener, ...] = ()
        self.heard: int | None = None
        self._logs = logs
        self._asks: Asks | None = None
        self._uris: set[str] | None = None
        self._streams: Streams | None = None

    @property
    def idle(self) -> bool:
        """Whether its client has nothing under way."""
        return not self.calls and not self.listeners

    def listen(self, listener: Listener) -> None:
        """From now on this one hears of changes; those before stay open."""
        for older in self.listeners[-1:]:
            older.idle = True
        self.listeners += (listener,)

    def end_listening(self, listener: Listener) -> None:
        """One has ended; the one before it goes on where it was."""
        carried = self.listeners[-1:] == (listener,)
        self.listeners = tuple(other for other in self.listeners if other is not listener)
        if carried:
            self.heard = listener.after
            for newest in self.listeners[-1:]:
                newest.after, newest.idle = listener.after, False

    @property
    def header(self) -> tuple[bytes, bytes]:
        """The header that names it."""
        return b"mcp-session-id", self.caller.session.encode()

    @property
    def asks(self) -> Asks:
        """The questions its client has not answered."""
        if self._asks is None:
            self._asks = Asks()
        return self._asks

    @property
    def uris(self) -> set[str]:
        """The resources its client has subscribed to."""
        if self._uris is None:
            self._uris = set()
        return self._uris

    @property
    def streams(self) -> Streams:
        """The streams of its calls."""
        if self._streams is None:
            if self._logs is None:
                raise RuntimeError("a line that all calls share has no streams")
            self._streams = Streams(self._logs, self.caller.session)
        return self._streams

    @property
    def streamed(self) -> bool:
        """Whether any call of it has ever had a stream."""
        return self._streams is not None

    @property
    def asking(self) -> int:
        """How many calls of it wait for an answer of the client."""
        return 0 if self._asks is None else self._asks.calls

    def answer(self, message: Message) -> None:
        """An answer of the client to one of our questions."""
        if self._asks is not None:
            self._asks.take(message)

    def cancel(self, request_id: RequestId | None) -> None:
        """Stop the call of that id, if it runs."""
        task = None if request_id is None else self.calls.get(request_id)
        if task is not None:
            task.cancel()

    def set_level(self, level: object) -> None:
        """From now on the client wants log messages of that level and above."""
        if not isinstance(level, str) or level not in LOG_LEVELS:
            raise InvalidParams(f"params.level must be one of {', '.join(LOG_LEVELS)}")
        self.caller = structs.replace(self.caller, log_level=level)

    def subscribe(self, uri: str, limits: Limits) -> None:
        """From now on the client is told when the resource changes."""
        uris = self.uris
        if uri not in uris and (
            len(uris) >= limits.followed_uris or sum(map(len, uris), len(uri)) > limits.followed_uri_bytes
        ):
            raise InvalidParams(
                f"A client may subscribe to {limits.followed_uris} resources: unsubscribe from some of them first"
            )
        uris.add(uri)

    def unsubscribe(self, uri: str) -> None:
        if self._uris is not None:
            self._uris.discard(uri)


class Sessions:
    """The sessions of one process, in memory."""

    def __init__(self, limits: Limits, clock: Callable[[], float] = time.monotonic, logs: Logs | None = None) -> None:
        self._limits = limits
        self._clock = clock
        self._logs = MemoryLogs(limits, clock) if logs is None else logs
        self._open: dict[str, Session] = {}
        self._ending: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._open)

    def open(self, make_caller: Callable[[str], Caller]) -> Session:
        """A new session; the longest idle one makes room when there are too many."""
        now = self._clock()
        if len(self._open) >= self._limits.sessions:
            self._make_room(now)
        # "globally unique and cryptographically secure" (2025-11-25, Session Management)
        session_id = secrets.token_hex(16)
        session = self._open[session_id] = Session(make_caller(session_id), now, self._logs)
        return session

    def find(self, session_id: str, principal: str) -> Session:
        """The session of that id if it lives and is this principal's; its time starts anew."""
        session = self._open.get(session_id)
        now = self._clock()
        if session is not None and now - session.touched > self._limits.session_seconds and session.idle:
            self._end(session)
            session = None
        if session is None or session.caller.principal != principal:
            raise SessionNotFound("Session not found or expired: start a new one with initialize")
        session.touched = now
        return session

    def close(self, session: Session) -> None:
        """End a session, its streams and its calls."""
        self._end(session)
        for task in list(session.calls.values()):
            if task is not None:
                task.cancel()

    def reap(self) -> int:
        """Drop the sessions whose time is over; how many there were."""
        oldest = self._clock() - self._limits.session_seconds
        over = [session for session in self._open.values() if session.touched < oldest and session.idle]
        for session in over:
            self._end(session)
        return len(over)

    def _make_room(self, now: float) -> None:
        if self.reap():
            return
        idle = [session for session in self._open.values() if session.idle]
        if not idle:
            raise Busy(f"All {self._limits.sessions} sessions are at work; try again later", retry_after=30)
        self._end(min(idle, key=lambda session: session.touched))

    def _end(self, session: Session) -> None:
        self._open.pop(session.caller.session, None)
        for listener in session.listeners:
            listener.end()
        if session.streamed:
            task = asyncio.get_running_loop().create_task(self._logs.drop(session.caller.session))
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)
