"""Seals what a client carries for us between requests, so that it comes back as it was, from whom it was given, in time.

A sealed value is readable by its carrier and cannot be changed by it: its signature covers the value, what it is for,
whom it was given to and until when. Keys form a ring: the first seals, all of them open.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
from collections.abc import Sequence

import msgspec
from msgspec import Struct

from pegboard.errors import InvalidParams, SetupError

_TAG_BYTES = 16
_encode = msgspec.msgpack.Encoder().encode


def read_keys(text: str | None) -> list[bytes]:
    """The keys of a setting, the first of which seals: secrets with commas between; without one, a key of our own."""
    if not text:
        return [secrets.token_bytes(32)]
    parts = [part.strip() for part in text.split(",")]
    if any(len(part) < 16 for part in parts):
        raise SetupError(
            "PEGBOARD_SECRET: each secret must have at least 16 characters; make one with `openssl rand -hex 32`"
        )
    return [hashlib.sha256(part.encode()).digest() for part in parts]


class _Sealed(Struct, array_like=True, frozen=True):
    value: msgspec.Raw
    bearer: str
    expires: float


_decode = msgspec.msgpack.Decoder(_Sealed).decode


class Seal:
    """Seals and opens values for one purpose, such as cursors."""

    def __init__(self, purpose: str, keys: Sequence[bytes]) -> None:
        if not keys or any(len(key) < 16 for key in keys):
            raise ValueError("a seal needs at least one key of 16 bytes or more")
        self._purpose = purpose.encode()
        self._keys = tuple(keys)

    def close(self, value: object, *, bearer: str = "", expires: float = 0.0) -> str:
        """The value as text that only we can have made; `expires` is a point in time, 0 for never."""
        body = _encode(_Sealed(msgspec.Raw(_encode(value)), bearer, expires))
        return base64.urlsafe_b64encode(self._tag(self._keys[0], body) + body).rstrip(b"=").decode("ascii")

    def open(self, text: str, *, now: float, bearer: str = "") -> object:
        """The value again; InvalidParams if it is not ours, not this bearer's, for something else, or too old."""
        try:
            raw = base64.b64decode(text.encode("ascii") + b"=" * (-len(text) % 4), altchars=b"-_", validate=True)
        except (binascii.Error, ValueError):
            raise self._refused("cannot be read") from None
        tag, body = raw[:_TAG_BYTES], raw[_TAG_BYTES:]
        if not any(hmac.compare_digest(tag, self._tag(key, body)) for key in self._keys):
            raise self._refused("was not made by this server, or was changed")
        sealed = _decode(body)
        if sealed.bearer != bearer:
            raise self._refused("was given to somebody else")
        if sealed.expires and now > sealed.expires:
            raise self._refused("has expired")
        value: object = msgspec.msgpack.decode(sealed.value)
        return value

    def _tag(self, key: bytes, body: bytes) -> bytes:
        return hmac.digest(key, self._purpose + b"\0" + body, "sha256")[:_TAG_BYTES]

    def _refused(self, why: str) -> InvalidParams:
        return InvalidParams(f"Invalid {self._purpose.decode()}: it {why}")
