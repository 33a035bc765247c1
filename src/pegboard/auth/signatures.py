"""Verifies signatures of JWTs, with joserfc: the one place that imports it for the server."""

from __future__ import annotations

import base64
import binascii
import warnings
from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any, Final

import msgspec

from pegboard.errors import SetupError

ALGORITHMS: Final = frozenset(
    {"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA", "Ed25519"}
)
"""Only asymmetric ones: with a symmetric one, every server that verifies tokens could also forge them."""

_KINDS: Final = {"R": "RSA", "P": "RSA", "ES": "EC", "Ed": "OKP"}
# The name of Ed25519 before RFC 9864, which most issuers use; joserfc warns of it.
_DEPRECATED: Final = "EdDSA"
_EXTRA: Final = "Tokens of issuers need the auth extra: pip install 'pegboard[auth]'"


class BadJwt(Exception):
    """A text is not a JWT that can be accepted; the message says why, without its content."""


def split_jwt(token: str) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """The header and the claims of a JWT, before its signature is verified."""
    parts = token.split(".")
    if len(parts) != 3:
        raise BadJwt("The token is not a JWT")
    header, claims = (_decode(part) for part in parts[:2])
    return header, claims


def looks_like_jwt(token: str) -> bool:
    """Whether a token has the form of a JWT."""
    return token.count(".") == 2 and token.startswith("ey")


def _decode(part: str) -> Mapping[str, Any]:
    try:
        read = msgspec.json.decode(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    except (binascii.Error, ValueError, msgspec.MsgspecError):
        raise BadJwt("The token is not a JWT") from None
    if not isinstance(read, dict):
        raise BadJwt("The token is not a JWT")
    return read


def check_header(header: Mapping[str, Any], types: frozenset[str | None]) -> str:
    """The algorithm of a JWT whose header can be accepted."""
    algorithm, kind = header.get("alg"), header.get("typ")
    if algorithm not in ALGORITHMS:
        raise BadJwt("The token is signed with an algorithm that is not accepted")
    if "crit" in header:
        # RFC 7515, 4.1.11: "If any of the listed extension Header Parameters are not understood … the JWS is invalid"
        raise BadJwt("The token requires an extension that is not supported")
    if (kind.lower() if isinstance(kind, str) else kind) not in types:
        raise BadJwt("The token is of another type")
    return str(algorithm)


def fits(key: Mapping[str, Any], algorithm: str) -> bool:
    """Whether a key of a key set can verify this algorithm."""
    kind = _KINDS.get(algorithm[:1]) or _KINDS.get(algorithm[:2])
    usable = key.get("use") in (None, "sig") and key.get("alg") in (None, algorithm, "EdDSA")
    return key.get("kty") == kind and usable


def load_key(key: Mapping[str, Any]) -> Any:
    """A public key; BadJwt if it is malformed or private."""
    try:
        from joserfc.errors import JoseError  # noqa: PLC0415 - an extra
        from joserfc.jwk import JWKRegistry  # noqa: PLC0415 - the same
    except ImportError:
        raise SetupError(_EXTRA) from None
    if "d" in key or key.get("kty") not in ("RSA", "EC", "OKP"):
        raise BadJwt("The key is not a public key")
    try:
        return JWKRegistry.import_key(dict(key))
    except (JoseError, ValueError, TypeError, KeyError):
        raise BadJwt("The key cannot be used") from None


def thumbprint(key: Any) -> str:
    """The thumbprint of a loaded key (RFC 7638)."""
    return str(key.thumbprint())


def verify_signature(token: str, key: Any, algorithm: str) -> bool:
    """Whether a loaded key has signed a JWT."""
    from joserfc import jws  # noqa: PLC0415 - an extra
    from joserfc.errors import JoseError  # noqa: PLC0415 - the same

    try:
        with warnings.catch_warnings() if algorithm == _DEPRECATED else nullcontext():
            if algorithm == _DEPRECATED:
                warnings.simplefilter("ignore")
            jws.deserialize_compact(token, key, algorithms=[algorithm])
    except (JoseError, ValueError, TypeError):
        return False
    return True


def require_joserfc() -> None:
    """Reject a configuration that needs the extra where it is not installed."""
    try:
        import joserfc  # noqa: F401, PLC0415 - an extra
    except ImportError:
        raise SetupError(_EXTRA) from None
