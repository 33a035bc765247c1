"""Counts the requests of anonymous callers by their address, in front of an endpoint."""

from __future__ import annotations

import asyncio
from typing import Final

from pegboard.accounts.accounts import address_account
from pegboard.auth.principal import ANONYMOUS
from pegboard.bounded_dict import BoundedDict
from pegboard.server.access import NO_ACCESS, Access
from pegboard.server.http.authenticated_endpoint import ProtectedEndpoint
from pegboard.server.http.guard import Guard
from pegboard.server.http_types import EndpointResult, Head, Sink, Upgrade

_REMEMBERED: Final = 4096


class AddressedEndpoint:
    """Passes each request on with the account of its address; requests from this machine have none."""

    def __init__(self, inner: ProtectedEndpoint, guard: Guard) -> None:
        self._inner = inner
        self._guard = guard
        self._known: BoundedDict[str, Access] = BoundedDict(_REMEMBERED)

    def accept(self, head: Head, body: bytes, sink: Sink) -> EndpointResult | Upgrade:
        if head.access is NO_ACCESS:
            # It reads the address that a trusted proxy states; the endpoint acts on its verdict.
            self._guard.check(head)
            head.access = self._known.get(head.peer) or self._find(head.peer, head.via)
        return self._inner.accept(head, body, sink)

    def _find(self, peer: str, via: str) -> Access:
        # A proxy that states no valid address is counted itself.
        account = address_account(peer) or ("" if not via else address_account(via))
        access = self._known[peer] = Access(ANONYMOUS, address=account) if account else NO_ACCESS
        return access

    def resource(self, path: bytes) -> str | None:
        """The path of the resource that a path belongs to."""
        return self._inner.resource(path)

    def require_authentication(self) -> None:
        """Requests are authenticated in front of it."""
        self._inner.require_authentication()

    def end_sessions(self, principal: str) -> None:
        """End the sessions of a principal."""
        self._inner.end_sessions(principal)

    async def drain(self, seconds: float, hurried: asyncio.Event) -> None:
        """Reject new calls; let running ones finish."""
        await self._inner.drain(seconds, hurried)
