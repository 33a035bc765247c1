"""Requests tokens, and what is stored of them."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec import Struct

from pegboard.client.login.authentication import Credentials, authenticate
from pegboard.client.login.discovery import ProtectedResource
from pegboard.client.login.login_http import LoginClient
from pegboard.errors import LoginFailed, MalformedMessage

EXPIRY_MARGIN_SECONDS: Final = 30.0
"""A token is renewed this many seconds before it expires, or a tenth of its lifetime if that is less."""

# What a header can carry: RFC 6750 allows fewer characters than real servers use.
_VISIBLE = re.compile(r"[\x21-\x7e]{1,16384}")

_HIDDEN: Final = frozenset(
    {"code", "code_verifier", "refresh_token", "client_secret", "client_assertion", "assertion", "subject_token"}
)


class Token(Struct, frozen=True):
    """An access token, its resource and its issuer; `scopes` are those that were requested."""

    issuer: str
    resource: str
    client_id: str
    access_token: str
    scopes: list[str]
    refresh_token: str | None = None
    stale_at: float | None = None

    def __repr__(self) -> str:
        return f"Token(for {self.resource!r} by {self.issuer!r})"

    @property
    def is_stale(self) -> bool:
        return self.stale_at is not None and time.time() >= self.stale_at


class _TokenResponse(Struct):
    access_token: str
    token_type: str
    expires_in: float | str | None = None
    refresh_token: str | None = None


async def request_token(
    login_client: LoginClient,
    site: ProtectedResource,
    credentials: Credentials,
    form: Sequence[tuple[str, str]],
    scopes: Sequence[str],
    *,
    previous: str | None = None,
) -> Token:
    """Request a token for a resource; LoginFailed with the error of the authorization server.

    `previous` is the refresh token to keep if no other is returned.
    """
    server = site.server
    proof, secrets = authenticate(credentials, server)
    form = [*form, ("resource", site.resource), *proof]
    reply = await login_client.post_form(server.token_endpoint, form, secrets)
    if reply.status != 200 or reply.document is None or "access_token" not in reply.document:
        hidden = [credentials.client_secret or "", *(value for name, value in form if name in _HIDDEN)]
        raise LoginFailed(
            f"{server.issuer}: returned no token: {reply.describe_error(hidden)}", 401, reason=reply.reason
        )
    return _read(reply.document, site, credentials.client_id, scopes, previous)


def _read(
    document: Mapping[str, Any], site: ProtectedResource, client_id: str, scopes: Sequence[str], previous: str | None
) -> Token:
    where = site.server.token_endpoint
    try:
        granted = msgspec.convert(document, _TokenResponse)
    except msgspec.ValidationError as problem:
        raise MalformedMessage(f"{where}: its response is not a token: {problem}") from None
    if granted.token_type.lower() != "bearer":
        raise MalformedMessage(
            f"{where}: returned a token of type {granted.token_type[:40]!r}; only Bearer is supported"
        )
    if not _VISIBLE.fullmatch(granted.access_token):
        raise MalformedMessage(f"{where}: returned a token that a header cannot carry")
    return Token(
        issuer=site.server.issuer,
        resource=site.resource,
        client_id=client_id,
        access_token=granted.access_token,
        scopes=list(scopes),
        refresh_token=granted.refresh_token or previous,
        stale_at=_stale_at(granted.expires_in),
    )


def _stale_at(expires_in: float | str | None) -> float | None:
    # Some servers send the number as a string.
    try:
        seconds = None if expires_in is None else float(expires_in)
    except ValueError:
        return None
    if seconds is None or not 0 <= seconds < 1e10:
        return None
    return time.time() + seconds - min(EXPIRY_MARGIN_SECONDS, seconds / 10)
