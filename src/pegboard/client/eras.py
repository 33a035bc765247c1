"""Which era each server was last seen to be of: "a property of the server, not of an individual request"."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

_MOST: Final = 1000

_known: dict[Hashable, str] = {}


def recall(server: Hashable) -> str | None:
    """The revision that was last spoken with a server; None for a stranger."""
    return _known.get(server)


def remember(server: Hashable, version: str) -> None:
    """Keep it; the oldest is forgotten for it where there are many."""
    _known.pop(server, None)
    while len(_known) >= _MOST:
        del _known[next(iter(_known))]
    _known[server] = version


def forget(server: Hashable) -> None:
    """It proved wrong."""
    _known.pop(server, None)
