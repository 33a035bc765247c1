"""The interface between the authentication and the HTTP client that asks issuers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeAlias


class IssuerConnection(Protocol):
    """Sends requests to one issuer; each raises ServerFault if there is no usable response."""

    async def discover(self) -> Mapping[str, object]:
        """The metadata of the issuer (RFC 8414, OpenID Connect Discovery)."""

    async def get(self, url: str) -> Mapping[str, object]:
        """A JSON document."""

    async def post(self, url: str, form: Sequence[tuple[str, str]], user: str, secret: str) -> Mapping[str, object]:
        """The JSON response to a form, sent with HTTP Basic authentication if there is a user."""

    async def close(self) -> None: ...


Connect: TypeAlias = Callable[[str], IssuerConnection]
"""Opens a connection to the issuer with that URL."""
