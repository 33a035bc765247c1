"""Detects gateways that start themselves."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import Final

from pegboard.errors import SetupError

NESTING_VARIABLE: Final = "PEGBOARD_WITHIN"
"""The variable that lists the gateways which started a process."""


def mark_nested(path: str, environ: Mapping[str, str]) -> dict[str, str]:
    """The value for our children; SetupError if a gateway is its own child, and would start itself for ever."""
    around = environ.get(NESTING_VARIABLE, "").split()
    if not path:
        return {NESTING_VARIABLE: " ".join(around)} if around else {}
    mark = sha256(path.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    if mark in around:
        raise SetupError(
            f"{path} starts itself: one of its servers is `pegboard up` with this file; remove that entry, or "
            "configure only the gateway in your client and the other servers in the gateway"
        )
    return {NESTING_VARIABLE: " ".join([*around, mark])}
