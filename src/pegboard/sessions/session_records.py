"""Sessions as records in a shared store."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Final

import msgspec
from msgspec import Raw, Struct

from pegboard.call import Caller, Json
from pegboard.limits import Limits
from pegboard.stores.store import Logs, Records

TOUCH_SECONDS: Final = 60.0
"""How often at most a session in use says so to the store."""


class SessionState(Struct, frozen=True):
    """What is known of a session everywhere.

    `idle` is for how many seconds nobody has said that it is in use, `version` how often it has been written.
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
    # Most sessions are of the same few programs, and share what these say of themselves.
    return msgspec.msgpack.decode(raw, type=_StoredClient)


class SessionRecords:
    """Writes and reads them; each for as long as a session lives after its last use."""

    def __init__(self, records: Records, logs: Logs, limits: Limits, clock: Callable[[], float] = time.time) -> None:
        self._records = records
        self._logs = logs
        # Its use is written now and then, so it must not end before what was not written is over too.
        self._seconds = limits.session_seconds + TOUCH_SECONDS
        self._clock = clock

    async def read(self, session_id: str) -> SessionState | None:
        """The session of that id, if there is one."""
        found = await self._records.get(_key(session_id))
        if found is None:
            return None
        written = _decode(found.value)
        who = _read_client(bytes(written.who))
        caller = Caller(
            version=written.revision,
            transport="http",
            principal=written.principal,
            session=session_id,
            client=who.client,
            capabilities=who.capabilities,
            log_level=written.level,
        )
        return SessionState(caller, written.uris, max(0.0, self._clock() - written.used), found.version)

    async def write(self, caller: Caller, uris: tuple[str, ...], version: int) -> int | None:
        """Write what is known of a session in place of that version; the new one, None where it is not that one."""
        written = _StoredSession(
            principal=caller.principal,
            revision=caller.version,
            who=Raw(_encode(_StoredClient(caller.client, caller.capabilities))),
            level=caller.log_level,
            uris=uris,
            used=self._clock(),
        )
        return await self._records.put(_key(caller.session), _encode(written), ttl=self._seconds, if_version=version)

    async def keep_logs(self, session_id: str) -> None:
        """The session lives on, and so does what its calls have said."""
        await self._logs.touch(session_id)

    async def delete(self, session_id: str) -> None:
        """Forget a session and all that its calls have said."""
        await self._records.delete(_key(session_id))
        await self._logs.drop(session_id)

    async def retire(self, session_id: str, idle: float) -> None:
        """Forget a session unless somebody else has used it lately, where it has been idle for so many seconds here."""
        known = await self.read(session_id)
        if known is not None and known.idle >= idle - TOUCH_SECONDS:
            await self.delete(session_id)


def _key(session_id: str) -> str:
    return "session:" + session_id
