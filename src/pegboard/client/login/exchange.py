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

from pegboard.client.http.address import read_address
from pegboard.client.http.http_pool import HttpPool
from pegboard.client.login.authentication import Credentials, authenticate
from pegboard.client.login.discovery import find_server
from pegboard.client.login.grants import JWT_BEARER, ClientGrant, Grant, write_scopes
from pegboard.client.login.login_http import LoginClient
from pegboard.client.login.oauth import GrantLogin
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


class TokenExchange(GrantLogin):
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
        super().__init__(issuer, scopes, None)
        self._credentials = credentials
        self._subject = subject
        self._provider = provider
        self._audience = audience

    def _make_grant(self, client: LoginClient, pool: HttpPool) -> Grant:
        if self._provider is not None:
            assertions = _Assertions(pool, self._provider, self._subject, self._scopes)
            form = [("grant_type", JWT_BEARER)]
            return ClientGrant("assertion", client, self._credentials, form, assertions.request)
        form = [("grant_type", EXCHANGE), ("requested_token_type", _TYPE + "access_token"), *self._subject.fields]
        if self._audience:
            form.append(("audience", self._audience))
        return ClientGrant("exchange", client, self._credentials, form)


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
            *write_scopes(self._scopes),
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
