"""Seals values that a client carries for us: signed, and encrypted where they are secret.

The carrier of a sealed value cannot change it: the seal covers the value, its purpose, the server that made it, whom it
was given to and its expiry. With the `auth` extra the carrier cannot read a secret value either. Keys form a ring: the
first one seals, all of them open. The keys are not used directly: each purpose of each server has a derived key.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
from collections.abc import Sequence
from importlib.util import find_spec

import msgspec
from msgspec import Struct

from pegboard.errors import InvalidParams, SetupError

_TAG_BYTES = 16
_NONCE_BYTES = 12
_encode = msgspec.msgpack.Encoder().encode


def read_keys(text: str | None) -> list[bytes]:
    """The keys of a setting: secrets separated by commas, of which the first one seals. Without a setting, a random
    key."""
    if not text:
        return [secrets.token_bytes(32)]
    parts = [part.strip() for part in text.split(",")]
    if any(len(part) < 16 for part in parts):
        raise SetupError(
            "PEGBOARD_SECRET: each secret must have at least 16 characters; create one with `openssl rand -hex 32`"
        )
    return [hashlib.sha256(part.encode()).digest() for part in parts]


class _SealedValue(Struct, array_like=True, frozen=True):
    value: msgspec.Raw
    bearer: str
    expires: float


_decode = msgspec.msgpack.Decoder(_SealedValue).decode


class _Signature:
    """Signed, but not encrypted: HMAC."""

    def __init__(self, context: bytes, key: bytes) -> None:
        self._key = hmac.digest(key, b"sign " + context, "sha256")

    def close(self, body: bytes) -> bytes:
        return self._tag(body) + body

    def open(self, raw: bytes) -> bytes | None:
        tag, body = raw[:_TAG_BYTES], raw[_TAG_BYTES:]
        return body if hmac.compare_digest(tag, self._tag(body)) else None

    def _tag(self, body: bytes) -> bytes:
        return hmac.digest(self._key, body, "sha256")[:_TAG_BYTES]


class _Cipher:
    """Encrypted and authenticated: AES-GCM."""

    def __init__(self, context: bytes, key: bytes) -> None:
        from cryptography.exceptions import InvalidTag  # noqa: PLC0415 — an extra, and heavy: for those who ask
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415 — the same

        self._aead = AESGCM(hmac.digest(key, b"encrypt " + context, "sha256"))
        self._invalid = InvalidTag

    def close(self, body: bytes) -> bytes:
        nonce = secrets.token_bytes(_NONCE_BYTES)
        return nonce + self._aead.encrypt(nonce, body, None)

    def open(self, raw: bytes) -> bytes | None:
        if len(raw) < _NONCE_BYTES + _TAG_BYTES:
            return None
        try:
            return self._aead.decrypt(raw[:_NONCE_BYTES], raw[_NONCE_BYTES:], None)
        except self._invalid:
            return None


class Seal:
    """Seals and opens values for one purpose, such as cursors; a `secret` sealer encrypts them if it can.

    `audience` is the name of the server: servers with a common key and different names cannot open each other's values,
    replicas of one server can. Encryption needs the library of the `auth` extra, which is loaded with the first value.
    """

    def __init__(self, purpose: str, keys: Sequence[bytes], *, audience: str = "", secret: bool = False) -> None:
        if not keys or any(len(key) < 16 for key in keys):
            raise ValueError("a seal needs at least one key of 16 bytes or more")
        self._purpose = purpose
        self._context = _encode((purpose, audience))
        self._keys = tuple(keys)
        self._secret = secret
        self._made: tuple[_Signature | _Cipher, ...] | None = None

    def prefer(self, key: bytes) -> None:
        """Seal with this key from now on; values sealed with the other keys still open."""
        self._keys = (key, *(other for other in self._keys if other != key))
        self._made = None

    def close(self, value: object, *, bearer: str = "", expires: float = 0.0) -> str:
        """The sealed value as text; `expires` is a point in time, 0 for never."""
        body = _encode(_SealedValue(msgspec.Raw(_encode(value)), bearer, expires))
        return _encode_text(self._locks()[0].close(body))

    def open(self, text: str, *, now: float, bearer: str = "") -> object:
        """The value that was sealed; InvalidParams if it is not ours, not this bearer's, for another purpose, or
        expired."""
        raw = _decode_text(text)
        if raw is None:
            raise self._refused("is malformed")
        opened = (lock.open(raw) for lock in self._locks())
        body = next((body for body in opened if body is not None), None)
        if body is None:
            raise self._refused(
                "was not made by this server, or was changed; replicas of a server need a common store or PEGBOARD_SECRET"
            )
        sealed = _decode(body)
        if sealed.bearer != bearer:
            raise self._refused("belongs to another caller")
        if sealed.expires and now > sealed.expires:
            raise self._refused("has expired; start again without it")
        value: object = msgspec.msgpack.decode(sealed.value)
        return value

    def _locks(self) -> tuple[_Signature | _Cipher, ...]:
        """One for each key, newest first, of the best kind available."""
        if self._made is None:
            kind: type[_Cipher | _Signature] = _Cipher if self._secret and find_spec("cryptography") else _Signature
            self._made = tuple(kind(self._context, key) for key in self._keys)
        return self._made

    def _refused(self, why: str) -> InvalidParams:
        return InvalidParams(f"Invalid {self._purpose}: it {why}")


def _encode_text(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode("ascii")


def _decode_text(text: str) -> bytes | None:
    """The decoded bytes; None unless this is the exact spelling that we write (Base64 decoders accept several)."""
    try:
        raw = base64.b64decode(text.encode("ascii") + b"=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        return None
    return raw if _encode_text(raw) == text else None
