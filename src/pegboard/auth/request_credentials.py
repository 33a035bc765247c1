"""The credentials of a request, what verifying them yields, and the challenge that asks for others."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final, Protocol, TypeAlias

from msgspec import Struct

from pegboard.auth.principal import Principal
from pegboard.errors import Refusal

TOKEN_BYTES: Final = 8192
"""The longest token that is read; a longer one is rejected without being parsed."""

# "b64token" (RFC 6750, 2.1): one token has one spelling in a header.
_TOKEN: Final = re.compile(rb"[A-Za-z0-9._~+/-]+=*")
_SCHEMES: Final = {b"bearer": "Bearer", b"dpop": "DPoP"}

WELL_KNOWN: Final = "/.well-known/oauth-protected-resource"
# "scope-token = 1*( %x21 / %x23-5B / %x5D-7E )" (RFC 6749, 3.3)
_SCOPE: Final = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+")
# What a quoted text can contain without escapes, in the characters that RFC 6750 (3) permits for a description.
_UNQUOTABLE: Final = re.compile(r"[^\x20-\x21\x23-\x5b\x5d-\x7e]")


class AuthRefusal(Refusal):
    """A request is not authenticated.

    error: the error code of RFC 6750 or RFC 9449; empty if the request has no credentials at all.
    scheme: the authentication scheme that the error is about.
    """

    code = -32600

    def __init__(
        self,
        message: str,
        error: str = "",
        *,
        scheme: str = "Bearer",
        status: int = 401,
        retry_after: int | None = None,
    ) -> None:
        super().__init__(message, retry_after=retry_after)
        self.error = error
        self.scheme = scheme
        self.http_status = status


def invalid_token(reason: str, scheme: str = "Bearer") -> AuthRefusal:
    """ "The access token provided is expired, revoked, malformed, or invalid for other reasons" (RFC 6750, 3.1)"""
    return AuthRefusal(reason, "invalid_token", scheme=scheme)


def invalid_request(reason: str) -> AuthRefusal:
    """ "The request … is otherwise malformed. The resource server SHOULD respond with the HTTP 400" (RFC 6750, 3.1)"""
    return AuthRefusal(reason, "invalid_request", status=400)


def unavailable(reason: str) -> AuthRefusal:
    """The credentials cannot be verified now: neither accepted nor rejected."""
    return AuthRefusal(reason, status=503, retry_after=5)


class RequestCredentials(Struct, frozen=True):
    """A token as it was sent.

    scheme: `Bearer` or `DPoP`.
    resource: the URL of the endpoint, which the token must be issued for unless audiences are configured.
    proof: the DPoP proof.
    method, url: of the request, which a proof names.
    proven: the proof was verified when the request arrived, which is still being answered.
    """

    scheme: str
    token: str
    resource: str = ""
    proof: str | None = None
    method: str = "POST"
    url: str = ""
    proven: bool = False

    def __repr__(self) -> str:
        return f"RequestCredentials({self.scheme} …)"


class VerifiedIdentity(Struct, frozen=True):
    """Verified credentials.

    principal: who sent them.
    expires: when they expire, in seconds since the epoch; None if they do not.
    seconds: how long they may be used before they are verified again.
    """

    principal: Principal
    expires: float | None = None
    seconds: float = 300.0


Verified: TypeAlias = VerifiedIdentity | Awaitable[VerifiedIdentity]
"""At once, or later where another server has to be asked."""

Verify: TypeAlias = Callable[[str], Principal | Awaitable[Principal | None] | None]
"""A function of your own that returns the principal of a token, or None to reject it."""


class TokenVerifier(Protocol):
    """Verifies the tokens of one source, such as an issuer."""

    def claims(self, credentials: RequestCredentials) -> bool:
        """Whether the token, by its form, is of this source."""

    def verify(self, credentials: RequestCredentials) -> Verified:
        """Verify a token; raises AuthRefusal if it is rejected."""


def read_credentials(headers: Mapping[bytes, bytes], query: bytes) -> tuple[str, str] | None:
    """The scheme and the token that a request carries; None if it carries none, AuthRefusal if they are malformed."""
    # "Access tokens MUST NOT be included in the URI query string" (Token Requirements)
    if query and any(field.partition(b"=")[0] == b"access_token" for field in query.split(b"&")):
        raise invalid_request("A token in the query string is not accepted: send it in the Authorization header")
    sent = headers.get(b"authorization")
    if sent is None:
        return None
    name, _, token = sent.strip().partition(b" ")
    scheme = _SCHEMES.get(name.lower())
    if scheme is None:
        if name and not token:
            # Most likely a token alone, which the message therefore does not repeat.
            raise invalid_request("The Authorization header has no scheme: send it as Bearer <token>")
        return None
    token = token.strip(b" ")
    if len(token) > TOKEN_BYTES:
        raise invalid_token(f"The token is longer than {TOKEN_BYTES} bytes", scheme)
    if _TOKEN.fullmatch(token) is None:
        raise invalid_request(f"The Authorization header must have the form: {scheme} <token>")
    return scheme, token.decode("ascii")


def is_scope(text: str) -> bool:
    """Whether a text is a valid scope."""
    return _SCOPE.fullmatch(text) is not None


def write_challenge(scheme: str, parameters: Mapping[str, str]) -> bytes:
    """One challenge; parameters without a value are left out."""
    written = ", ".join(f'{name}="{_UNQUOTABLE.sub("?", value)}"' for name, value in parameters.items() if value)
    return f"{scheme} {written}".rstrip().encode("ascii")


def join_scopes(scopes: Iterable[str]) -> str:
    """Scopes as a parameter has them, in an order that does not change."""
    return " ".join(sorted(scopes))
