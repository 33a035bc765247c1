"""Verify the access tokens of one issuer: those that are JWTs (RFC 9068), or all by asking it (RFC 7662)."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from msgspec import UNSET

from pegboard.auth.claims import check_audience, check_claims, check_times, read_principal
from pegboard.auth.dpop import ProofVerifier
from pegboard.auth.issuer import Introspection, Issuer, IssuerConnection
from pegboard.auth.issuer_keys import IssuerKeys
from pegboard.auth.request_credentials import RequestCredentials, Verified, VerifiedIdentity, invalid_token, unavailable
from pegboard.auth.signatures import BadJwt, check_header, looks_like_jwt, split_jwt, verify_signature
from pegboard.bounded_dict import BoundedDict
from pegboard.errors import ServerFault

# RFC 9068, 4: "verify that the typ header value is at+jwt or application/at+jwt"; most issuers still write JWT, or nothing.
_TYPES: Final = frozenset({None, "jwt", "at+jwt", "application/at+jwt"})

_log = logging.getLogger("pegboard.auth")

AT_ONCE: Final = 32
WAITING: Final = 256
INACTIVE_SECONDS: Final = 5.0
RETRY_SECONDS: Final = 2.0


class JwtVerifier:
    """Verifies the JWTs of one issuer."""

    def __init__(
        self, issuer: Issuer, keys: IssuerKeys, proofs: ProofVerifier, clock: Callable[[], float] = time.time
    ) -> None:
        self._issuer = issuer
        self._keys = keys
        self._proofs = proofs
        self._clock = clock

    def claims(self, credentials: RequestCredentials) -> bool:
        """Whether the token is a JWT that names this issuer."""
        return _named_issuer(credentials) == self._issuer.issuer

    def verify(self, credentials: RequestCredentials) -> Verified:
        """Verify a token: at once if the keys of the issuer are known."""
        try:
            header, claims = split_jwt(credentials.token)
            algorithm = check_header(header, _TYPES)
        except BadJwt as problem:
            raise invalid_token(str(problem), credentials.scheme) from None
        key_id = header.get("kid")
        keys = self._keys.find(key_id, algorithm)
        if keys is None:
            return self._fetch_and_verify(credentials, claims, key_id, algorithm)
        return self._verify(credentials, claims, keys, algorithm)

    async def _fetch_and_verify(
        self, credentials: RequestCredentials, claims: Mapping[str, Any], key_id: object, algorithm: str
    ) -> VerifiedIdentity:
        return self._verify(credentials, claims, await self._keys.fetch(key_id, algorithm), algorithm)

    def _verify(
        self, credentials: RequestCredentials, claims: Mapping[str, Any], keys: list[Any], algorithm: str
    ) -> VerifiedIdentity:
        scheme = credentials.scheme
        if not keys:
            raise invalid_token("The token is signed with an unknown key", scheme)
        if not any(verify_signature(credentials.token, key, algorithm) for key in keys):
            raise invalid_token("The signature of the token is wrong", scheme)
        expires = check_claims(claims, self._issuer, credentials, self._clock())
        self._proofs.check(credentials, claims.get("cnf"))
        return VerifiedIdentity(read_principal(claims, self._issuer, scheme), expires)


class IntrospectionVerifier:
    """Verifies the tokens of one issuer by asking it."""

    def __init__(
        self,
        issuer: Issuer,
        asked: Introspection,
        connection: IssuerConnection,
        proofs: ProofVerifier,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._issuer = issuer
        self._asked = asked
        self._url = asked.url
        self._connection = connection
        self._proofs = proofs
        self._clock = clock
        self._inactive: BoundedDict[bytes, float] = BoundedDict(4096)
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._waiting = 0
        self._down_until = 0.0
        self._failed = False

    def claims(self, credentials: RequestCredentials) -> bool:
        """Whether the token is opaque, or a JWT that names this issuer."""
        return _named_issuer(credentials) in (self._issuer.issuer, UNSET)

    def verify(self, credentials: RequestCredentials) -> Verified:
        """Ask the issuer, unless it has just said that the token is not active, or does not respond."""
        digest = hashlib.sha256(credentials.token.encode()).digest()
        now = time.monotonic()
        if self._inactive.get(digest, 0.0) > now:
            raise invalid_token("The token is not active", credentials.scheme)
        if now < self._down_until or self._waiting >= WAITING:
            raise unavailable("The issuer of the token cannot be asked now; try again later")
        return self._ask(credentials, digest)

    async def _ask(self, credentials: RequestCredentials, digest: bytes) -> VerifiedIdentity:
        self._waiting += 1
        try:
            async with self._slots:
                claims = await self._request(credentials.token)
        except ServerFault as fault:
            self._down_until = time.monotonic() + RETRY_SECONDS
            if not self._failed:
                _log.error(
                    "the issuer %s cannot be asked, so its tokens are not accepted: %s", self._issuer.issuer, fault
                )
            self._failed = True
            raise unavailable("The issuer of the token cannot be asked now; try again later") from None
        finally:
            self._waiting -= 1
        self._failed = False
        scheme = credentials.scheme
        if claims.get("active") is not True:
            self._inactive[digest] = time.monotonic() + INACTIVE_SECONDS
            raise invalid_token("The token is not active", scheme)
        if claims.get("iss", self._issuer.issuer) != self._issuer.issuer:
            raise invalid_token("The token is of another issuer", scheme)
        check_audience(claims.get("aud"), self._issuer, credentials)
        expires = check_times(claims, self._issuer.leeway, scheme, self._clock())
        self._proofs.check(credentials, claims.get("cnf"))
        return VerifiedIdentity(read_principal(claims, self._issuer, scheme), expires, self._asked.seconds)

    async def _request(self, token: str) -> Mapping[str, object]:
        if self._url is None:
            named = (await self._connection.discover()).get("introspection_endpoint")
            if not isinstance(named, str):
                raise ServerFault(f"{self._issuer.issuer}: its metadata name no introspection_endpoint")
            self._url = named
        form = (("token", token), ("token_type_hint", "access_token"))
        return await self._connection.post(self._url, form, self._asked.client_id, self._asked.client_secret)


def _named_issuer(credentials: RequestCredentials) -> object:
    """The issuer that a token names; UNSET if it is not a JWT."""
    if not looks_like_jwt(credentials.token):
        return UNSET
    try:
        return split_jwt(credentials.token)[1].get("iss")
    except BadJwt:
        return UNSET
