"""Client authentication at a token endpoint."""

from __future__ import annotations

import base64
import secrets
import time
from typing import Final
from urllib.parse import quote_plus

from msgspec import Struct

from pegboard.client.login.discovery import ServerMetadata
from pegboard.errors import MalformedMessage, SetupError

ASSERTION: Final = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
ASSERTION_SECONDS: Final = 60
METHODS: Final = ("none", "client_secret_basic", "client_secret_post")


class Credentials(Struct, frozen=True):
    """A client as one authorization server knows it; `method` is the authentication method it was registered with, if
    any.

    `private_key` is in PEM, and signs with `algorithm`.
    """

    client_id: str
    client_secret: str | None = None
    method: str | None = None
    private_key: str | None = None
    algorithm: str = "ES256"

    def __repr__(self) -> str:
        return f"Credentials({self.client_id!r})"


def choose_method(credentials: Credentials, server: ServerMetadata) -> str:
    """The authentication method of a client: the registered one, if the server supports it."""
    if credentials.private_key is not None:
        return "private_key_jwt"
    if not credentials.client_secret:
        return "none"
    # "If omitted, the default is client_secret_basic" (RFC 8414, 2)
    taken = server.token_endpoint_auth_methods_supported
    usable = [method for method in METHODS if taken is None or method in taken]
    if credentials.method in usable:
        return credentials.method
    method = next(
        (candidate for candidate in ("client_secret_basic", "client_secret_post", "none") if candidate in usable), None
    )
    if method is None:
        raise MalformedMessage(
            f"{server.issuer}: supports only the client authentication methods {', '.join(taken or ())[:200]}, which "
            "are not implemented"
        )
    return method


def authenticate(credentials: Credentials, server: ServerMetadata) -> tuple[list[tuple[str, str]], bytes]:
    """The fields and header lines that authenticate the client."""
    secret = credentials.client_secret or ""
    match choose_method(credentials, server):
        case "client_secret_basic":
            pair = f"{quote_plus(credentials.client_id)}:{quote_plus(secret)}"
            return [], b"Authorization: Basic %b\r\n" % base64.b64encode(pair.encode())
        case "client_secret_post":
            return [("client_id", credentials.client_id), ("client_secret", secret)], b""
        case "private_key_jwt":
            fields = [("client_id", credentials.client_id), ("client_assertion_type", ASSERTION)]
            return [*fields, ("client_assertion", _sign(credentials, server.issuer))], b""
        case _:
            return [("client_id", credentials.client_id)], b""


def _sign(credentials: Credentials, issuer: str) -> str:
    """A short-lived assertion for one issuer (RFC 7523), useless to anyone else."""
    try:
        from joserfc import jwt  # noqa: PLC0415 — an extra: for those who sign
        from joserfc.errors import JoseError  # noqa: PLC0415 — the same
        from joserfc.jwk import ECKey, OKPKey, RSAKey  # noqa: PLC0415 — the same
    except ImportError:
        raise SetupError("Signing with a private key needs the auth extra: pip install 'pegboard[auth]'") from None
    algorithm = credentials.algorithm
    kinds: dict[str, type[ECKey | RSAKey | OKPKey]] = {"ES": ECKey, "RS": RSAKey, "PS": RSAKey, "Ed": OKPKey}
    kind = kinds.get(algorithm[:2])
    if kind is None:
        raise SetupError(f"{algorithm!r} is not a supported signature algorithm; use ES256, RS256, PS256 or Ed25519")
    now = int(time.time())
    claims = {
        "iss": credentials.client_id,
        "sub": credentials.client_id,
        "aud": issuer,
        "iat": now,
        "exp": now + ASSERTION_SECONDS,
        "jti": secrets.token_urlsafe(16),
    }
    try:
        key = kind.import_key(credentials.private_key or "")
        return jwt.encode({"alg": algorithm, "typ": "JWT"}, claims, key, algorithms=[algorithm])
    except (JoseError, ValueError, TypeError):
        # The text of such an error may contain the key.
        raise SetupError(f"The private key of {credentials.client_id} is not a PEM key for {algorithm}") from None
