"""Who calls: principals, and how a request proves them."""

from __future__ import annotations

from pegboard.lazy_names import lazy_names

# Loaded when it is first used: a board without authentication verifies no tokens.
_HOMES = {"Auth": "pegboard.auth.auth"}

__all__ = list(_HOMES)

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
