"""The transports: one module for each way to reach a server."""

from __future__ import annotations

from pegboard.lazy_names import lazy_names

# Loaded when they are first used: a client of a board in its own process needs none.
_HOMES = {
    "HttpLink": "pegboard.client.transports.http_link",
    "StdioLink": "pegboard.client.transports.stdio_link",
    "WebSocketLink": "pegboard.client.transports.websocket_link",
}

__all__ = list(_HOMES)

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
