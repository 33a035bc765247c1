"""Serving a board: transports, sessions, workers and mounting."""

from __future__ import annotations

from pegboard.lazy_names import lazy_names

# What only some servers need loads when it is first used: a server on stdio has no HTTP, no pages and no ASGI application.
_HOMES = {
    "ApprovalPages": "pegboard.server.pages.approval_pages",
    "AsgiApp": "pegboard.server.asgi.asgi_app",
    "AsgiScope": "pegboard.server.asgi.asgi_scope",
    "CustomRoutes": "pegboard.server.http.custom_routes",
    "HttpEndpoint": "pegboard.server.streamable_http.mcp_endpoint",
    "PrincipalSource": "pegboard.server.asgi.asgi_principal",
    "SignIn": "pegboard.server.pages.sign_in",
    "WorkerControl": "pegboard.server.worker_process",
    "is_loopback": "pegboard.server.http.guard",
    "measure_endpoints": "pegboard.server.streamable_http.served_figures",
    "mount": "pegboard.server.mounting",
    "run_http": "pegboard.server.http_serving",
    "serve_http": "pegboard.server.http_serving",
}

__all__ = list(_HOMES)

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
