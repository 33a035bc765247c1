"""`Auth`, the value of `Board(auth=…)`: which credentials a server accepts."""

from __future__ import annotations

import inspect
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Final
from urllib.parse import urlsplit

from msgspec.structs import replace

from pegboard.auth.api_keys import PREFIX, ApiKeys, KeyRecords
from pegboard.auth.dpop import ProofVerifier
from pegboard.auth.issuer import Connect, Issuer, IssuerConnection
from pegboard.auth.issuer_keys import IssuerKeys
from pegboard.auth.openid_login import LoginAttempt, OpenIdLogin
from pegboard.auth.principal import Principal
from pegboard.auth.request_credentials import (
    RequestCredentials,
    TokenVerifier,
    Verified,
    VerifiedIdentity,
    Verify,
    invalid_token,
    is_scope,
)
from pegboard.auth.signatures import require_joserfc
from pegboard.auth.token_verifiers import IntrospectionVerifier, JwtVerifier
from pegboard.auth.trusted_proxy import SCHEME, TrustedProxy
from pegboard.bounded_dict import BoundedDict
from pegboard.errors import SetupError

LOCAL_PREFIX: Final = "local:"
_SEEN: Final = 500


class Auth:
    """Which credentials a server accepts: tokens of issuers, API keys, those of a proxy, or your own."""

    def __init__(
        self,
        *,
        issuers: Iterable[Issuer] = (),
        keys: bool = False,
        verify: Verify | None = None,
        proxy: TrustedProxy | None = None,
        public_url: str | None = None,
        scopes: Iterable[str] = (),
        implies: Mapping[str, Iterable[str]] | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Create it.

        issuers: the authorization servers whose tokens are accepted.
        keys: accept API keys, which `pegboard keys` adds to the store of the server.
        verify: a function of your own, async or not, that returns the Principal of a token, or None to reject it.
        proxy: a proxy in front, which has authenticated the caller.
        public_url: the URL of this server as clients see it, such as https://tools.example.com.
        scopes: the scopes that clients should request at their first login.
        implies: for a broad scope, the narrower ones that it includes.
        clock: the time in seconds since the epoch, for tests.
        """
        self.issuers = tuple(issuers)
        self.keys = keys
        self.proxy = proxy
        self._verify = verify
        self._clock = clock
        self.public_url = _read_url(public_url) if public_url else ""
        self._public_path = urlsplit(self.public_url).path.encode()
        self.scopes = _read_scopes(scopes)
        self._implied = {scope: _read_scopes(others) for scope, others in (implies or {}).items()}
        self.authorization_servers = tuple(issuer.issuer for issuer in self.issuers)
        self._revoked: list[Callable[[str], None]] = []
        self._verifiers: tuple[tuple[str, TokenVerifier], ...] = ()
        self._proxied: TokenVerifier | None = None
        self._connections: list[IssuerConnection] = []
        self._key_sets: list[IssuerKeys] = []
        self._api_keys: ApiKeys | None = None
        self.logins: Mapping[str, OpenIdLogin] = {}
        # For people to look at: which principals there are, and what they may do.
        self.seen: BoundedDict[str, Principal] = BoundedDict(_SEEN)
        self._started = False
        self._surroundings: tuple[KeyRecords | None, Connect] | None = None
        self._changed: list[Callable[[], None]] = []
        self.keeps_tokens = False
        """Whether callers keep their tokens: a gateway that exchanges them sets it."""
        self._check()

    def _check(self) -> None:
        if not (self.issuers or self.keys or self.proxy or self._verify):
            raise SetupError("auth accepts nothing: give it issuers, keys=True, a proxy or verify")
        prefixes = [issuer.prefix for issuer in self.issuers]
        signed = None if self.proxy is None else self.proxy.issuer
        # The same issuer in both places means the same callers.
        if signed is not None and (signed.issuer, signed.prefix) not in {
            (one.issuer, one.prefix) for one in self.issuers
        }:
            prefixes.append(signed.prefix)
        if len(set(prefixes)) < len(prefixes):
            raise SetupError(
                "auth: several issuers need different prefixes, or their principals with the same id would be one caller"
            )
        for issuer in self.issuers:
            issuer.check()
            if not issuer.audiences and not self.public_url:
                raise SetupError(
                    f"auth: the tokens of {issuer.issuer} need an audience; set it, or set publicUrl to the URL of this server"
                )
        if self.proxy is not None:
            self.proxy.check()
        if self.issuers or signed is not None:
            require_joserfc()
        # Longest first: an id belongs to the source with the longest prefix of it.
        sources = {*prefixes, PREFIX, LOCAL_PREFIX, *(() if self.proxy is None else (self.proxy.prefix,))}
        self._prefixes = sorted(sources, key=len, reverse=True)

    # -- lifetime ----------------------------------------------------------------------------------------------------

    async def start(self, records: KeyRecords | None, connect: Connect) -> None:
        """Prepare for requests: with the store of the server, if it has one, and a client for issuers."""
        if self._started:
            return
        self._started = True
        self._surroundings = records, connect
        proofs = ProofVerifier(self._clock)
        verifiers: list[tuple[str, TokenVerifier]] = []
        if self.keys and records is not None:
            api_keys = self._api_keys = ApiKeys(records, self._clock)
            api_keys.revoked = self._note_revoked
            verifiers.append((PREFIX, api_keys))
        for issuer in self.issuers:
            connection = connect(issuer.issuer)
            self._connections.append(connection)
            if issuer.introspection is not None:
                asking = IntrospectionVerifier(issuer, issuer.introspection, connection, proofs, self._clock)
                verifiers.append((issuer.prefix, asking))
            else:
                verifiers.append((issuer.prefix, self._jwt_verifier(issuer, connection, proofs)))
            if issuer.sign_in is not None:
                login = OpenIdLogin(issuer, issuer.sign_in, connection, self._clock)
                self._key_sets.append(login.keys)
                self.logins = {**self.logins, issuer.issuer: login}
        # Opaque tokens could be of any issuer that is asked: first those that a verifier recognizes.
        self._verifiers = tuple(sorted(verifiers, key=lambda entry: isinstance(entry[1], IntrospectionVerifier)))
        if self.proxy is not None and self.proxy.issuer is not None:
            connection = connect(self.proxy.issuer.issuer)
            self._connections.append(connection)
            self._proxied = self._jwt_verifier(self.proxy.issuer, connection, proofs)

    def _jwt_verifier(self, issuer: Issuer, connection: IssuerConnection, proofs: ProofVerifier) -> JwtVerifier:
        keys = IssuerKeys(issuer.issuer, issuer.jwks_uri, connection)
        self._key_sets.append(keys)
        return JwtVerifier(issuer, keys, proofs, self._clock)

    async def stop(self) -> None:
        """Close the connections to issuers."""
        key_sets, self._key_sets = self._key_sets, []
        connections, self._connections = self._connections, []
        self._verifiers, self._proxied = (), None
        self._api_keys, self.logins = None, {}
        self._started = False
        for keys in key_sets:
            await keys.close()
        for connection in connections:
            await connection.close()

    async def change(self, other: Auth) -> None:
        """Accept what `other` accepts, from now on; what was verified before is verified again."""
        if self._started and self._surroundings is not None:
            await other.start(*self._surroundings)
        before = Auth.__new__(Auth)
        before.__dict__.update(self.__dict__)
        self.__dict__.update(
            {**other.__dict__, "_revoked": self._revoked, "_changed": self._changed, "keeps_tokens": self.keeps_tokens}
        )
        other._revoked = self._revoked
        for callback in self._changed:
            callback()
        await before.stop()

    def on_changed(self, callback: Callable[[], None]) -> None:
        """Call back when other credentials are accepted."""
        self._changed.append(callback)

    def on_revoked(self, callback: Callable[[str], None]) -> None:
        """Call back with the id of each principal whose credentials were revoked."""
        self._revoked.append(callback)

    def _note_revoked(self, principal: str) -> None:
        for callback in self._revoked:
            callback(principal)

    @property
    def has_sign_in(self) -> bool:
        """Whether people can prove with a browser who they are."""
        return self.keys or self.proxy is not None or any(issuer.sign_in is not None for issuer in self.issuers)

    def strip_public_path(self, path: bytes) -> bytes:
        """A path as this server sees it, if it begins with the path of the public URL."""
        return path.removeprefix(self._public_path)

    # -- verifying ---------------------------------------------------------------------------------------------------

    def verify(self, credentials: RequestCredentials) -> Verified:
        """Verify credentials; raises AuthRefusal if they are rejected."""
        if credentials.scheme == SCHEME:
            return self._verify_proxied(credentials)
        candidates = [(prefix, candidate) for prefix, candidate in self._verifiers if candidate.claims(credentials)]
        if len(candidates) == 1 and self._verify is None:
            prefix, verifier = candidates[0]
            return self._finish(verifier.verify(credentials), prefix)
        if candidates:
            return self._try_all(candidates, credentials)
        if self._verify is not None:
            found = self._verify(credentials.token)
            return self._await_own(found) if inspect.isawaitable(found) else self._accept_own(found)
        raise invalid_token("The token is not of an issuer that is accepted here", credentials.scheme)

    def verify_key(self, digest: bytes) -> Verified:
        """Verify an API key by its digest, where the key itself is not kept."""
        if self._api_keys is None:
            raise invalid_token("API keys are not accepted here")
        return self._finish(self._api_keys.verify_digest(digest), PREFIX)

    async def finish_login(
        self, issuer: str, attempt: LoginAttempt, redirect_uri: str, parameters: Mapping[str, str]
    ) -> VerifiedIdentity:
        """The person who returns from an issuer; AuthRefusal if the sign-in is not accepted.

        attempt: what `begin` of the login returned.
        redirect_uri: the URL that the issuer sent the browser to.
        parameters: the query of that request.
        """
        login = self.logins.get(issuer)
        if login is None:
            raise invalid_token("This server has no sign-in at this issuer")
        return self._complete(await login.finish(attempt, redirect_uri, parameters), login.issuer.prefix)

    def _verify_proxied(self, credentials: RequestCredentials) -> Verified:
        proxy = self.proxy
        if proxy is None:
            raise invalid_token("No proxy is trusted here")
        if self._proxied is None or proxy.issuer is None:
            return self._complete(proxy.identify(credentials.token), proxy.prefix)
        return self._finish(self._proxied.verify(replace(credentials, scheme="Bearer")), proxy.issuer.prefix)

    async def _try_all(
        self, candidates: Sequence[tuple[str, TokenVerifier]], credentials: RequestCredentials
    ) -> VerifiedIdentity:
        """An opaque token does not name its issuer: ask one after the other."""
        refusal: Exception | None = None
        for prefix, verifier in candidates:
            try:
                verified = verifier.verify(credentials)
                found = verified if isinstance(verified, VerifiedIdentity) else await verified
                return self._complete(found, prefix)
            except Exception as problem:  # noqa: BLE001 - AuthRefusal; anything else is raised below as well
                # One that could not be asked might have accepted it: that is not a rejection.
                if refusal is None or getattr(problem, "http_status", 500) > 500:
                    refusal = problem
        if self._verify is not None and getattr(refusal, "http_status", 500) < 500:
            found_own = self._verify(credentials.token)
            return self._accept_own(await found_own if inspect.isawaitable(found_own) else found_own)
        assert refusal is not None  # noqa: S101 - there was a candidate
        raise refusal

    def _finish(self, verified: Verified, prefix: str) -> Verified:
        if isinstance(verified, VerifiedIdentity):
            return self._complete(verified, prefix)
        return self._await(verified, prefix)

    async def _await(self, verified: Awaitable[VerifiedIdentity], prefix: str) -> VerifiedIdentity:
        return self._complete(await verified, prefix)

    async def _await_own(self, found: Awaitable[Principal | None]) -> VerifiedIdentity:
        return self._accept_own(await found)

    def _accept_own(self, found: object) -> VerifiedIdentity:
        if not isinstance(found, Principal) or not found:
            raise invalid_token("The token is not accepted here")
        principal = self.seen[found.id] = replace(found, scopes=self._with_implied(found.scopes))
        return VerifiedIdentity(principal)

    def _complete(self, identity: VerifiedIdentity, prefix: str) -> VerifiedIdentity:
        """Reject an id that another source uses, and add the scopes that broader ones include."""
        principal = identity.principal
        owner = next((known for known in self._prefixes if principal.id.startswith(known)), "")
        if owner != prefix:
            raise invalid_token("The token names a principal of another issuer")
        scopes = self._with_implied(principal.scopes)
        if scopes is not principal.scopes:
            principal = replace(principal, scopes=scopes)
        self.seen[principal.id] = principal
        return replace(identity, principal=principal)

    def _with_implied(self, scopes: frozenset[str]) -> frozenset[str]:
        """ "Servers MUST account for scope hierarchies" (Step-Up Authorization Flow)"""
        if not self._implied:
            return scopes
        found, added = scopes, scopes
        while added:
            added = frozenset().union(*(self._implied.get(scope, ()) for scope in added)) - found
            found |= added
        return found


def _read_scopes(scopes: Iterable[str]) -> frozenset[str]:
    read = frozenset((scopes,) if isinstance(scopes, str) else scopes)
    for scope in read:
        if not is_scope(scope):
            raise SetupError(f"auth: {scope!r} is not a scope: it must not contain spaces, quotes or backslashes")
    if "offline_access" in read:
        # "SHOULD NOT include offline_access … refresh tokens are not a resource requirement" (Refresh Tokens)
        raise SetupError("auth: offline_access is not a scope of a server; clients request it themselves")
    return read


def _read_url(text: str) -> str:
    parts = urlsplit(text)
    if (
        parts.scheme not in ("http", "https")
        or not parts.netloc
        or parts.query
        or parts.fragment
        or "@" in parts.netloc
    ):
        raise SetupError(f"auth: publicUrl {text!r} is not a URL like https://tools.example.com")
    return text.rstrip("/")
