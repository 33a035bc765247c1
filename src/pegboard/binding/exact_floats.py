"""Numbers with all their digits, for Decimal parameters."""

from __future__ import annotations

import math
from decimal import Decimal

import msgspec
from msgspec import Raw

from pegboard.call import Json


class ExactFloats:
    """The floats of one JSON document, each with its text. Holding them keeps their ids from being reused."""

    __slots__ = ("_kept",)

    def __init__(self) -> None:
        self._kept: dict[int, tuple[float, str]] = {}

    def decode(self, raw: bytes | Raw) -> Json:
        """The document as plain JSON; its floats are recorded."""
        return msgspec.json.Decoder(float_hook=self._read).decode(raw)

    def exact(self, number: float) -> Decimal | float:
        """A number as it was written, if this object came from the document."""
        kept = self._kept.get(id(number))
        return number if kept is None else Decimal(kept[1])

    def _read(self, text: str) -> float:
        number = float(text)
        if not math.isfinite(number):
            raise msgspec.DecodeError("Number out of range")
        self._kept[id(number)] = (number, text)
        return number
