"""All sessions of a server: opened by `initialize`, ended by DELETE or a timeout.

Theory of operation. A process keeps the sessions it serves in memory, and their requests need no store. Where processes
share a store, the store holds the truth and memory is a copy: an unknown session is read from the store, so any process
can serve it, and it outlives any process. A process that changes or ends a session writes that first, and then waits
until every other process has refreshed its copy, or dropped it if the session has ended. A process that may have missed
such a message trusts none of its copies. What a process keeps for a session ends with its copy.
"""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from heapq import nsmallest
from typing import Any, Final

from pegboard.accounts.accounts import Accounts
from pegboard.background_tasks import OwnedTasks
from pegboard.call import Caller
from pegboard.errors import Busy, SessionNotFound, StoreDown
from pegboard.limits import Limits
from pegboard.sessions.session import TOUCH_SECONDS, OnSessionEnd, Session, SessionRecords
from pegboard.stores.cluster import Cluster, SharedStore
from pegboard.stores.memory import MemoryLogs
from pegboard.stores.store import Logs, digest

_log = logging.getLogger("pegboard.sessions")

_CHANGED: Final = "session"
_ID: Final = re.compile("[0-9a-f]{32}", re.ASCII)


class Sessions:
    """The sessions of this process; in memory only, or as one process of a cluster with a store."""

    def __init__(
        self,
        limits: Limits,
        clock: Callable[[], float] = time.monotonic,
        logs: Logs | None = None,
        on_end: OnSessionEnd | None = None,
        accounts: Accounts | None = None,
    ) -> None:
        self._limits = limits
        self._idle_seconds = limits.session_seconds
        self._accounts = Accounts(limits) if accounts is None else accounts
        self._clock = clock
        self._logs = MemoryLogs(limits, clock) if logs is None else logs
        self._on_end = on_end
        self._open: dict[str, Session] = {}
        self._under_way = OwnedTasks()
        # The rest is for clusters.
        self._cluster: Cluster | None = None
        self._records: SessionRecords | None = None
        self._by_digest: dict[str, Session] = {}
        self._loading: dict[str, asyncio.Task[Session | None]] = {}
        self._changed: set[str] = set()

    def __len__(self) -> int:
        return len(self._open)

    def __iter__(self) -> Iterator[Session]:
        """The sessions of this process."""
        return iter(tuple(self._open.values()))

    def idle_seconds(self, session: Session) -> float:
        """How long ago its client sent something."""
        return self._clock() - session.touched

    def share(self, shared: SharedStore, wall: Callable[[], float] = time.time) -> None:
        """Keep sessions in a store from now on, for all processes; `wall` is the common clock."""
        store, cluster = shared.store, shared.cluster
        self._logs, self._cluster = store.logs, cluster
        self._records = SessionRecords(store.records, store.logs, self._limits, wall)
        cluster.on_message(_CHANGED, self._on_changed)
        cluster.on_lapse(self.invalidate_all)

    def open(self, make_caller: Callable[[str], Caller]) -> Session:
        """A new session; if there are too many, the longest idle one of the principal with the most is dropped."""
        now = self._clock()
        # "globally unique and cryptographically secure" (2025-11-25, Session Management)
        caller = make_caller(secrets.token_hex(16))
        account = self._accounts.of(caller)
        if account is None:
            return self._take_in(caller, now)
        if not account.take("sessions") and not (self._drop_idle_of(account.key) and account.take("sessions")):
            raise account.exceeded("sessions")
        try:
            session = self._take_in(caller, now)
        except Busy:
            account.give_back("sessions")
            raise
        session.counted = account.key
        return session

    def _drop_idle_of(self, account: str) -> bool:
        """Drop the longest idle session of a caller; False if all of them are in use."""
        idle = [session for session in self._open.values() if session.counted == account and session.idle]
        if not idle:
            return False
        self._drop(min(idle, key=lambda session: session.touched), self._clock())
        return True

    async def enter(self, session: Session) -> None:
        """Store a new session, before its client learns its id."""
        if self._records is None:
            return
        try:
            session.version = await self._records.write(session.caller, (), 0) or 0
        except StoreDown:
            self._forget(session)
            raise

    def find(self, session_id: str, principal: str) -> Session | None:
        """The session with that id if it is current and belongs to this principal; resets its idle time. None: `fetch`
        it."""
        session = self._open.get(session_id)
        now = self._clock()
        if session is not None and now - session.touched > self._idle_seconds and session.idle:
            self.close(session)
            session = None
        if session is None or session.stale:
            if self._records is None:
                raise _not_found(self._records)
            return None
        if session.caller.principal.id != principal:
            raise _not_found(self._records)
        session.touched = now
        if self._records is not None and now - session.saved > TOUCH_SECONDS:
            self._touch(session, now)
        return session

    async def load(self, session_id: str, principal: str) -> Session:
        """The same for one that is missing or stale here."""
        session = await self._load(session_id) if _ID.fullmatch(session_id) else None
        if session is None or session.caller.principal.id != principal:
            raise _not_found(self._records)
        session.touched = now = self._clock()
        if now - session.saved > TOUCH_SECONDS:
            self._touch(session, now)
        return session

    def has(self, session_id: str, principal: str) -> bool:
        """Whether that session is here and belongs to this principal; does not count as use."""
        session = self._open.get(session_id)
        return session is not None and session.caller.principal.id == principal

    def end_all_of(self, principal: str) -> None:
        """End the sessions of a principal that are here: their calls and streams too."""
        for session in [
            open_session for open_session in self._open.values() if open_session.caller.principal.id == principal
        ]:
            self._spawn(self.end(session))

    def find_by_digest(self, hidden: str) -> Session | None:
        """A local session by its digest."""
        return self._by_digest.get(hidden)

    async def change(self, session: Session, change: Callable[[Session], None]) -> None:
        """Change the shared record of a session; the change may be applied twice."""
        change(session)
        if self._records is None:
            return
        while True:
            version = await self._records.write(session.caller, session.subscribed, session.version)
            if version is not None:
                break
            known = await self._records.read(session.caller.session)
            if known is None:
                self.close(session)
                raise _not_found(self._records)
            session.learn(known)
            change(session)
        session.version = version
        await self._refresh_copies(session)

    async def end(self, session: Session) -> None:
        """End a session, its streams and its calls, in all processes."""
        if self._records is not None:
            await self._records.delete(session.caller.session)
        self.close(session)
        await self._refresh_copies(session)

    def close(self, session: Session) -> None:
        """End a session, its streams and its calls, in this process; with a store, other processes may still serve it."""
        self._forget(session)
        if session.streamed and self._records is None:
            self._spawn(self._logs.drop(session.caller.session))
        session.end()

    def reap(self) -> int:
        """Drop expired sessions; returns how many."""
        now = self._clock()
        oldest = now - self._limits.session_seconds
        over: list[Session] = []
        for session in self._open.values():
            if not session.idle:
                if now - session.saved > self._limits.session_seconds / 3:
                    # It receives nothing, but still sends.
                    self._touch(session, now)
            elif session.touched < oldest:
                over.append(session)
        for session in over:
            self.close(session)
        return len(over)

    def _take_in(self, caller: Caller, now: float) -> Session:
        if len(self._open) >= self._limits.sessions:
            self._make_room(now)
        session = self._open[caller.session] = Session(caller, now, self._logs, self._cluster, self._on_end)
        if self._cluster is not None:
            self._by_digest[digest(caller.session)] = session
        return session

    def _make_room(self, now: float) -> None:
        if self.reap():
            return
        idle = [session for session in self._open.values() if session.idle]
        if not idle:
            raise Busy(f"All {self._limits.sessions} sessions are in use; try again later", retry_after=30)
        # Of the principal with the most, so that one cannot displace the sessions of others. Several at a time: finding
        # the oldest looks at all of them.
        counts = Counter(session.caller.principal.id for session in self._open.values())

        def order(session: Session) -> tuple[int, float]:
            return -counts[session.caller.principal.id], session.touched

        for session in nsmallest(max(1, self._limits.sessions // 100), idle, key=order):
            self._drop(session, now)

    def _drop(self, session: Session, now: float) -> None:
        self.close(session)
        if self._records is not None:
            # Otherwise clients that open sessions and leave could fill a store.
            self._spawn(self._records.retire(session.caller.session, now - session.touched))

    def _forget(self, session: Session) -> None:
        if self._open.pop(session.caller.session, None) is not None and self._cluster is not None:
            self._by_digest.pop(digest(session.caller.session), None)
        if session.counted:
            account, session.counted = self._accounts.find(session.counted), ""
            if account is not None:
                account.give_back("sessions")
        for listener in session.listeners:
            listener.end()

    # -- shared sessions -----------------------------------------------------------------------------------------------

    async def _load(self, session_id: str) -> Session | None:
        """Read a session from the store; concurrent requests share one read."""
        hidden = digest(session_id)
        reading = self._loading.get(hidden)
        if reading is None:
            reading = self._loading[hidden] = asyncio.get_running_loop().create_task(self._read(session_id, hidden))
            reading.add_done_callback(lambda _: self._loading.pop(hidden))
        return await asyncio.shield(reading)

    async def _read(self, session_id: str, hidden: str) -> Session | None:
        assert self._records is not None  # noqa: S101 — nothing is loaded where nothing is shared
        while True:
            self._changed.discard(hidden)
            known = await self._records.read(session_id)
            # Otherwise it may be older than a change that was reported in the meantime.
            if hidden not in self._changed:
                break
        session = self._open.get(session_id)
        if known is None:
            if session is not None:
                self.close(session)
            return None
        if session is None:
            session = self._take_in(known.caller, self._clock())
        session.learn(known)
        session.saved = self._clock() - known.idle
        return session

    async def _refresh_copies(self, session: Session) -> None:
        """Make every other process read its copy again."""
        if self._cluster is not None:
            await self._cluster.ask_others(_CHANGED, digest(session.caller.session).encode())

    def _on_changed(self, message: bytes) -> Awaitable[bytes] | None:
        hidden = message.decode()
        if hidden in self._loading:
            self._changed.add(hidden)
        session = self._by_digest.get(hidden)
        if session is None:
            return None
        session.stale = True
        return self._renew(session)

    async def _renew(self, session: Session) -> bytes:
        await self._load(session.caller.session)
        return b""

    def invalidate_all(self) -> None:
        """Reload every session before its next use: local copies may be stale."""
        for session in list(self._open.values()):
            session.stale = True
            if not session.idle:
                self._spawn(self._load(session.caller.session))

    def _touch(self, session: Session, now: float) -> None:
        session.saved = now
        self._spawn(self._write_use(session))

    async def _write_use(self, session: Session) -> None:
        assert self._records is not None  # noqa: S101 — as above
        version = await self._records.write(session.caller, session.subscribed, session.version)
        if version is None:
            # Another process has written it, at least to record its use.
            session.stale = True
        else:
            session.version = version
        if session.streamed:
            await self._records.keep_logs(session.caller.session)

    def _spawn(self, work: Coroutine[Any, Any, object]) -> None:
        async def see_to_it() -> None:
            try:
                await work
            except StoreDown as problem:
                _log.warning("a session could not be stored: %s", problem)

        self._under_way.start(see_to_it())


def _not_found(records: SessionRecords | None) -> SessionNotFound:
    alone = "" if records is not None else "; replicas of a server need a common store"
    return SessionNotFound(f"Session not found or expired: start a new one with initialize{alone}")
