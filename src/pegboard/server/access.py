"""The access of a request: its principal, and until when that need not be verified again."""

from __future__ import annotations

import math
from typing import Final

from msgspec.structs import replace

from pegboard.auth.principal import ANONYMOUS, Principal
from pegboard.auth.request_credentials import RequestCredentials
from pegboard.bounded_dict import BoundedDict
from pegboard.call import Caller

_CALLERS = 64


class Access:
    """An authenticated principal at one endpoint.

    until: the time of the monotonic clock until which the credentials need not be verified again.
    resource_metadata: the URL of the metadata of the endpoint, for a later challenge.
    account: what its requests are counted under: the principal, unless it is anonymous and has an address.
    credentials: those that were verified, if a gateway has to exchange them.
    """

    __slots__ = ("_bound", "account", "credentials", "principal", "resource_metadata", "until")

    def __init__(
        self,
        principal: Principal,
        until: float = math.inf,
        resource_metadata: str = "",
        address: str = "",
        credentials: RequestCredentials | None = None,
    ) -> None:
        self.credentials = credentials
        self.principal = principal
        self.account = principal.id or address
        self.until = until
        self.resource_metadata = resource_metadata
        self._bound: BoundedDict[int, tuple[Caller, Caller]] | None = None

    def bind(self, caller: Caller) -> Caller:
        """The same client, as this principal; clients that send many requests get the same object each time."""
        if self._bound is None:
            self._bound = BoundedDict(_CALLERS)
        known = self._bound.get(id(caller))
        if known is None or known[0] is not caller:
            bound = replace(
                caller,
                principal=self.principal,
                account=self.account,
                resource_metadata=self.resource_metadata,
                credentials=self.credentials,
            )
            known = self._bound[id(caller)] = caller, bound
        return known[1]


class _Anonymous(Access):
    __slots__ = ()

    def bind(self, caller: Caller) -> Caller:
        return caller


NO_ACCESS: Final[Access] = _Anonymous(ANONYMOUS, until=-math.inf)
"""The access of requests where no authentication is required."""
