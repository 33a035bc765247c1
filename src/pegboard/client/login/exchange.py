"""Logins with the token of a caller: it is exchanged for one of the server (RFC 8693), directly or by an ID-JAG.

The caller's token is for us, and no server behind us may get it. Its issuer, or the authorization server of the server,
is shown it and issues another one, for the server, in the name of the same person. An identity provider that both sides
trust issues an assertion first, the ID-JAG (enterprise-managed authorization), which the server's authorization server
accepts in place of a login.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from pegboard.client.http.address import Address, read_address
from pegboard.client.http.http_pool import HttpPool
from pegboard.client.login.access_tokens import Token, request_token
from pegboard.client.login.authentication import Credentials, authenticate
from pegboard.client.login.authorizer import TokenAuthorizer
from pegboard.client.login.discovery import ProtectedResource, find_server
from pegboard.client.login.grants import AssertionGrant, Grant
from pegboard.client.login.login_http import LoginClient
from pegboard.client.login.storage import MemoryStorage
from pegboard.errors import LoginFailed

EXCHANGE: Final = "urn:ietf:params:oauth:grant-type:token-exchange"
_TYPE: Final = "urn:ietf:params:oauth:token-type:"
ID_JAG: Final = _TYPE + "id-jag"


class SubjectToken(Struct, frozen=True):
    """The token of a caller; `kind` is the last part of its type, such as `access_token`."""

    value: str
    kind: str = "access_token"

    def __repr__(self) -> str:
        return f"SubjectToken({self.kind})"

    @property
    def fields(self) -> list[tuple[str, str]]:
        return [("subject_token", self.value), ("subject_token_type", _TYPE + self.kind)]


class IdentityProvider(Struct, frozen=True):
    """The issuer of identity assertions, and us as its client."""

    issuer: str
    credentials: Credentials


class TokenExchange:
    """Login with the token of a caller.

    credentials: the gateway, as the authorization server of the server knows it.
    subject: the token of the caller.
    provider: the identity provider that issues an assertion first; without it, the token is exchanged directly.
    issuer: the only authorization server that may get the token; without it, the one that the server names.
    """

    def __init__(
        self,
        credentials: Credentials,
        subject: SubjectToken,
        *,
        provider: IdentityProvider | None = None,
        audience: str | None = None,
        issuer: str | None = None,
        scopes: Sequence[str] = (),
    ) -> None:
        self._credentials = credentials
        self._subject = subject
        self._provider = provider
        self._audience = audience
        self._issuer = issuer
        self._scopes = list(scopes)

    def authorizer(self, server: Address, pool: HttpPool) -> TokenAuthorizer:
        """Return what holds the token for one server; the client calls this."""
        client = LoginClient(pool, server)
        grant: Grant
        if self._provider is None:
            grant = ExchangeGrant(client, self._credentials, self._subject, self._audience)
        else:
            assertions = _Assertions(pool, self._provider, self._subject, self._scopes)
            grant = AssertionGrant(client, self._credentials, assertions.request)
        return TokenAuthorizer(server, grant, MemoryStorage(), client, scopes=self._scopes, issuer=self._issuer)


class ExchangeGrant:
    """The token of a caller is exchanged for one of the server (RFC 8693)."""

    kind = "exchange"
    silent = True

    def __init__(
        self, login_client: LoginClient, credentials: Credentials, subject: SubjectToken, audience: str | None
    ) -> None:
        self.bound_id = credentials.client_id
        self._login_client = login_client
        self._credentials = credentials
        self._subject = subject
        self._audience = audience

    def check_present(self) -> None:
        """The caller is here."""

    async def obtain(self, site: ProtectedResource, scopes: Sequence[str]) -> Token:
        form = [
            ("grant_type", EXCHANGE),
            ("requested_token_type", _TYPE + "access_token"),
            *self._subject.fields,
            *([("audience", self._audience)] if self._audience else []),
            *([("scope", " ".join(scopes))] if scopes else []),
        ]
        return await request_token(self._login_client, site, self._credentials, form, scopes)

    async def refresh(self, site: ProtectedResource, token: Token) -> Token | None:
        return None


class _Assertions:
    """Requests identity assertions for one caller."""

    def __init__(
        self, pool: HttpPool, provider: IdentityProvider, subject: SubjectToken, scopes: Sequence[str]
    ) -> None:
        self._provider = provider
        self._subject = subject
        self._scopes = scopes
        # The operator named it, so it may be anywhere.
        self._client = LoginClient(pool, read_address(provider.issuer))

    async def request(self, issuer: str, resource: str) -> str:
        """An assertion for the authorization server `issuer` of the server `resource` (Token Exchange, 4)."""
        await self._client.reach_server()
        server = await find_server(self._client, self._provider.issuer)
        fields, secrets = authenticate(self._provider.credentials, server)
        form = [
            ("grant_type", EXCHANGE),
            ("requested_token_type", ID_JAG),
            ("audience", issuer),
            ("resource", resource),
            *self._subject.fields,
            *([("scope", " ".join(self._scopes))] if self._scopes else []),
            *fields,
        ]
        reply = await self._client.post_form(server.token_endpoint, form, secrets)
        document = reply.document or {}
        assertion = document.get("access_token")
        if reply.status != 200 or not isinstance(assertion, str):
            hidden = [self._subject.value, self._provider.credentials.client_secret or ""]
            raise LoginFailed(
                f"{server.issuer}: issued no identity assertion: {reply.describe_error(hidden)}", reason=reply.reason
            )
        if document.get("issued_token_type") != ID_JAG:
            raise LoginFailed(f"{server.issuer}: issued something other than an identity assertion (ID-JAG)")
        return assertion
