"""Proves that a request comes from an operator: someone who can read the store of the server."""

from __future__ import annotations

import time
from typing import Final

from pegboard.errors import InvalidParams
from pegboard.security.seal import Seal
from pegboard.stores.shared_key import shared_key
from pegboard.stores.store import Records

HEADER: Final = "Pegboard-Operator"
VALID_SECONDS: Final = 30.0
"""How long a proof is valid: the server that gets it could send it on."""

_PLACE: Final = "operator status"


async def make_proof(records: Records) -> str:
    """The value of the header, for one request of the status."""
    return (await _seal(records)).close("status", expires=time.time() + VALID_SECONDS)


async def is_proven(records: Records, proof: str) -> bool:
    """Whether a header was made with the key in this store, and a moment ago."""
    try:
        return (await _seal(records)).open(proof, now=time.time()) == "status"
    except InvalidParams:
        return False


async def _seal(records: Records) -> Seal:
    return Seal(_PLACE, [await shared_key(records, _PLACE)])
