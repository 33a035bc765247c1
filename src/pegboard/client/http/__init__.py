"""HTTP/1.1 from the client's side: addresses, connections, redirects."""

from __future__ import annotations

from pegboard.lazy_names import lazy_names

# Loaded when it is first used: a client of a board in its own process needs no HTTP.
_HOMES = {
    "HttpPool": "pegboard.client.http.http_pool",
}

__all__ = list(_HOMES)

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
