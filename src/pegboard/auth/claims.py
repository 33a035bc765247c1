"""Checks the claims of a token, and reads its principal from them."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Mapping
from typing import Final

from pegboard.auth.issuer import Issuer
from pegboard.auth.principal import Principal, find_claim
from pegboard.auth.request_credentials import RequestCredentials, invalid_token
from pegboard.read_only import read_only

ID_CHARACTERS: Final = 255
# ID tokens and refresh tokens are for clients and for the issuer. Some issuers sign them with the same key.
_NOT_ACCESS: Final = frozenset({"ID", "Refresh", "Offline", "Logout"})


def check_claims(claims: Mapping[str, object], issuer: Issuer, credentials: RequestCredentials, now: float) -> float:
    """Reject a token of another issuer or audience, and one that is not valid now; returns when it expires."""
    if claims.get("iss") != issuer.issuer:
        raise invalid_token("The token is of another issuer", credentials.scheme)
    if claims.get("typ") in _NOT_ACCESS or "at_hash" in claims:
        raise invalid_token("This is not an access token", credentials.scheme)
    check_audience(claims.get("aud"), issuer, credentials)
    expires = check_times(claims, issuer.leeway, credentials.scheme, now)
    if expires is None:
        raise invalid_token("The token has no expiry (exp)", credentials.scheme)
    return expires


def check_audience(audience: object, issuer: Issuer, credentials: RequestCredentials) -> None:
    """ "MUST reject tokens that do not include them in the audience claim" (Access Token Privilege Restriction)"""
    accepted = issuer.audiences or {credentials.resource}
    named = audience if isinstance(audience, list) else [audience]
    if not any(isinstance(value, str) and value in accepted for value in named):
        raise invalid_token("The token is for another audience", credentials.scheme)


def check_times(claims: Mapping[str, object], leeway: float, scheme: str, now: float) -> float | None:
    """Reject a token that has expired or is not valid yet; returns when it expires, if it does."""
    expires = _read_time(claims, "exp", scheme)
    if expires is not None and expires + leeway <= now:
        raise invalid_token("The token has expired", scheme)
    starts = _read_time(claims, "nbf", scheme)
    if starts is not None and starts - leeway > now:
        raise invalid_token("The token is not valid yet", scheme)
    return None if expires is None else expires + leeway


def _read_time(claims: Mapping[str, object], name: str, scheme: str) -> float | None:
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise invalid_token(f"The claim {name} is not a time", scheme)
    return float(value)


def read_principal(claims: Mapping[str, object], issuer: Issuer, scheme: str) -> Principal:
    """The principal that the claims describe."""
    name = find_claim(claims, issuer.principal)
    if not isinstance(name, str) or not is_id(name):
        raise invalid_token(f"The claim {issuer.principal} does not identify a caller", scheme)
    return Principal(
        issuer.prefix + name,
        scopes=read_words(find_claim(claims, issuer.scopes)),
        roles=read_words(None if issuer.roles is None else find_claim(claims, issuer.roles)),
        claims=read_only(dict(claims)),
        kind="token",
        issuer=issuer.issuer,
    )


def is_id(text: str) -> bool:
    """Whether a text can identify a principal: printable, and in the one form that Unicode calls NFC.

    Texts that look alike would otherwise be different callers, and a log could not tell them apart.
    """
    return 0 < len(text) <= ID_CHARACTERS and text.isprintable() and text == unicodedata.normalize("NFC", text).strip()


def read_words(value: object) -> frozenset[str]:
    """Scopes or roles: a list, or a text separated by spaces."""
    if isinstance(value, str):
        return frozenset(value.split())
    return (
        frozenset(word for word in value if isinstance(word, str)) if isinstance(value, list | tuple) else frozenset()
    )
