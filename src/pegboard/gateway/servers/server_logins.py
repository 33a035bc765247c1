"""Logins to servers; a running gateway never prompts for one."""

from __future__ import annotations

import os
from contextlib import AbstractAsyncContextManager
from importlib.util import find_spec

from pegboard.client.links.credentials import ClientAuth
from pegboard.client.login.browser import Login, Redirect
from pegboard.client.login.oauth import ClientCredentials, OAuth
from pegboard.client.login.storage import FileStorage, MemoryStorage, Storage
from pegboard.config.gateway_config import AuthConfig, ServerConfig
from pegboard.errors import LoginFailed
from pegboard.gateway.state_folder import token_folder


class NoLogin:
    """The login of a program without a user: it fails."""

    def __init__(self, server: str) -> None:
        self._server = server

    def opened(self, registered: str | None) -> AbstractAsyncContextManager[Redirect]:
        """Raise an error that names the command to run."""
        raise LoginFailed(f"The server {self._server!r} needs a login: run `pegboard login CONFIG {self._server}`")


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
            name.lower() == "authorization" for name in config.headers
        ):
            return None
        settings = config.auth or AuthConfig()
        if settings.kind == "none":
            return None
        storage = PrefixedStorage(self._storage, principal)
        if settings.kind == "client_credentials":
            return ClientCredentials(
                settings.client_id or "",
                settings.client_secret,
                private_key=settings.private_key,
                issuer=settings.issuer,
                scopes=settings.scopes,
                storage=storage,
            )
        return OAuth(
            login=self._login or NoLogin(config.name),
            storage=storage,
            client_id=settings.client_id,
            client_secret=settings.client_secret,
            client_metadata_url=settings.client_metadata_url,
            issuer=settings.issuer,
            scopes=settings.scopes,
        )


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
