"""Remembers which protocol era each server speaks."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

_MAX_SERVERS: Final = 1000

_eras: dict[Hashable, str] = {}


def recall(server: Hashable) -> str | None:
    """The revision that was last spoken with a server; None for a stranger."""
    return _eras.get(server)


def remember(server: Hashable, version: str) -> None:
    """Keep it; the oldest is forgotten for it where there are many."""
    _eras.pop(server, None)
    while len(_eras) >= _MAX_SERVERS:
        del _eras[next(iter(_eras))]
    _eras[server] = version


def forget(server: Hashable) -> None:
    """It proved wrong."""
    _eras.pop(server, None)
