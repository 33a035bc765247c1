"""Detects gateways that start themselves."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import Final

from pegboard.errors import SetupError

NESTING_VARIABLE: Final = "PEGBOARD_WITHIN"
"""The variable that tells a child which gateways it was started by."""


def mark_nested(path: str, environ: Mapping[str, str]) -> dict[str, str]:
    """What a gateway tells its children; SetupError where it is its own child, and would start itself for ever."""
    around = environ.get(NESTING_VARIABLE, "").split()
    if not path:
        return {NESTING_VARIABLE: " ".join(around)} if around else {}
    mark = sha256(path.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    if mark in around:
        raise SetupError(
            f"{path} names itself: one of its servers is `pegboard up` with this very file; remove that entry, or "
            f"give your client the gateway alone and the gateway the other servers"
        )
    return {NESTING_VARIABLE: " ".join([*around, mark])}
