"""A login that is begun in one request and finished in another, maybe of another process.

The redirect of the authorization server does not come to the code that began the login, but to a web page of ours.
"""

from __future__ import annotations

from collections.abc import Sequence

from pegboard.client.http.address import Address
from pegboard.client.http.http_pool import HttpPool
from pegboard.client.login.access_tokens import Token
from pegboard.client.login.authentication import Credentials, authenticate
from pegboard.client.login.browser import NoBrowser
from pegboard.client.login.discovery import Challenge, ProtectedResource, discover, read_bearer
from pegboard.client.login.grants import CodeGrant, PendingLogin, read_callback
from pegboard.client.login.login_http import LoginClient
from pegboard.client.login.storage import Storage
from pegboard.client.login.stored_tokens import StoredTokens
from pegboard.errors import LoginFailed, ResponseTimeout, ServerFault


class DetachedLogin:
    """Logs in to one server for one user; the arguments are those of `OAuth`."""

    def __init__(
        self,
        server: Address,
        pool: HttpPool,
        storage: Storage,
        *,
        name: str,
        credentials: Credentials | None = None,
        document_url: str | None = None,
        issuer: str | None = None,
        scopes: Sequence[str] = (),
    ) -> None:
        self._server = server
        self._client = LoginClient(pool, server)
        self._grant = CodeGrant(self._client, storage, NoBrowser(str(server)), name, credentials, document_url)
        self._tokens = StoredTokens(storage, server, self._grant.kind, self._grant.bound_id, issuer)
        self._issuer = issuer
        self._scopes = list(scopes)

    async def begin(self, challenge: str, redirect_uri: str) -> tuple[str, PendingLogin]:
        """The URL of the login page, and what `finish` needs; `challenge` is the WWW-Authenticate header that led here."""
        asked = read_bearer(challenge)
        before = await self._tokens.load(stale=True)
        site = await self._discover(asked, before)
        await self._tokens.check_binding(site.server.issuer)
        held = before.scopes if before is not None and before.issuer == site.server.issuer else []
        scopes = dict.fromkeys([*held, *(asked.scopes or self._scopes or site.scopes or []), *self._scopes])
        return await self._grant.begin(site, list(scopes), redirect_uri)

    async def finish(self, challenge: str, pending: PendingLogin, callback: str) -> None:
        """Store the token that the redirect `callback` brings; LoginFailed if it does not belong to this login."""
        site = await self._discover(read_bearer(challenge), None, pending.issuer)
        if not pending.fits(site):
            raise LoginFailed(
                f"{self._server}: its authorization server has changed since the login began; start again"
            )
        code = read_callback(callback, pending.state, site.server)
        before = await self._tokens.load(stale=True)
        await self._tokens.save(await self._grant.redeem(site, pending, code), before)

    async def revoke(self) -> str:
        """Revoke the stored token at its authorization server (RFC 7009); returns what came of it."""
        token = await self._tokens.load(stale=True)
        if token is None:
            return "there was no token to revoke"
        try:
            return await self._revoke(token)
        except ServerFault as fault:
            return f"the authorization server could not be asked to revoke it: {fault}"

    async def _revoke(self, token: Token) -> str:
        site = await self._discover(Challenge(), token)
        server = site.server
        if server.revocation_endpoint is None or server.issuer != token.issuer:
            return "its authorization server offers no revocation; the token stays valid there until it expires"
        client = await self._grant.client(server)
        fields, secrets = authenticate(client or Credentials(token.client_id), server)
        # "the authorization server SHOULD also invalidate all access tokens based on the same grant" (RFC 7009, 2.1)
        kinds = [("refresh_token", token.refresh_token), ("access_token", token.access_token)]
        for kind, value in kinds:
            if value is not None:
                form = [("token", value), ("token_type_hint", kind), *fields]
                reply = await self._client.post_form(server.revocation_endpoint, form, secrets)
                if reply.status != 200 and reply.reason != "unsupported_token_type":
                    raise LoginFailed(f"{server.issuer}: {reply.describe_error([value])}")
        return "revoked at its authorization server"

    async def _discover(self, challenge: Challenge, token: Token | None, known: str | None = None) -> ProtectedResource:
        try:
            await self._client.reach_server()
        except TimeoutError:
            raise ResponseTimeout(f"{self._server}: no response") from None
        preferred = [name for name in (known, None if token is None else token.issuer) if name is not None]
        return await discover(self._client, self._server, challenge, issuer=self._issuer, known=preferred)
