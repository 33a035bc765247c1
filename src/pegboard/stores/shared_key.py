"""The sealing key that all processes of a store share."""

from __future__ import annotations

import secrets

from pegboard.stores.store import Records

_KEY_BYTES = 32


async def shared_key(records: Records, board: str) -> bytes:
    """The key of the board with that name, created on first use; it never expires, so that old seals can be opened."""
    place = f"seal:{board}"
    while (found := await records.get(place)) is None:
        await records.put(place, secrets.token_bytes(_KEY_BYTES), if_version=0)
    return found.value
