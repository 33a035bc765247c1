"""Logins to servers; a running gateway never prompts for one."""

from __future__ import annotations

import os
from importlib.util import find_spec

from pegboard.client.links.link import ClientAuth
from pegboard.client.login.authentication import Credentials
from pegboard.client.login.browser import Login, NoBrowser
from pegboard.client.login.exchange import IdentityProvider, SubjectToken, TokenExchange
from pegboard.client.login.oauth import ClientCredentials, OAuth, read_key
from pegboard.client.login.storage import FileStorage, MemoryStorage, Storage
from pegboard.config.config_keys import AuthConfig
from pegboard.config.gateway_config import ServerConfig
from pegboard.gateway.state_folder import token_folder


class Logins:
    """How to log in to each server, for the gateway itself (no principal) or for one caller.

    If a user is present, `login` takes them to the login page of the server.
    """

    def __init__(self, storage: Storage | None = None, login: Login | None = None) -> None:
        self._storage = storage or MemoryStorage()
        self._login = login

    def auth(self, config: ServerConfig, principal: str = "") -> ClientAuth | None:
        """The credentials for a server; None if it must not get a token of ours."""
        if config.kind not in ("http", "sse", "websocket") or any(
            name.lower() == "authorization" for name in (*config.headers, *config.principal_headers)
        ):
            return None
        settings = config.auth or AuthConfig()
        if settings.kind in ("none", "header"):
            return None
        storage = PrefixedStorage(self._storage, principal)
        if settings.kind == "client_credentials" or (settings.kind == "exchange" and settings.client_secret):
            # Where callers' tokens are exchanged, the gateway itself reads the lists in its own name.
            return ClientCredentials(
                settings.client_id or "",
                settings.client_secret,
                private_key=settings.private_key,
                issuer=settings.issuer,
                scopes=settings.scopes,
                storage=storage,
            )
        return OAuth(
            login=self._login or NoBrowser(_how_to_log_in(config)),
            storage=storage,
            client_id=settings.client_id,
            client_secret=settings.client_secret,
            client_metadata_url=settings.client_metadata_url,
            issuer=settings.issuer,
            scopes=settings.scopes,
        )


def exchange_login(settings: AuthConfig, token: str) -> TokenExchange:
    """How to log in to a server with the token of a caller."""
    provider = settings.identity_provider
    known = None if provider is None else Credentials(provider.client_id, provider.client_secret)
    return TokenExchange(
        Credentials(settings.client_id or "", settings.client_secret, private_key=read_key(settings.private_key)),
        SubjectToken(token, "access_token" if provider is None else provider.subject_type),
        provider=None if provider is None or known is None else IdentityProvider(provider.issuer, known),
        audience=settings.audience,
        issuer=settings.issuer,
        scopes=settings.scopes,
    )


def _how_to_log_in(config: ServerConfig) -> str:
    command = f"run `pegboard login CONFIG {config.name}`"
    if config.of_each_user:
        return f"The server {config.name!r} lists its tools only after a login: {command}; its users log in themselves"
    return f"The server {config.name!r} needs a login: {command}"


class PrefixedStorage:
    """The part of a shared storage that belongs to one principal."""

    def __init__(self, storage: Storage, principal: str) -> None:
        self._storage = storage
        self._prefix = f"of {principal!r} " if principal else ""

    async def load(self, key: str) -> bytes | None:
        return await self._storage.load(self._prefix + key)

    async def save(self, key: str, value: bytes) -> None:
        await self._storage.save(self._prefix + key, value)

    async def delete(self, key: str) -> None:
        await self._storage.delete(self._prefix + key)


def token_storage() -> Storage:
    """The storage of this user's tokens; encrypted if `PEGBOARD_SECRET` is set and `cryptography` is installed."""
    secret = os.environ.get("PEGBOARD_SECRET") if find_spec("cryptography") is not None else None
    return FileStorage(token_folder(), secret or None)
