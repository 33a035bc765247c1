"""Holds the token for one server, and replaces it when it is rejected.

After a 401 the request continues with a token that another request or process has obtained meanwhile, else with a
refresh, else with a new grant. After a 403 for insufficient scope it requests a grant with more scopes, each set once.
The authorization server is looked up each time, because it may have changed. One request at a time obtains a token, and
the others share its result, including a failure.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Sequence
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from pegboard.client.http.address import Address
from pegboard.client.login.access_tokens import Token
from pegboard.client.login.discovery import Challenge, ProtectedResource, discover, read_bearer
from pegboard.client.login.grants import Grant
from pegboard.client.login.login_http import LoginClient
from pegboard.client.login.storage import Storage
from pegboard.client.login.stored_tokens import StoredTokens
from pegboard.errors import LoginFailed, LoginRequired, ServerFault, Unauthorized

MAX_STEP_UPS: Final = 2
"""How often the scopes are extended for one request."""
MAX_TRIES: Final = 4
"""How often one request is tried in total."""

_log = logging.getLogger("pegboard.client")


class TokenAttempt(Struct, eq=False):
    """What one request has tried so far."""

    _authorizer: TokenAuthorizer
    token: Token | None
    attempt: int
    tries: int = 0
    steps: int = 0
    refreshed: bool = False
    granted: bool = False

    async def renew(self, status: int, challenge: str) -> bool:
        return await self._authorizer.renew(self, status, challenge)


class TokenAuthorizer:
    """The token for one server, and how to get the next one."""

    def __init__(
        self,
        server: Address,
        grant: Grant,
        storage: Storage,
        login_client: LoginClient,
        *,
        scopes: Sequence[str] = (),
        issuer: str | None = None,
    ) -> None:
        self._server = server
        self._grant = grant
        self._tokens = StoredTokens(storage, server, grant.kind, grant.bound_id, issuer)
        self._login_client = login_client
        self._wanted = list(scopes)
        self._issuer = issuer
        self._token: Token | None = None
        self._site: ProtectedResource | None = None
        self._loaded = False
        self._granted: set[frozenset[str]] = set()
        self._failure: ServerFault | None = None
        self._attempts = 0
        self._asking = False
        self._lock = asyncio.Lock()

    def lines(self) -> bytes | Coroutine[Any, Any, bytes]:
        token = self._token
        # A request that would wait for a person is sent first: once rejected, it waits on its own time.
        if not self._asking and (not self._loaded or (token is not None and token.is_stale)):
            return self._fresh_lines()
        return _lines(token)

    async def _fresh_lines(self) -> bytes:
        async with self._lock:
            return _lines(await self._freshened())

    def entry(self) -> TokenAttempt:
        return TokenAttempt(self, self._token, self._attempts)

    @property
    def context(self) -> int | None:
        return None if self._token is None else hash(self._token.access_token)

    async def renew(self, entry: TokenAttempt, status: int, header: str) -> bool:
        """Get a better token for a request that was rejected."""
        challenge = read_bearer(header)
        if status == 403 and challenge.error != "insufficient_scope":
            return False
        entry.tries += 1
        if entry.tries > MAX_TRIES:
            raise LoginFailed(f"{self._server}: rejects every token", status, header)
        async with self._lock:
            if self._failure is not None and self._attempts > entry.attempt:
                if isinstance(self._failure, LoginRequired):
                    raise self._failure.with_traceback(None)
                raise LoginFailed(str(self._failure), status, header)
            try:
                if status == 403:
                    await self._widen(entry, challenge)
                else:
                    await self._replace(entry, challenge)
            except ServerFault as fault:
                self._attempts += 1
                self._failure = fault
                if isinstance(fault, Unauthorized):
                    fault.challenge = fault.challenge or header
                    raise
                raise LoginFailed(f"{self._server} requires a login, which failed: {fault}", status, header) from None
            self._failure = None
            entry.token = self._token
        return True

    # The steps.

    async def _replace(self, entry: TokenAttempt, challenge: Challenge) -> None:
        """Replace a rejected token, or get the first one."""
        refused = entry.token
        if self._token is not None and self._token is not refused:
            return
        kept = await self._tokens.load()
        if kept is not None and (refused is None or kept.access_token != refused.access_token):
            self._token = kept
            return
        if entry.granted:
            raise LoginFailed(f"{self._server}: rejects the token that was just issued for it")
        if refused is None:
            # Before the authorization server is looked up, which is not needed to say so.
            self._grant.check_present()
        site = await self._discovered(challenge)
        if refused is not None and not entry.refreshed and _belongs(refused, site):
            entry.refreshed = True
            if await self._refreshed(site, refused):
                return
        before = refused.scopes if refused is not None and _belongs(refused, site) else []
        entry.granted = True
        await self._obtain(site, _union(before, challenge.scopes or self._wanted or site.scopes or [], self._wanted))

    async def _widen(self, entry: TokenAttempt, challenge: Challenge) -> None:
        """A token with the missing scopes as well."""
        token = self._token
        held = [] if token is None else token.scopes
        if token is not entry.token and set(challenge.scopes) <= set(held):
            return
        scopes = _union(held, challenge.scopes)
        if not challenge.scopes or entry.steps >= MAX_STEP_UPS or frozenset(scopes) in self._granted:
            # "track scope upgrade attempts to avoid repeated failures"
            missing = " ".join(challenge.scopes)[:200] or "more than this token has"
            raise LoginFailed(f"{self._server}: requires the scopes {missing!r}, and requesting them did not help", 403)
        entry.steps += 1
        _log.info("%s: requesting more scopes: %s", self._server, " ".join(challenge.scopes)[:200])
        await self._obtain(await self._discovered(challenge), scopes)

    async def _obtain(self, site: ProtectedResource, scopes: Sequence[str]) -> None:
        await self._tokens.check_binding(site.server.issuer)
        self._asking = not self._grant.silent
        try:
            token = await self._grant.obtain(site, scopes)
        finally:
            self._asking = False
        self._granted.add(frozenset(scopes))
        await self._keep(token)

    async def _refreshed(self, site: ProtectedResource, token: Token) -> bool:
        """Whether there is a new token: refreshed now, or by another process meanwhile.

        A refresh token may be valid for one use, so one process at a time uses it, and only the one that is stored.
        """
        async with self._tokens.exclusive():
            kept = await self._tokens.load(stale=True)
            if kept is None:
                # It was removed meanwhile, and stays so.
                return False
            if kept.access_token != token.access_token and not kept.is_stale:
                self._token = kept
                return True
            try:
                fresh = await self._grant.refresh(site, kept)
            except LoginFailed as problem:
                _log.info("%s", problem)
                newer = await self._tokens.load()
                if newer is not None and newer.access_token != kept.access_token:
                    self._token = newer
                    return True
                if problem.reason == "invalid_grant":
                    # It was revoked, or has expired: it is not sent again.
                    await self._keep(replace(kept, refresh_token=None))
                return False
            if fresh is None:
                return False
            await self._keep(fresh)
            return True

    async def _freshened(self) -> Token | None:
        """The token to send: loaded from the storage, and renewed before it expires if that needs no person."""
        if not self._loaded:
            self._token = await self._tokens.load(stale=True)
            self._loaded = True
        token = self._token
        if token is None or not token.is_stale:
            return token
        try:
            site = self._site
            if site is None or not _belongs(token, site):
                site = await self._discovered(Challenge())
            if _belongs(token, site) and await self._refreshed(site, token):
                return self._token
            if self._grant.silent:
                await self._obtain(site, token.scopes)
                return self._token
        except ServerFault as fault:
            # The server decides: it may still accept the token, or say how to get another.
            _log.info("%s: the token could not be renewed: %s", self._server, fault)
        return token

    # What is known, and kept.

    async def _discovered(self, challenge: Challenge) -> ProtectedResource:
        known = [] if self._token is None else [self._token.issuer]
        self._site = await discover(self._login_client, self._server, challenge, issuer=self._issuer, known=known)
        return self._site

    async def _keep(self, token: Token) -> None:
        old, self._token = self._token, token
        await self._tokens.save(token, old)


def _belongs(token: Token, site: ProtectedResource) -> bool:
    return (token.issuer, token.resource) == (site.server.issuer, site.resource)


def _union(*lists: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(scope for scopes in lists for scope in scopes))


def _lines(token: Token | None) -> bytes:
    return b"" if token is None else b"Authorization: Bearer %b\r\n" % token.access_token.encode()
