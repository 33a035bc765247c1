"""The sealing key that all processes of a store share."""

from __future__ import annotations

import secrets

from pegboard.stores.store import Records

_KEY_BYTES = 32


async def shared_key(records: Records, board: str) -> bytes:
    """The key of the board of that name, made by whoever asks first; it has no end, as what it sealed may come back."""
    place = f"seal:{board}"
    while (found := await records.get(place)) is None:
        await records.put(place, secrets.token_bytes(_KEY_BYTES), if_version=0)
    return found.value
