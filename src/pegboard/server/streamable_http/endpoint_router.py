"""Routes requests to the main endpoint or to one of the named ones."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from pegboard.call import Handler
from pegboard.server.http.responses import text_response
from pegboard.server.http_types import EndpointResult, Head, Sink, Upgrade
from pegboard.server.streamable_http.mcp_endpoint import HttpEndpoint


class EndpointRouter:
    """Passes a request to the endpoint of its path; other paths go to the main endpoint.

    `places` is read again for each request, since toolboxes are added and removed; `make` creates the endpoint of one
    at the first request for it. A toolbox is served at `<prefix>/toolboxes/<name>/mcp`.
    """

    def __init__(
        self,
        main: HttpEndpoint,
        places: Mapping[str, Handler],
        make: Callable[[str, Handler], HttpEndpoint],
        prefix: str = "",
    ) -> None:
        self._main = main
        self._places = places
        self._make = make
        self._whole = f"{prefix}/mcp"
        self._begin = f"{prefix}/toolboxes/"
        self._start = self._begin.encode()
        self._made: dict[str, tuple[Handler, HttpEndpoint]] = {}

    def accept(self, head: Head, body: bytes, sink: Sink) -> EndpointResult | Upgrade:
        if not head.path.startswith(self._start):
            return self._main.accept(head, body, sink)
        encoded, _, rest = head.path[len(self._start) :].partition(b"/")
        name = encoded.decode("ascii", "replace")
        endpoint = self._find(name)
        if endpoint is None:
            # Only allowed clients may learn which toolboxes exist.
            return text_response(404, f"Unknown toolbox {name[:64]!r}; all toolboxes are served at {self._whole}")
        if rest not in (b"mcp", b"mcp/"):
            return text_response(404, f"Not found; the toolbox is served at {self._begin}{name}/mcp")
        return endpoint.accept(head, body, sink)

    async def drain(self, seconds: float, hurried: asyncio.Event, *, replaced: bool = False) -> None:
        """Reject new calls at all of them; let running ones finish."""
        endpoints = [self._main, *(endpoint for _, endpoint in self._made.values())]
        await asyncio.gather(*(endpoint.drain(seconds, hurried, replaced=replaced) for endpoint in endpoints))

    def resource(self, path: bytes) -> str | None:
        """The path of the resource that a path belongs to; None if it needs no authentication."""
        if not path.startswith(self._start):
            return self._main.resource(path)
        # The same for a toolbox that does not exist: only authenticated clients may learn that.
        name = path[len(self._start) :].partition(b"/")[0].decode("ascii", "replace")
        return f"{self._begin}{name}/mcp"

    def require_authentication(self) -> None:
        """Requests are authenticated in front of the endpoints."""
        self._main.require_authentication()

    def end_sessions(self, principal: str) -> None:
        """End the sessions of a principal whose credentials were revoked, at all of them."""
        for endpoint in (self._main, *(endpoint for _, endpoint in self._made.values())):
            endpoint.end_sessions(principal)

    def _find(self, name: str) -> HttpEndpoint | None:
        handler = self._places.get(name)
        if handler is None:
            return None
        made = self._made.get(name)
        if made is None or made[0] is not handler:
            made = self._made[name] = handler, self._make(name, handler)
        return made[1]
