"""Sealed values: only the very text that was sealed opens, and only for its bearer."""

from __future__ import annotations

from pegboard.errors import InvalidParams
from pegboard.security.seal import Seal

KEYS = [bytes(range(32))]
SEALS = (Seal("fuzz", KEYS), Seal("fuzz", KEYS, secret=True))
SEALED = tuple(seal.close({"n": 1}, bearer="me", expires=10.0) for seal in SEALS)


def check(data: bytes) -> None:
    """The text as it is, and edits of a sealed one: pairs of a place and a byte."""
    for seal, sealed in zip(SEALS, SEALED, strict=True):
        edited = bytearray(sealed.encode())
        for place, byte in zip(data[::2], data[1::2], strict=False):
            edited[place % len(edited)] = byte
        for text in (data.decode("utf-8", "replace"), edited.decode("latin-1"), sealed + data.decode("latin-1")):
            check_text(seal, sealed, text)


def check_text(seal: Seal, sealed: str, text: str) -> None:
    try:
        value = seal.open(text, now=5.0, bearer="me")
    except InvalidParams:
        assert text != sealed
        return
    assert text == sealed, "one value has one spelling"
    assert value == {"n": 1}
    try:
        seal.open(text, now=5.0, bearer="other")
    except InvalidParams:
        return
    raise AssertionError("it opened for another bearer")
