"""Verifies that the sender of a bound token has its key: DPoP (RFC 9449)."""

from __future__ import annotations

import base64
import hashlib
import time
from collections.abc import Callable, Mapping
from typing import Final
from urllib.parse import urlsplit

from pegboard.auth.request_credentials import AuthRefusal, RequestCredentials, invalid_token
from pegboard.auth.signatures import BadJwt, check_header, load_key, split_jwt, thumbprint, verify_signature
from pegboard.bounded_dict import BoundedDict

_TYPES: Final = frozenset({"dpop+jwt"})
PROOF_SECONDS: Final = 60.0
_PROOF_BYTES: Final = 4096
_REMEMBERED: Final = 65_536


class ProofVerifier:
    """Checks proofs; each is accepted once."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._used: BoundedDict[bytes, float] = BoundedDict(_REMEMBERED)

    def check(self, credentials: RequestCredentials, confirmation: object) -> None:
        """Reject a bound token without a valid proof, and a proof without a bound token."""
        scheme = credentials.scheme
        if confirmation is None:
            if scheme == "DPoP":
                raise invalid_token("The token is not bound to a key: send it as a Bearer token", scheme)
            return
        bound_to = confirmation.get("jkt") if isinstance(confirmation, Mapping) else None
        if not isinstance(bound_to, str):
            raise invalid_token("The token is bound in a way that is not supported here", scheme)
        if scheme != "DPoP":
            # RFC 9449, 7.1: "MUST … reject … a DPoP-bound access token received as a bearer token"
            raise invalid_token("The token is bound to a key: send it with the DPoP scheme", "DPoP")
        if credentials.proven:
            return
        if credentials.proof is None or len(credentials.proof) > _PROOF_BYTES:
            raise _invalid_proof("The request needs one DPoP proof")
        try:
            self._check_proof(credentials, credentials.proof, bound_to)
        except BadJwt as problem:
            raise _invalid_proof(str(problem).replace("The token", "The proof")) from None

    def _check_proof(self, credentials: RequestCredentials, proof: str, bound_to: str) -> None:
        header, claims = split_jwt(proof)
        algorithm = check_header(header, _TYPES)
        described = header.get("jwk")
        if not isinstance(described, dict):
            raise BadJwt("The proof names no key")
        key = load_key(described)
        if not verify_signature(proof, key, algorithm):
            raise BadJwt("The signature of the proof is wrong")
        if thumbprint(key) != bound_to:
            raise invalid_token("The token is bound to another key", "DPoP")
        if claims.get("htm") != credentials.method:
            raise BadJwt("The proof is for another method")
        if _normalize(claims.get("htu")) != _normalize(credentials.url):
            raise BadJwt("The proof is for another URL")
        digest = hashlib.sha256(credentials.token.encode()).digest()
        if claims.get("ath") != base64.urlsafe_b64encode(digest).rstrip(b"=").decode():
            raise BadJwt("The proof is for another token")
        now, made, name = self._clock(), claims.get("iat"), claims.get("jti")
        if isinstance(made, bool) or not isinstance(made, int | float) or abs(now - made) > PROOF_SECONDS:
            raise BadJwt("The proof was not made just now")
        if not isinstance(name, str) or not name:
            raise BadJwt("The proof has no id")
        # RFC 9449, 11.1: a server "stores the jti value of each DPoP proof for the time window in which … accepted"
        used = hashlib.sha256(f"{bound_to} {name}".encode()).digest()
        if self._used.get(used, 0.0) > now:
            raise BadJwt("The proof was already used")
        self._used[used] = made + 2 * PROOF_SECONDS


def _invalid_proof(reason: str) -> AuthRefusal:
    return AuthRefusal(reason, "invalid_dpop_proof", scheme="DPoP")


def _normalize(url: object) -> str | None:
    """A URL without query and fragment, its scheme and host in lower case (RFC 9449, 4.3)."""
    if not isinstance(url, str):
        return None
    try:
        parts = urlsplit(url)
        default = {"http": 80, "https": 443}.get(parts.scheme)
        host = (parts.hostname or "") + ("" if parts.port in (None, default) else f":{parts.port}")
    except ValueError:
        return None
    return f"{parts.scheme}://{host}{parts.path}"
