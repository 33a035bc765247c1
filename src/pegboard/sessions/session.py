"""Sessions of legacy clients: opened by `initialize`, kept while used, ended by DELETE or by time."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable
from typing import Any

from pegboard.call import Caller, RequestId
from pegboard.errors import Busy, SessionNotFound
from pegboard.limits import Limits


class Session:
    """One client's session: who it is, and its calls that are under way."""

    __slots__ = ("caller", "calls", "header", "touched")

    def __init__(self, caller: Caller, now: float) -> None:
        self.caller = caller
        self.touched = now
        self.header = (b"mcp-session-id", caller.session.encode())
        # None: let in, but not begun.
        self.calls: dict[RequestId, asyncio.Task[Any] | None] = {}


class Sessions:
    """The sessions of one process, in memory."""

    def __init__(self, limits: Limits, clock: Callable[[], float] = time.monotonic) -> None:
        self._limits = limits
        self._clock = clock
        self._open: dict[str, Session] = {}

    def __len__(self) -> int:
        return len(self._open)

    def open(self, make_caller: Callable[[str], Caller]) -> Session:
        """A new session; the longest idle one makes room when there are too many."""
        now = self._clock()
        if len(self._open) >= self._limits.sessions:
            self._make_room(now)
        # "globally unique and cryptographically secure" (2025-11-25, Session Management)
        session_id = secrets.token_hex(16)
        session = self._open[session_id] = Session(make_caller(session_id), now)
        return session

    def find(self, session_id: str, principal: str) -> Session:
        """The session of that id if it lives and is this principal's; its time starts anew."""
        session = self._open.get(session_id)
        now = self._clock()
        if session is not None and now - session.touched > self._limits.session_seconds and not session.calls:
            self._end(session)
            session = None
        if session is None or session.caller.principal != principal:
            raise SessionNotFound("Session not found or expired: start a new one with initialize")
        session.touched = now
        return session

    def close(self, session: Session) -> None:
        """End a session and cancel its calls."""
        self._end(session)
        for task in list(session.calls.values()):
            if task is not None:
                task.cancel()

    def reap(self) -> int:
        """Drop the sessions whose time is over; how many there were."""
        oldest = self._clock() - self._limits.session_seconds
        over = [session for session in self._open.values() if session.touched < oldest and not session.calls]
        for session in over:
            self._end(session)
        return len(over)

    def _make_room(self, now: float) -> None:
        if self.reap():
            return
        idle = [session for session in self._open.values() if not session.calls]
        if not idle:
            raise Busy(f"All {self._limits.sessions} sessions are at work; try again later", retry_after=30)
        self._end(min(idle, key=lambda session: session.touched))

    def _end(self, session: Session) -> None:
        self._open.pop(session.caller.session, None)
