"""Issuers of tokens, as a server trusts them, and the interface to the client that asks them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from ipaddress import ip_address
from typing import Protocol, TypeAlias
from urllib.parse import urlsplit

from msgspec import Struct

from pegboard.errors import SetupError


class Introspection(Struct, frozen=True):
    """How to ask an issuer whether a token is active (RFC 7662).

    client_id: the name of this server at the issuer.
    client_secret: its secret; in a file, as ${VARIABLE}.
    url: the introspection endpoint; without it, the one in the issuer's metadata.
    seconds: how long an answer may be used before the issuer is asked again.
    """

    client_id: str
    client_secret: str
    url: str | None = None
    seconds: float = 30.0

    def __repr__(self) -> str:
        return f"Introspection(client_id={self.client_id!r})"


class SignInClient(Struct, frozen=True):
    """How people sign in at an issuer with a browser, for the console and other pages (OpenID Connect).

    client_id: the name of this server at the issuer, where its redirect URI is `<URL of the server>/sign-in/callback`.
    client_secret: its secret; in a file, as ${VARIABLE}; empty for a public client.
    scopes: the scopes to request, besides `openid` and those of `Auth(scopes=…)`.
    """

    client_id: str
    client_secret: str = ""
    scopes: Sequence[str] = ()

    def __repr__(self) -> str:
        return f"SignInClient(client_id={self.client_id!r})"


class Issuer(Struct, frozen=True):
    """An authorization server whose tokens are accepted.

    issuer: its URL, exactly as its tokens name it.
    audience: the audiences that its tokens may have, compared exactly; without it, the URL of the endpoint.
    jwks_uri: the URL of its keys; without it, the one in its metadata.
    principal: the claim that identifies a caller.
    scopes: the claim with the scopes.
    roles: the claim with the roles, such as `realm_access.roles`.
    prefix: put before the ids of its principals, so that those of two issuers differ.
    leeway: how many seconds its clock may differ from ours.
    introspection: ask the issuer about each token, for tokens that are not JWTs or can be revoked.
    sign_in: let people sign in at it with a browser.
    """

    issuer: str
    audience: Sequence[str] | str = ()
    jwks_uri: str | None = None
    principal: str = "sub"
    scopes: str = "scope"
    roles: str | None = None
    prefix: str = ""
    leeway: float = 30.0
    introspection: Introspection | None = None
    sign_in: SignInClient | None = None

    @property
    def audiences(self) -> frozenset[str]:
        """The accepted audiences; empty for the URL of the endpoint."""
        return frozenset((self.audience,) if isinstance(self.audience, str) else self.audience)

    def check(self) -> None:
        """Reject what cannot work."""
        asked = self.introspection
        for url in (self.issuer, self.jwks_uri, None if asked is None else asked.url):
            if url is not None and not _is_secure(url):
                raise SetupError(f"auth: {url!r} must be an https URL (http is accepted on loopback addresses only)")


def _is_secure(url: str) -> bool:
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
    except ValueError:
        return False
    if parts.fragment or "@" in parts.netloc or not host:
        return False
    return parts.scheme == "https" or (parts.scheme == "http" and _is_loopback(host))


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


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
