"""One session of a legacy client: what it declared, its calls in this process, and its record in a shared store."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final, Protocol, TypeAlias

import msgspec
from msgspec import Raw, Struct, field, structs

from pegboard.auth.principal import ANONYMOUS, Principal
from pegboard.call import Caller, Json, RequestId
from pegboard.errors import InvalidParams
from pegboard.limits import Limits
from pegboard.protocol.jsonrpc import Message
from pegboard.protocol.revisions import LOG_LEVELS
from pegboard.sessions.open_questions import OpenQuestions
from pegboard.sessions.resumable_streams import SessionStreams
from pegboard.stores.cluster import Cluster
from pegboard.stores.store import Logs, Records

OnSessionEnd: TypeAlias = Callable[[Caller, float], object]
"""Is called with the client, and how many seconds its session lasted in this process."""
"""Releases what was kept for the session of a caller; may be called more than once."""

TOUCH_SECONDS: Final = 60.0
"""The shortest interval between two records of a session's use."""


class SessionState(Struct, frozen=True):
    """The shared record of a session.

    `idle` is the time since its last recorded use, in seconds; `version` counts its writes.
    """

    caller: Caller
    uris: tuple[str, ...]
    idle: float
    version: int


class _StoredSession(
    Struct, rename={"principal": "p", "revision": "v", "who": "c", "level": "l", "uris": "u", "used": "t"}
):
    principal: str
    revision: str
    who: Raw
    level: str | None
    uris: tuple[str, ...]
    used: float


class _StoredClient(Struct, array_like=True):
    client: Mapping[str, Json]
    capabilities: Mapping[str, Json]


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_StoredSession).decode


@lru_cache(maxsize=256)
def _read_client(raw: bytes) -> _StoredClient:
    # Most sessions are of the same few programs, and share their descriptions.
    return msgspec.msgpack.decode(raw, type=_StoredClient)


class SessionRecords:
    """Writes and reads session records; each is kept as long as a session lives after its last use."""

    def __init__(self, records: Records, logs: Logs, limits: Limits, clock: Callable[[], float] = time.time) -> None:
        self._records = records
        self._logs = logs
        # Uses are recorded now and then only, so the record has to live a little longer.
        self._seconds = limits.session_seconds + TOUCH_SECONDS
        self._clock = clock

    async def read(self, session_id: str) -> SessionState | None:
        """The session with that id, if there is one."""
        found = await self._records.get(_key(session_id))
        if found is None:
            return None
        written = _decode(found.value)
        who = _read_client(bytes(written.who))
        caller = Caller(
            version=written.revision,
            transport="http",
            principal=Principal(written.principal) if written.principal else ANONYMOUS,
            account=written.principal,
            session=session_id,
            client=who.client,
            capabilities=who.capabilities,
            log_level=written.level,
        )
        return SessionState(caller, written.uris, max(0.0, self._clock() - written.used), found.version)

    async def write(self, caller: Caller, uris: tuple[str, ...], version: int) -> int | None:
        """Replace that version of a record; returns the new version, or None if it is not current."""
        written = _StoredSession(
            principal=caller.principal.id,
            revision=caller.version,
            who=Raw(_encode(_StoredClient(caller.client, caller.capabilities))),
            level=caller.log_level,
            uris=uris,
            used=self._clock(),
        )
        return await self._records.put(_key(caller.session), _encode(written), ttl=self._seconds, if_version=version)

    async def keep_logs(self, session_id: str) -> None:
        """Extend the life of the session and of its streams."""
        await self._logs.touch(session_id)

    async def delete(self, session_id: str) -> None:
        """Delete a session and its streams."""
        await self._records.delete(_key(session_id))
        await self._logs.drop(session_id)

    async def retire(self, session_id: str, idle: float) -> None:
        """Delete a session that was idle here for this long, unless another process has used it."""
        known = await self.read(session_id)
        if known is not None and known.idle >= idle - TOUCH_SECONDS:
            await self.delete(session_id)


def _key(session_id: str) -> str:
    return "session:" + session_id


class SessionListener(Protocol):
    """A stream on which a session receives the board's changes: its position in their log, whether it is inactive."""

    after: int
    idle: bool

    def uris_changed(self) -> None:
        """The session has subscribed to a resource or unsubscribed from it, here or in another process."""

    def end(self) -> None: ...


class Session(Struct, eq=False):
    """One legacy client: its description of itself, and its running calls.

    Most sessions are idle most of the time, so rarely needed parts are created on demand. If processes share a store,
    each has its own copy: `version` is that of the copy, `stale` says that there is a newer one, `saved` is when this
    process last recorded its use.
    """

    caller: Caller
    touched: float = 0.0
    logs: Logs | None = None
    cluster: Cluster | None = None
    on_end: OnSessionEnd | None = None
    began: float = field(default_factory=time.monotonic)
    saved: float = math.inf
    stale: bool = False
    version: int = 0
    # The account that it counts for.
    counted: str = ""
    # The header with its id, as every response has it.
    headers: tuple[tuple[bytes, bytes], ...] = ()
    # None: accepted, but not started.
    calls: dict[RequestId, asyncio.Task[Any] | None] = {}
    # The newest one receives; `heard` is the last change received when there is none.
    listeners: tuple[SessionListener, ...] = ()
    heard: int | None = None
    _questions: OpenQuestions | None = None
    _uris: set[str] | None = None
    _streams: SessionStreams | None = None

    def __post_init__(self) -> None:
        self.headers = ((b"mcp-session-id", self.caller.session.encode()),)
        if self.cluster is not None:
            self.saved = self.touched

    @property
    def idle(self) -> bool:
        """Whether nothing is running for its client."""
        return not self.calls and not self.listeners and (self._streams is None or not self._streams.held)

    def end(self) -> None:
        """End the session in this process: cancel its calls, and release what was kept for it."""
        for task in list(self.calls.values()):
            if task is not None:
                task.cancel()
        if self.on_end is not None:
            self.on_end(self.caller, time.monotonic() - self.began)

    def learn(self, known: SessionState) -> None:
        """Apply the shared record."""
        self.caller, self.version, self.stale = known.caller, known.version, False
        if known.uris or self._uris:
            # The same set object: listeners hold a reference.
            self.uris.clear()
            self.uris.update(known.uris)
            self._uris_changed()

    def listen(self, listener: SessionListener) -> None:
        """This listener receives changes from now on; earlier ones stay open."""
        for older in self.listeners[-1:]:
            older.idle = True
        self.listeners += (listener,)

    def end_listening(self, listener: SessionListener) -> None:
        """A listener has ended; the one before it continues where it was."""
        carried = self.listeners[-1:] == (listener,) and not listener.idle
        self.listeners = tuple(other for other in self.listeners if other is not listener)
        if carried:
            self.heard = listener.after
            for newest in self.listeners[-1:]:
                newest.after, newest.idle = listener.after, False

    @property
    def header(self) -> tuple[bytes, bytes]:
        """The header with its id."""
        return self.headers[0]

    @property
    def questions(self) -> OpenQuestions:
        """The questions that its client has not answered."""
        if self._questions is None:
            self._questions = OpenQuestions("" if self.cluster is None else self.cluster.me)
        return self._questions

    @property
    def uris(self) -> set[str]:
        """The resources that its client has subscribed to."""
        if self._uris is None:
            self._uris = set()
        return self._uris

    @property
    def subscribed(self) -> tuple[str, ...]:
        """The same, in the form for the store."""
        return () if self._uris is None else tuple(sorted(self._uris))

    @property
    def streams(self) -> SessionStreams:
        """The streams of its calls."""
        if self._streams is None:
            if self.logs is None:
                raise RuntimeError("a shared connection has no streams")
            self._streams = SessionStreams(self.logs, self.caller.session, self.cluster)
        return self._streams

    @property
    def streamed(self) -> bool:
        """Whether any of its calls ever had a stream."""
        return self._streams is not None

    @property
    def asking(self) -> int:
        """How many of its calls wait for an answer of the client."""
        return 0 if self._questions is None else self._questions.calls

    def answer(self, message: Message) -> None:
        """Deliver an answer of the client to one of our questions."""
        if self._questions is not None:
            self._questions.receive_answer(message)

    def cancel(self, request_id: RequestId | None) -> None:
        """Cancel the call with that id, if it runs."""
        task = None if request_id is None else self.calls.get(request_id)
        if task is not None:
            task.cancel()

    def set_level(self, level: object) -> None:
        """Set the minimum level of log messages for the client."""
        if not isinstance(level, str) or level not in LOG_LEVELS:
            raise InvalidParams(f"params.level must be one of {', '.join(LOG_LEVELS)}")
        self.caller = structs.replace(self.caller, log_level=level)

    def subscribe(self, uri: str, limits: Limits) -> None:
        """Subscribe the client to changes of the resource."""
        uris = self.uris
        if uri not in uris and (
            len(uris) >= limits.subscribed_uris or sum(map(len, uris), len(uri)) > limits.subscribed_uri_bytes
        ):
            raise InvalidParams(
                f"A client may subscribe to {limits.subscribed_uris} resources: unsubscribe from some of them first"
            )
        uris.add(uri)
        self._uris_changed()

    def unsubscribe(self, uri: str) -> None:
        if self._uris is not None:
            self._uris.discard(uri)
            self._uris_changed()

    def _uris_changed(self) -> None:
        for listener in self.listeners:
            listener.uris_changed()
