"""The stored token of one server, and which issuer its client belongs to."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TypeVar

import msgspec
from msgspec import Struct

from pegboard.client.http.address import Address
from pegboard.client.login.access_tokens import Token
from pegboard.client.login.storage import SharedStorage, Storage
from pegboard.errors import LoginFailed

T = TypeVar("T", bound=Struct)


class _TokenPointer(Struct):
    """The storage key of a server's token."""

    issuer: str
    resource: str


class _ClientBinding(Struct):
    """The issuer that a client id belongs to."""

    issuer: str


async def recall(storage: Storage, key: str, kind: type[T]) -> T | None:
    """The stored value of a key, if it is valid."""
    kept = await storage.load(key)
    try:
        return None if kept is None else msgspec.json.decode(kept, type=kind)
    except msgspec.DecodeError:
        return None


class StoredTokens:
    """Loads and saves the token for one server.

    kind: the kind of grant that the token came from.
    bound_id: a client id that belongs to one issuer.
    issuer: the only issuer whose tokens are used, if it is given.
    """

    def __init__(self, storage: Storage, server: Address, kind: str, bound_id: str | None, issuer: str | None) -> None:
        self._storage = storage
        self._server = server
        self._kind = kind
        self._bound_id = bound_id
        self._issuer = issuer

    async def load(self, *, stale: bool = False) -> Token | None:
        """The token, if there is one that fits; a stale one only if that is asked for."""
        pointer = await recall(self._storage, self._pointer_key, _TokenPointer)
        if pointer is None:
            return None
        token = await recall(self._storage, self._token_key(pointer.issuer, pointer.resource), Token)
        if token is None or (token.is_stale and not stale):
            return None
        fits = self._bound_id in (None, token.client_id) and self._issuer in (None, token.issuer)
        return token if fits else None

    async def save(self, token: Token, before: Token | None = None) -> None:
        """Replace the token, which was `before`."""
        if before is not None and (before.issuer, before.resource) != (token.issuer, token.resource):
            await self._storage.delete(self._token_key(before.issuer, before.resource))
        await self._storage.save(self._token_key(token.issuer, token.resource), msgspec.json.encode(token))
        pointer = _TokenPointer(token.issuer, token.resource)
        await self._storage.save(self._pointer_key, msgspec.json.encode(pointer))

    async def check_binding(self, issuer: str) -> None:
        """Credentials that were registered with one authorization server are not sent to another."""
        client_id = self._bound_id
        if client_id is None or self._issuer is not None:
            return
        key = f"bond {client_id} {self._server}"
        bond = await recall(self._storage, key, _ClientBinding)
        if bond is None:
            await self._storage.save(key, msgspec.json.encode(_ClientBinding(issuer)))
        elif bond.issuer != issuer:
            raise LoginFailed(
                f"{self._server}: its tokens are now issued by {issuer}, and the client {client_id} was registered "
                f"with {bond.issuer}. Register a client there and use its client_id."
            )

    @asynccontextmanager
    async def exclusive(self) -> AsyncIterator[None]:
        """Let one process at a time renew the token, where several share the storage."""
        if isinstance(self._storage, SharedStorage):
            async with self._storage.exclusive():
                yield
        else:
            yield

    @property
    def _pointer_key(self) -> str:
        return f"server {self._kind} {self._server}"

    def _token_key(self, issuer: str, resource: str) -> str:
        return f"token {self._kind} {issuer} {resource}"
