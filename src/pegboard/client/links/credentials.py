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
    """One request on its way in: it bounds how often new credentials are sought for it."""

    async def renew(self, status: int, challenge: str) -> bool:
        """Seek credentials after a 401 or 403; whether there are any worth another try.

        LoginFailed where they were sought and not got.
        """


class Authorizer(Protocol):
    """The credentials for one server: every request carries its lines, a refused one opens an entry for new ones."""

    async def lines(self) -> bytes:
        """Header lines for a request, which go to the server's own origin alone; empty where there are none yet."""

    def entry(self) -> CredentialAttempt: ...

    @property
    def context(self) -> Hashable:
        """Tells one set of credentials from the next: what was told to one may not be for the other."""


class Auth(Protocol):
    """How a client gets its credentials; as a value it can serve many clients."""

    def authorizer(self, server: Address, pool: HttpPool) -> Authorizer:
        """Return what holds the credentials for one server; the client calls this."""


async def with_credentials(
    work: Callable[[], Awaitable[T]], authorizer: Authorizer, hold: Callable[[], AbstractContextManager[None]]
) -> T:
    """Do what a server may want credentials for, again with those that are got; `hold` stops the clocks meanwhile."""
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
