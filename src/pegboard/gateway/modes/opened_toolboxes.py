"""The toolboxes that a legacy session has opened."""

from __future__ import annotations

from typing import Final

import msgspec

from pegboard.bounded_dict import BoundedDict
from pegboard.call import Caller
from pegboard.errors import StoreDown
from pegboard.stores.identifiers import digest
from pegboard.stores.store import Records

_SECONDS: Final = 24 * 3600.0

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(tuple[str, ...]).decode


class OpenedToolboxes:
    """The open toolboxes by session; the longest unused are forgotten first, and kept where sessions are kept."""

    def __init__(self, most: int) -> None:
        self._by_session: BoundedDict[str, frozenset[str]] = BoundedDict(most)
        self._records: Records | None = None

    def use_store(self, records: Records) -> None:
        """Remember them there too, so that a session that goes on elsewhere finds them."""
        self._records = records

    def of(self, caller: Caller) -> frozenset[str] | None:
        """None where nothing is remembered of a caller: it has no session."""
        return self._by_session.get(caller.session, frozenset()) if caller.session else None

    async def recall(self, caller: Caller) -> None:
        """Learn what a session has opened elsewhere, before it came here or meanwhile."""
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
