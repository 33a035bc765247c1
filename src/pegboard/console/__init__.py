"""The console: every call of a board or gateway, live, in a browser."""

from __future__ import annotations

from pegboard.lazy_names import lazy_names

# Loaded when they are first used: a server on stdio has no console.
_HOMES = {
    "Console": "pegboard.console.console",
    "StatusDocument": "pegboard.console.status_document",
    "subject_of": "pegboard.console.console",
}

__all__ = list(_HOMES)

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
