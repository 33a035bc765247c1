"""Sessions as records in a shared store."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Final

import msgspec
from msgspec import Raw, Struct

from pegboard.auth.principal import ANONYMOUS, Principal
from pegboard.call import Caller, Json
from pegboard.limits import Limits
from pegboard.stores.store import Logs, Records

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
