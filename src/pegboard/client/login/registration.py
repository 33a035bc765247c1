"""Registers a client: in advance, by metadata document, or dynamically."""

from __future__ import annotations

import time
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from pegboard.client.http.address import read_address
from pegboard.client.login.authentication import METHODS, Credentials
from pegboard.client.login.discovery import ServerMetadata
from pegboard.client.login.login_http import LoginClient
from pegboard.errors import LoginFailed, MalformedMessage, SetupError


class Registration(Struct, frozen=True):
    """A stored registration of a client; valid for its issuer and its redirect URI only."""

    issuer: str
    redirect_uri: str
    client_id: str
    client_secret: str | None = None
    method: str | None = None
    expires_at: float | None = None

    def __repr__(self) -> str:
        return f"Registration({self.client_id!r} with {self.issuer!r})"

    @property
    def credentials(self) -> Credentials:
        return Credentials(self.client_id, self.client_secret, self.method)

    def holds(self, issuer: str) -> bool:
        return self.issuer == issuer and (self.expires_at is None or time.time() < self.expires_at)


class _RegistrationResponse(Struct):
    client_id: str
    client_secret: str | None = None
    token_endpoint_auth_method: str | None = None
    client_secret_expires_at: float | None = None


async def register(login_client: LoginClient, server: ServerMetadata, name: str, redirect_uri: str) -> Registration:
    """Register a client dynamically (RFC 7591); LoginFailed with the reason if that is rejected."""
    if server.registration_endpoint is None:
        raise LoginFailed(
            f"{server.issuer}: does not support dynamic registration. Register a client there with the redirect "
            f"{redirect_uri}, and use its client_id.",
            401,
        )
    taken = server.token_endpoint_auth_methods_supported
    wanted = {
        "client_name": name,
        "redirect_uris": [redirect_uri],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": next(
            (candidate for candidate in METHODS if taken is None or candidate in taken), "none"
        ),
        "application_type": application_type(redirect_uri),
    }
    reply = await login_client.post_json(server.registration_endpoint, wanted)
    if reply.status not in (200, 201) or reply.document is None:
        raise LoginFailed(
            f"{server.issuer}: rejects the registration of a client with the redirect {redirect_uri}: "
            f"{reply.describe_error()}. Register one there and use its client_id.",
            401,
        )
    try:
        made = msgspec.convert(reply.document, _RegistrationResponse)
    except msgspec.ValidationError as problem:
        raise MalformedMessage(
            f"{server.registration_endpoint}: its response is not a registration: {problem}"
        ) from None
    # "Zero indicates that it will not expire"
    expires = made.client_secret_expires_at or None
    method = made.token_endpoint_auth_method
    return Registration(server.issuer, redirect_uri, made.client_id, made.client_secret, method, expires)


def application_type(redirect_uri: str) -> str:
    """The type of a client by its redirect URI: one on this machine is native."""
    try:
        address = read_address(redirect_uri)
    except SetupError:
        return "native"
    return "native" if address.is_loopback else "web"


def check_document_url(url: str) -> str:
    """The URL of a client metadata document, if it is valid."""
    parts = urlsplit(url)
    # "MUST use the "https" scheme and contain a path component"
    if parts.scheme != "https" or not parts.hostname or parts.path in ("", "/") or parts.fragment:
        raise SetupError(
            f"{url!r} is not a valid URL of a client metadata document; use one like https://example.com/client.json"
        )
    return url
