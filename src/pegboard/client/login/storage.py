"""Stores tokens: in memory, or in files that only their owner can read."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import os
import secrets
from contextlib import AbstractAsyncContextManager
from importlib.util import find_spec
from pathlib import Path
from typing import Protocol, runtime_checkable

import msgspec
from msgspec import Struct

from pegboard.errors import InvalidParams, SetupError
from pegboard.security.ownership import check_private_folder, open_own_file
from pegboard.security.seal import Seal, read_keys

_log = logging.getLogger("pegboard.client")
_MAX_BYTES = 256 * 1024


class Storage(Protocol):
    """Stores values under keys; the keys name issuers and servers, the values are secret."""

    async def load(self, key: str) -> bytes | None:
        """Return the value, or None."""

    async def save(self, key: str, value: bytes) -> None:
        """Store the value."""

    async def delete(self, key: str) -> None:
        """Delete the value, if it exists."""


@runtime_checkable
class SharedStorage(Storage, Protocol):
    """A storage that several processes share, and that knows which of them may renew a token."""

    def exclusive(self) -> AbstractAsyncContextManager[None]:
        """Wait until no other process is in this block."""


class MemoryStorage:
    """Keeps values until the process ends."""

    def __init__(self) -> None:
        self._values: dict[str, bytes] = {}

    async def load(self, key: str) -> bytes | None:
        """Return the value, or None."""
        return self._values.get(key)

    async def save(self, key: str, value: bytes) -> None:
        """Store the value."""
        self._values[key] = value

    async def delete(self, key: str) -> None:
        """Delete the value, if it exists."""
        self._values.pop(key, None)


class _StoredValue(Struct):
    """A file: `value` is JSON as text, `sealed` the same encrypted."""

    key: str
    value: str | None = None
    sealed: str | None = None


class FileStorage:
    """A folder with one file per key: created with mode 0600, replaced atomically, and encrypted if a secret is given.

    Several processes can share a folder. `secret` is a text of 16 characters or more; if there are several, separated
    by commas, the first encrypts and all of them decrypt. Encryption needs the `auth` extra.
    """

    def __init__(self, folder: str | Path, secret: str | None = None) -> None:
        self._folder = Path(folder)
        self._seal: Seal | None = None
        if secret is not None:
            if find_spec("cryptography") is None:
                raise SetupError("Encrypting login tokens needs the auth extra: pip install 'pegboard[auth]'")
            self._seal = Seal("stored login", read_keys(secret), secret=True)

    async def load(self, key: str) -> bytes | None:
        """Return the value, or None."""
        return await asyncio.to_thread(self._load, key)

    async def save(self, key: str, value: bytes) -> None:
        """Store the value."""
        await asyncio.to_thread(self._save, key, value)

    async def delete(self, key: str) -> None:
        """Delete the value, if it exists."""
        await asyncio.to_thread(self._delete, key)

    def _path(self, key: str) -> Path:
        return self._folder / f"{hashlib.sha256(key.encode()).hexdigest()[:40]}.json"

    def _load(self, key: str) -> bytes | None:
        path = self._path(key)
        try:
            with open_own_file(path) as file:
                kept = msgspec.json.decode(file.read(_MAX_BYTES), type=_StoredValue)
        except FileNotFoundError:
            return None
        except OSError as problem:
            raise SetupError(f"{path} cannot be read: {problem.strerror}") from None
        except msgspec.DecodeError:
            _log.warning("%s is not a login file; it is ignored", path)
            return None
        if kept.key != key:
            return None
        if kept.sealed is None:
            return None if kept.value is None else kept.value.encode()
        if self._seal is None:
            _log.warning("%s is encrypted, and no secret is given; it is ignored", path)
            return None
        try:
            opened = self._seal.open(kept.sealed, now=0.0, bearer=key)
        except InvalidParams:
            _log.warning("%s is encrypted with another secret; it is ignored", path)
            return None
        return opened if isinstance(opened, bytes) else None

    def _save(self, key: str, value: bytes) -> None:
        if self._seal is None:
            kept = _StoredValue(key, value=value.decode())
        else:
            kept = _StoredValue(key, sealed=self._seal.close(value, bearer=key))
        path = self._path(key)
        fresh = path.with_name(f"{path.stem}.{secrets.token_hex(8)}.new")
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            check_private_folder(self._folder)
            with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(msgspec.json.encode(kept))
                file.flush()
                os.fsync(file.fileno())
            fresh.replace(path)
        except OSError as problem:
            with contextlib.suppress(OSError):
                fresh.unlink()
            raise SetupError(f"{path} cannot be written: {problem.strerror}") from None

    def _delete(self, key: str) -> None:
        path = self._path(key)
        try:
            path.unlink(missing_ok=True)
        except OSError as problem:
            raise SetupError(f"{path} cannot be deleted: {problem.strerror}") from None
