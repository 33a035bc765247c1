"""API keys: kept as digests in the store, so that every process knows them and a reader of the store has none."""

from __future__ import annotations

import hashlib
import logging
import re
import secrets
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Final, Protocol

import msgspec
from msgspec import Struct

from pegboard.auth.principal import Principal
from pegboard.auth.request_credentials import (
    RequestCredentials,
    Verified,
    VerifiedIdentity,
    invalid_token,
    is_scope,
    unavailable,
)
from pegboard.errors import SetupError, StoreDown

_log = logging.getLogger("pegboard.auth")

MARK: Final = "pb_"
PREFIX: Final = "key:"
CHECK_SECONDS: Final = 2.0
"""How long after its revocation a key may still be accepted."""

RECORD: Final = "auth api-keys"
"""The record that holds the keys."""
_NAME: Final = re.compile(r"[A-Za-z0-9._@-]{1,64}")
_MAX_KEYS: Final = 10_000


class ApiKey(Struct, frozen=True):
    """A key as it is stored; `expires` is in seconds since the epoch."""

    name: str
    digest: bytes
    scopes: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()
    created: float = 0.0
    expires: float | None = None

    @property
    def principal(self) -> Principal:
        """Who sends the key."""
        return Principal(PREFIX + self.name, frozenset(self.scopes), frozenset(self.roles), {}, "key")


class StoredValue(Protocol):
    """A value of the store, and its version."""

    @property
    def value(self) -> bytes: ...

    @property
    def version(self) -> int: ...


class KeyRecords(Protocol):
    """The part of a store that holds the keys."""

    async def get(self, key: str) -> StoredValue | None: ...

    async def put(
        self, key: str, value: bytes, *, ttl: float | None = None, if_version: int | None = None
    ) -> int | None: ...


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[ApiKey]).decode


class ApiKeys:
    """The keys in a store: adds, lists, revokes and verifies them."""

    def __init__(self, records: KeyRecords, clock: Callable[[], float] = time.time) -> None:
        self._records = records
        self._clock = clock
        self._known: Mapping[bytes, ApiKey] = {}
        self._read = -CHECK_SECONDS
        self.revoked: Callable[[str], None] = lambda _: None

    async def add(
        self, name: str, scopes: Iterable[str] = (), roles: Iterable[str] = (), expires: float | None = None
    ) -> str:
        """Add a key, and return it: it is not stored, so it cannot be shown again."""
        if _NAME.fullmatch(name) is None:
            raise SetupError(f"{name!r} is not a name for a key; use up to 64 letters, digits and . _ @ -")
        for scope in scopes:
            if not is_scope(scope):
                raise SetupError(f"{scope!r} is not a scope: it must not contain spaces, quotes or backslashes")
        text = MARK + secrets.token_urlsafe(32)
        added = ApiKey(name, digest_of(text), tuple(scopes), tuple(roles), self._clock(), expires)

        def change(keys: list[ApiKey]) -> list[ApiKey]:
            if any(key.name == name for key in keys):
                raise SetupError(f"there is already a key {name!r}; revoke it first, or choose another name")
            if len(keys) >= _MAX_KEYS:
                raise SetupError(f"there are already {_MAX_KEYS} keys; revoke some first")
            return [*keys, added]

        await self._change(change)
        return text

    async def revoke(self, name: str) -> None:
        """Delete a key; servers stop accepting it within seconds, and end what it has opened."""

        def change(keys: list[ApiKey]) -> list[ApiKey]:
            left = [key for key in keys if key.name != name]
            if len(left) == len(keys):
                known = ", ".join(sorted(key.name for key in keys)[:20]) or "none"
                raise SetupError(f"there is no key {name!r}; there are: {known}")
            return left

        await self._change(change)

    async def all(self) -> list[ApiKey]:
        """All keys, in the order in which they were added."""
        return (await self._load())[0]

    async def _load(self) -> tuple[list[ApiKey], int]:
        found = await self._records.get(RECORD)
        return ([], 0) if found is None else (_decode(found.value), found.version)

    async def _change(self, change: Callable[[list[ApiKey]], list[ApiKey]]) -> None:
        while True:
            keys, version = await self._load()
            if await self._records.put(RECORD, _encode(change(keys)), if_version=version) is not None:
                return

    # -- verifying ---------------------------------------------------------------------------------------------------

    def claims(self, credentials: RequestCredentials) -> bool:
        """Whether a token is an API key."""
        return credentials.token.startswith(MARK)

    def verify(self, credentials: RequestCredentials) -> Verified:
        """Verify a key: against the keys in memory, which are read again every few seconds."""
        if credentials.scheme != "Bearer":
            raise invalid_token("Send the key as a Bearer token", credentials.scheme)
        return self.verify_digest(digest_of(credentials.token))

    def verify_digest(self, digest: bytes) -> Verified:
        """The same for a key of which only the digest is kept."""
        return self._find(digest) if time.monotonic() - self._read < CHECK_SECONDS else self._read_and_find(digest)

    async def _read_and_find(self, digest: bytes) -> VerifiedIdentity:
        try:
            keys = (await self._load())[0]
        except StoreDown:
            raise unavailable("The key cannot be verified now; try again later") from None
        before, self._known = self._known, {key.digest: key for key in keys}
        self._read = time.monotonic()
        for known, key in before.items():
            if known not in self._known:
                self.revoked(PREFIX + key.name)
        return self._find(digest)

    def _find(self, digest: bytes) -> VerifiedIdentity:
        key = self._known.get(digest)
        if key is None:
            raise invalid_token("The key is unknown or was revoked")
        if key.expires is not None and key.expires <= self._clock():
            raise invalid_token("The key has expired")
        return VerifiedIdentity(key.principal, key.expires, CHECK_SECONDS)


def digest_of(text: str) -> bytes:
    """The digest that stands for a key."""
    # A key has 256 random bits: it cannot be guessed, so a slow hash would protect nothing.
    return hashlib.sha256(text.encode()).digest()
