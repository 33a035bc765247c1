"""The credentials for downstream servers; nobody is asked for them while a gateway serves."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager

from pegboard.client.admission import Auth
from pegboard.client.login.browser import Redirect
from pegboard.client.login.oauth import ClientCredentials, OAuth
from pegboard.client.login.storage import MemoryStorage, Storage
from pegboard.errors import LoginFailed
from pegboard.gateway.config import AuthConfig, ServerConfig


class Unattended:
    """The login of a program that nobody sits at: it does not take place."""

    def __init__(self, server: str) -> None:
        self._server = server

    def opened(self, registered: str | None) -> AbstractAsyncContextManager[Redirect]:
        """Say who has to act."""
        raise LoginFailed(f"The server {self._server!r} needs a login: run `pegboard login CONFIG {self._server}`")


class Logins:
    """Tells how each server is logged in to, for the gateway itself (no principal) or for one who calls."""

    def __init__(self, storage: Storage | None = None) -> None:
        self._storage = storage or MemoryStorage()

    def auth(self, config: ServerConfig, principal: str = "") -> Auth | None:
        """None where the server is sent no token of ours, whatever it asks for."""
        if config.kind not in ("http", "sse") or any(name.lower() == "authorization" for name in config.headers):
            return None
        told = config.auth or AuthConfig()
        if told.kind == "none":
            return None
        storage = OwnStorage(self._storage, principal)
        if told.kind == "client_credentials":
            return ClientCredentials(
                told.client_id or "",
                told.client_secret,
                private_key=told.private_key,
                issuer=told.issuer,
                scopes=told.scopes,
                storage=storage,
            )
        return OAuth(
            login=Unattended(config.name),
            storage=storage,
            client_id=told.client_id,
            client_secret=told.client_secret,
            client_metadata_url=told.client_metadata_url,
            issuer=told.issuer,
            scopes=told.scopes,
        )


class OwnStorage:
    """What one principal keeps in a storage that all share."""

    def __init__(self, storage: Storage, principal: str) -> None:
        self._storage = storage
        self._prefix = f"of {principal!r} " if principal else ""

    async def load(self, key: str) -> bytes | None:
        return await self._storage.load(self._prefix + key)

    async def save(self, key: str, value: bytes) -> None:
        await self._storage.save(self._prefix + key, value)

    async def delete(self, key: str) -> None:
        await self._storage.delete(self._prefix + key)
