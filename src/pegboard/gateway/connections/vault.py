"""The vault: the credentials of each user for each server, encrypted in the store.

Theory of operation. One record holds what one user has for one server: tokens, the registration of the client, or the
value of a header. It is encrypted with a key of the operator and bound to its owner, so that a record which someone
copied to another owner does not open. An index in several records lists the owners, without their secrets. A change
is published in a feed, so that every process drops what it holds in memory. One process at a time renews a token; the
others wait for it, and then find the new token.

A record is created only when a user has connected: what renews a token can change a record, and cannot bring back one
that was removed meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from importlib.util import find_spec
from typing import Final

import msgspec
from msgspec import Struct

from pegboard.auth.principal import Principal
from pegboard.backoff import backoff
from pegboard.errors import Busy, InvalidParams, SetupError, StoreDown, Unreachable
from pegboard.gateway.state_folder import VAULT_CHECK
from pegboard.security.seal import Seal
from pegboard.stores.store import Store, digest

_log = logging.getLogger("pegboard.gateway")

FEED: Final = "vault"
INDEX: Final = "vault index "
SHARDS: Final = 64
MAX_IN_SHARD: Final = 2000
RENEW_SECONDS: Final = 30.0
"""How long one process may take to renew a token before another one tries."""
_FEED_KEEPS: Final = 1000
_FIRST_PAUSE: Final = 0.02
_LONGEST_PAUSE: Final = 0.5

_encode = msgspec.msgpack.Encoder().encode
_decode_values = msgspec.msgpack.Decoder(dict[str, bytes]).decode


class CredentialOwner(Struct, frozen=True, array_like=True):
    """A user and a server. The user is a principal of one issuer: the same id of another issuer is another user."""

    principal: str
    issuer: str
    server: str

    @property
    def key(self) -> str:
        """What stands for it in the store."""
        return digest(repr((self.principal, self.issuer, self.server)))


def owner_of(principal: Principal, server: str) -> CredentialOwner:
    """What this principal has for a server."""
    return CredentialOwner(principal.id, principal.issuer, server)


class StoredConnection(Struct, frozen=True, array_like=True):
    """An entry of the index: whose credentials for which server there are, and since when."""

    owner: CredentialOwner
    since: float


_decode_index = msgspec.msgpack.Decoder(list[StoredConnection]).decode


NEEDS_EXTRA: Final = "credentials of users are kept encrypted, which needs the auth extra: pip install 'pegboard[auth]'"


def can_encrypt() -> bool:
    """Whether the library for encryption is installed."""
    return find_spec("cryptography") is not None


class VaultKeyMismatch(SetupError):
    """The vault was encrypted with another key."""


def vault_key_missing(where: str) -> SetupError:
    """The error where there is no key for the credentials of users."""
    return SetupError(
        f"{where}: the credentials of users are encrypted, which needs a key: set PEGBOARD_SECRET, or "
        '"vault": {"key": "${file:PATH}"}; create one with `openssl rand -hex 32`'
    )


class Vault:
    """The credentials in one store; `keys` are the operator's, of which the first one encrypts."""

    def __init__(self, store: Store, keys: Sequence[bytes], clock: Callable[[], float] = time.time) -> None:
        if not can_encrypt():
            raise SetupError(NEEDS_EXTRA)
        self.feeds = store.feeds
        self.records = store.records
        self._clock = clock
        self._keys = keys
        self._seal = Seal("vault", keys, secret=True)

    async def check(self) -> None:
        """Raise VaultKeyMismatch unless the keys are those of the vault; a new vault takes them as its own."""
        while (found := await self.records.get(VAULT_CHECK)) is None:
            await self.records.put(VAULT_CHECK, self._close(VAULT_CHECK, b""), if_version=0)
        self._open(VAULT_CHECK, found.value)

    # -- the credentials of one owner ----------------------------------------------------------------------------------

    async def read(self, owner: CredentialOwner) -> dict[str, bytes] | None:
        """The credentials of an owner; None if that user has not connected."""
        found = await self.records.get(_place(owner))
        return None if found is None else _decode_values(self._open(owner.key, found.value))

    async def connect(self, owner: CredentialOwner, values: Mapping[str, bytes]) -> None:
        """Store the credentials of a user who has just connected; `publish` it afterwards."""

        def add(entries: list[StoredConnection]) -> list[StoredConnection]:
            left = [entry for entry in entries if entry.owner != owner]
            if len(left) >= MAX_IN_SHARD:
                raise Busy("The vault is full: remove connections that are not used, with `pegboard connections`")
            return [*left, StoredConnection(owner, self._clock())]

        await self._change_index(owner, add)
        await self.records.put(_place(owner), self._close(owner.key, _encode(values)))

    async def remove(self, owner: CredentialOwner) -> bool:
        """Delete the credentials; returns whether there were any."""
        existed = await self.records.delete(_place(owner))
        await self._change_index(owner, lambda entries: [entry for entry in entries if entry.owner != owner])
        await self.publish(owner)
        return existed

    async def change(self, owner: CredentialOwner, change: Callable[[dict[str, bytes]], None]) -> None:
        """Change the credentials of an owner; nothing happens if they were removed."""
        while (found := await self.records.get(_place(owner))) is not None:
            values = _decode_values(self._open(owner.key, found.value))
            change(values)
            sealed = self._close(owner.key, _encode(values))
            if await self.records.put(_place(owner), sealed, if_version=found.version) is not None:
                return

    def storage(self, owner: CredentialOwner) -> VaultStorage:
        """The credentials of an owner as a storage for tokens."""
        return VaultStorage(self, owner)

    @asynccontextmanager
    async def renewing(self, owner: CredentialOwner) -> AsyncIterator[None]:
        """Wait until no other process renews a token of this owner; Unreachable if that takes too long."""
        lock = f"vault lock {owner.key}"
        deadline = asyncio.get_running_loop().time() + 2 * RENEW_SECONDS
        attempt = 0
        while await self.records.put(lock, b"", ttl=RENEW_SECONDS, if_version=0) is None:
            attempt += 1
            if asyncio.get_running_loop().time() > deadline:
                raise Unreachable("the token of this user is being renewed by another process", retry_after=5.0)
            await asyncio.sleep(backoff(attempt, _FIRST_PAUSE, _LONGEST_PAUSE))
        try:
            # Not longer than the lock is held, so that no other process uses the same refresh token.
            async with asyncio.timeout(RENEW_SECONDS * 0.9):
                yield
        except TimeoutError:
            raise Unreachable("the token of this user could not be renewed in time", retry_after=5.0) from None
        finally:
            await asyncio.shield(self._unlock(lock))

    async def _unlock(self, lock: str) -> None:
        try:
            await self.records.delete(lock)
        except StoreDown:
            # It expires.
            return

    # -- all of them ---------------------------------------------------------------------------------------------------

    async def of(self, principal: str, issuer: str | None = None) -> list[StoredConnection]:
        """The connections of one principal; of all issuers unless one is given."""
        found = await self._read_index(_shard(principal))
        return [
            entry for entry in found[0] if entry.owner.principal == principal and issuer in (None, entry.owner.issuer)
        ]

    async def all(self) -> list[StoredConnection]:
        """All connections, by principal."""
        entries = [entry for shard in range(SHARDS) for entry in (await self._read_index(shard))[0]]
        return sorted(entries, key=lambda entry: (entry.owner.principal, entry.owner.issuer, entry.owner.server))

    async def encrypt_again(self) -> int:
        """Encrypt everything with the first key; returns the number of connections."""
        await self.check()
        entries = await self.all()
        for entry in entries:
            await self.change(entry.owner, lambda _: None)
        # Last: if this is interrupted, both keys are still needed, and the check still accepts both.
        await self.records.put(VAULT_CHECK, self._close(VAULT_CHECK, b""))
        return len(entries)

    async def reset(self) -> int:
        """Delete everything, which needs no key; returns the number of connections."""
        entries = await self.all()
        for entry in entries:
            await self.remove(entry.owner)
        await self.records.delete(VAULT_CHECK)
        return len(entries)

    async def _read_index(self, shard: int) -> tuple[list[StoredConnection], int]:
        found = await self.records.get(f"{INDEX}{shard}")
        return ([], 0) if found is None else (_decode_index(found.value), found.version)

    async def _change_index(
        self, owner: CredentialOwner, change: Callable[[list[StoredConnection]], list[StoredConnection]]
    ) -> None:
        shard = _shard(owner.principal)
        while True:
            entries, version = await self._read_index(shard)
            changed = change(entries)
            if changed == entries:
                return
            if await self.records.put(f"{INDEX}{shard}", _encode(changed), if_version=version) is not None:
                return

    async def publish(self, owner: CredentialOwner) -> None:
        """Let every process know that the credentials of an owner have changed."""
        await self.feeds.publish(FEED, _encode(owner), keep=_FEED_KEEPS)

    # -- sealed values -------------------------------------------------------------------------------------------------

    def seal(self, place: str, value: bytes) -> bytes:
        """Encrypt a value that belongs to this place."""
        return self._close(place, value)

    def unseal(self, place: str, value: bytes) -> bytes:
        """What was encrypted for this place."""
        return self._open(place, value)

    def _close(self, place: str, value: bytes) -> bytes:
        return self._seal.close(value, bearer=place).encode()

    def _open(self, place: str, value: bytes) -> bytes:
        try:
            opened = self._seal.open(value.decode(), now=0.0, bearer=place)
        except (InvalidParams, UnicodeDecodeError):
            raise VaultKeyMismatch(
                "The vault in the store was encrypted with another key than this one, and nothing in it was changed. "
                "Set PEGBOARD_SECRET (or vault.key) to the key it was made with. To change the key, set it to "
                "NEW,OLD and run `pegboard connections CONFIG --rotate`; then OLD is no longer needed. If the key is lost, "
                "`pegboard connections CONFIG --reset` removes everything, and users connect again"
            ) from None
        return opened if isinstance(opened, bytes) else b""


class VaultStorage:
    """The credentials of one owner as a storage for a login: it changes what is there, and does not bring back what was removed."""

    def __init__(self, vault: Vault, owner: CredentialOwner) -> None:
        self._vault = vault
        self._account = owner

    async def load(self, key: str) -> bytes | None:
        try:
            return ((await self._vault.read(self._account)) or {}).get(key)
        except VaultKeyMismatch as problem:
            raise _locked(problem) from None

    async def save(self, key: str, value: bytes) -> None:
        await self._change(lambda values: values.update({key: value}))

    async def delete(self, key: str) -> None:
        await self._change(lambda values: _drop(values, key))

    async def _change(self, change: Callable[[dict[str, bytes]], None]) -> None:
        try:
            await self._vault.change(self._account, change)
        except VaultKeyMismatch as problem:
            raise _locked(problem) from None

    @asynccontextmanager
    async def exclusive(self) -> AsyncIterator[None]:
        """Let one process at a time renew the token."""
        async with self._vault.renewing(self._account):
            yield


def _drop(values: dict[str, bytes], key: str) -> None:
    values.pop(key, None)


def _locked(problem: VaultKeyMismatch) -> Unreachable:
    """For a caller: the operator finds the rest in the log."""
    _log.error("%s", problem)
    return Unreachable("the credentials of users cannot be read; the operator of the gateway has to look at its log")


def _place(owner: CredentialOwner) -> str:
    return f"vault {owner.key}"


def _shard(principal: str) -> int:
    return int(digest(principal)[:8], 16) % SHARDS
