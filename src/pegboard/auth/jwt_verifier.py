"""Verifies access tokens that are JWTs (RFC 9068) of one issuer."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from pegboard.auth.claims import check_claims, read_principal
from pegboard.auth.dpop import ProofVerifier
from pegboard.auth.issuer import Issuer
from pegboard.auth.issuer_keys import IssuerKeys
from pegboard.auth.request_credentials import RequestCredentials, Verified, VerifiedIdentity, invalid_token
from pegboard.auth.signatures import BadJwt, check_header, looks_like_jwt, split_jwt, verify_signature

# RFC 9068, 4: "verify that the typ header value is at+jwt or application/at+jwt"; most issuers still write JWT, or nothing.
_TYPES: Final = frozenset({None, "jwt", "at+jwt", "application/at+jwt"})


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
        if not looks_like_jwt(credentials.token):
            return False
        try:
            return split_jwt(credentials.token)[1].get("iss") == self._issuer.issuer
        except BadJwt:
            return False

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
