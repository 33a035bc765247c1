"""The toolboxes that a legacy session has opened."""

from __future__ import annotations

from typing import Final

import msgspec

from pegboard.bounded_dict import BoundedDict
from pegboard.call import Caller
from pegboard.errors import StoreDown
from pegboard.stores.store import Records, digest

_SECONDS: Final = 24 * 3600.0

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(tuple[str, ...]).decode


class OpenedToolboxes:
    """The open toolboxes by session, also in the session store; the least recently used are dropped first."""

    def __init__(self, most: int) -> None:
        self._by_session: BoundedDict[str, frozenset[str]] = BoundedDict(most)
        self._records: Records | None = None

    def use_store(self, records: Records) -> None:
        """Keep them in this store too, so that a session can continue in another process."""
        self._records = records

    def of(self, caller: Caller) -> frozenset[str] | None:
        """None for a caller without a session."""
        return self._by_session.get(caller.session, frozenset()) if caller.session else None

    async def recall(self, caller: Caller) -> None:
        """Load what a session has opened in another process."""
        if not caller.session or self._records is None:
            return
        try:
            record = await self._records.get(_key(caller.session))
        except StoreDown:
            return
        self._put(caller.session, frozenset() if record is None else frozenset(_decode(record.value)))

    async def change(self, caller: Caller, opened: frozenset[str]) -> None:
        self._put(caller.session, opened)
        if self._records is not None:
            await self._records.put(_key(caller.session), _encode(tuple(sorted(opened))), ttl=_SECONDS)

    def _put(self, session: str, opened: frozenset[str]) -> None:
        self._by_session[session] = opened


def _key(session: str) -> str:
    return f"opened:{digest(session)}"
