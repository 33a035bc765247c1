"""Counts the requests of anonymous callers by their address, in front of an endpoint."""

from __future__ import annotations

from typing import Final

from pegboard.accounts.accounts import address_account
from pegboard.auth.principal import ANONYMOUS
from pegboard.bounded_dict import BoundedDict
from pegboard.server.access import NO_ACCESS, Access
from pegboard.server.http.authenticated_endpoint import ProtectedEndpoint, WrappedEndpoint
from pegboard.server.http.guard import Guard
from pegboard.server.http_types import EndpointResult, Head, Sink, Upgrade

_REMEMBERED: Final = 4096


class AddressedEndpoint(WrappedEndpoint):
    """Passes each request on with the account of its address; requests from this machine have none."""

    def __init__(self, inner: ProtectedEndpoint, guard: Guard) -> None:
        super().__init__(inner)
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
