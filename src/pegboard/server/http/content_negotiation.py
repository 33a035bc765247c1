"""Reads Content-Type and Accept."""

from __future__ import annotations

from functools import lru_cache

from msgspec import Struct

from pegboard.errors import InvalidRequest


class UnsupportedMediaType(InvalidRequest):
    status = 415


class Accepts(Struct, frozen=True):
    """The forms of a response that a client accepts."""

    json: bool = True
    stream: bool = True


@lru_cache(maxsize=256)
def read_accept(accept: bytes | None) -> Accepts:
    """The forms that an Accept header allows; a client without the header accepts both."""
    if accept is None:
        return Accepts()
    kinds = set()
    for part in accept.lower().split(b","):
        kind, *parameters = (piece.strip() for piece in part.split(b";"))
        if not any(_is_zero(parameter) for parameter in parameters):
            kinds.add(kind)
    return Accepts(
        json=not kinds.isdisjoint((b"*/*", b"application/*", b"application/json")),
        stream=not kinds.isdisjoint((b"*/*", b"text/*", b"text/event-stream")),
    )


def check_content_type(value: bytes | None) -> None:
    """Reject a body whose Content-Type is not JSON, or not UTF-8."""
    kind, *parameters = (piece.strip() for piece in (value or b"").lower().split(b";"))
    charsets = [piece.partition(b"=")[2].strip(b' "') for piece in parameters if piece.startswith(b"charset=")]
    if kind != b"application/json":
        raise UnsupportedMediaType("Content-Type must be application/json")
    if any(charset != b"utf-8" for charset in charsets):
        raise UnsupportedMediaType("The charset of the Content-Type must be utf-8: JSON-RPC messages must be UTF-8")


def _is_zero(parameter: bytes) -> bool:
    """Whether a quality value means "not acceptable" (RFC 9110, 12.4.2)."""
    name, _, value = parameter.partition(b"=")
    return name.strip() == b"q" and value.strip().rstrip(b"0") in (b"", b"0.", b".") and value.strip() != b""
