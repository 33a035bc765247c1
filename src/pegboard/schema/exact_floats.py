"""Floats with the characters that were sent, for Decimal and text parameters."""

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

    def decode(self, raw: bytes | Raw | str) -> Json:
        """The document as plain JSON; its floats are recorded."""
        return msgspec.json.Decoder(float_hook=self._read).decode(raw)

    def exact(self, number: float) -> Decimal | float:
        """A number as it was written, if this object came from the document."""
        kept = self._kept.get(id(number))
        return number if kept is None else Decimal(kept[1])

    def encode(self, value: Json) -> str | None:
        """The JSON text of a value, in which floats of the document are as they were sent; None if it has none."""
        try:
            return msgspec.json.encode(self._restore(value)).decode()
        except (TypeError, ValueError, RecursionError):
            return None

    def _restore(self, value: Json) -> Json:
        if isinstance(value, float):
            kept = self._kept.get(id(value))
            return value if kept is None else Raw(kept[1].encode())
        if isinstance(value, dict):
            return {name: self._restore(inner) for name, inner in value.items()}
        return [self._restore(inner) for inner in value] if isinstance(value, list) else value

    def _read(self, text: str) -> float:
        number = float(text)
        if not math.isfinite(number):
            raise msgspec.DecodeError("Number out of range")
        self._kept[id(number)] = (number, text)
        return number
