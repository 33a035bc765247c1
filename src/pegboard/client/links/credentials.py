"""The interface between a link and an auth scheme."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable
from contextlib import AbstractContextManager
from typing import Protocol, TypeVar

from pegboard.client.http.address import Address
from pegboard.client.http.http_pool import HttpPool
from pegboard.errors import LoginFailed, Unauthorized

T = TypeVar("T")


class CredentialAttempt(Protocol):
    """One request that needs credentials: limits how often new ones are requested for it."""

    async def renew(self, status: int, challenge: str) -> bool:
        """Get new credentials after a 401 or 403; returns whether another attempt is worthwhile.

        Raises LoginFailed if the credentials could not be obtained.
        """


class Authorizer(Protocol):
    """The credentials for one server: adds them to every request, and gets new ones after a rejection."""

    async def lines(self) -> bytes:
        """Header lines for a request, sent only to the server's own origin; empty if there are no credentials yet."""

    def entry(self) -> CredentialAttempt: ...

    @property
    def context(self) -> Hashable:
        """Identifies the current credentials: data received with one set may not be valid for another."""


class ClientAuth(Protocol):
    """How a client gets its credentials; one instance can serve many clients."""

    def authorizer(self, server: Address, pool: HttpPool) -> Authorizer:
        """Return the Authorizer for one server; the client calls this."""


async def with_credentials(
    work: Callable[[], Awaitable[T]], authorizer: Authorizer, hold: Callable[[], AbstractContextManager[None]]
) -> T:
    """Run `work`, and run it again with new credentials if the server requires them; `hold` pauses the deadlines."""
    entry = authorizer.entry()
    while True:
        try:
            return await work()
        except LoginFailed:
            raise
        except Unauthorized as refused:
            with hold():
                renewed = await entry.renew(refused.status, refused.challenge)
            if not renewed:
                raise
