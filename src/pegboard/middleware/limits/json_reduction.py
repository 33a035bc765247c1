"""Shortens a JSON value to a size; the result is valid JSON of the same structure.

Theory of operation. Every value gets room, in bytes of JSON, and one that fits stays whole. The parts of a list or an
object share its room: small parts stay whole, and what they leave is shared equally among the larger ones. Where there
are so many parts that a share would say little, the first ones stay whole and the rest is left out. A long text keeps
its beginning and its end. Tokens per byte differ from part to part, so `fit_json` measures and tries again with less.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Final, Literal, TypeAlias

import msgspec
from msgspec import Struct

from pegboard.call import Json
from pegboard.middleware.observability.token_count import Counter
from pegboard.schema.problems import format_keys

Unit: TypeAlias = Literal["items", "entries", "characters"]
Path: TypeAlias = tuple[str | int, ...]

ATTEMPTS = 12
# The share below which the items of a list, or the entries of an object, are left out instead of shortened.
_SHARE: Final[Mapping[Unit, int]] = {"items": 400, "entries": 48}
# The room for the note about what was left out.
_NOTE = 40
_DEPTH = 32

# A number keeps its digits as they were written.
_decode = msgspec.json.Decoder(float_hook=Decimal).decode
_encode = msgspec.json.Encoder(decimal_format="number").encode


class Cut(Struct, frozen=True):
    """A list, an object or a text that was shortened: where it is, and how much of it was kept."""

    keys: Path
    kept: int
    of: int
    unit: Unit

    @property
    def path(self) -> str:
        """The keys as a path, such as `rows[2].text`."""
        return format_keys(self.keys)


class Reduced(Struct, frozen=True):
    """A shortened value: lists and objects end early, without a note in them, so that it can still fit a schema."""

    value: Json
    cuts: Sequence[Cut]

    def annotated(self) -> str:
        """The JSON text of the value with a note at the end of each shortened list and object."""
        if isinstance(self.value, str):
            return self.value
        # A copy: parts of the value are those of the original.
        noted = _decode(_encode(self.value))
        for cut in self.cuts:
            part = noted
            for key in cut.keys:
                part = part[key]
            note = f"{cut.of - cut.kept:,} more {cut.unit}"
            if isinstance(part, list):
                part.append(f"… {note}")
            elif isinstance(part, dict):
                key = "…"
                while key in part:
                    key += "…"
                part[key] = note
        return _encode(noted).decode("utf-8")


def read_container(text: str) -> Json:
    """The list or object that a text contains as JSON, else None."""
    if text.lstrip()[:1] not in ("[", "{"):
        return None
    try:
        value: Json = _decode(text)
    except (ValueError, RecursionError):
        return None
    return value


def fit_json(value: Json, limit: int, count: Counter) -> Reduced:
    """The value within `limit` tokens, with the notes of `annotated`."""
    data = _encode(value)
    tokens = count(data.decode("utf-8"))
    if tokens <= limit:
        return Reduced(value, ())
    room = len(data) * limit // tokens
    for _ in range(ATTEMPTS):
        reduced = reduce_json(value, room)
        used = count(reduced.annotated())
        if used <= limit:
            return reduced
        room = int(room * limit / used * 0.95)
    return reduce_json(value, 0)


def reduce_json(value: Json, room: int) -> Reduced:
    """The value in about `room` bytes of JSON."""
    cuts: list[Cut] = []
    return Reduced(_fit(value, room, (), cuts), cuts)


def _fit(value: Json, room: int, keys: Path, cuts: list[Cut]) -> Json:
    size = _size(value)
    if size <= room:
        return value
    match value:
        case str():
            return _shorten_text(value, size, room, keys, cuts)
        case list() | tuple():
            kept = _keep_parts(list(enumerate(value)), room, keys, cuts, "items")
            return [item for _, item in kept]
        case dict():
            return dict(_keep_parts(list(value.items()), room, keys, cuts, "entries"))
        case _:
            return value


def _keep_parts(
    parts: Sequence[tuple[str | int, Json]], room: int, keys: Path, cuts: list[Cut], unit: Unit
) -> Iterable[tuple[str | int, Json]]:
    share = _fair_share(parts, room)
    if share >= _SHARE[unit] and len(keys) < _DEPTH:
        return [(key, _fit(part, share - _overhead(key), (*keys, key), cuts)) for key, part in parts]
    place = len(cuts)
    kept: list[tuple[str | int, Json]] = []
    left = room - _NOTE
    for key, part in parts:
        left -= _size(part) + _overhead(key)
        if left < 0:
            break
        kept.append((key, part))
    if not kept and room >= 2 * _NOTE and len(keys) < _DEPTH:
        # Part of the first item says more than an empty list.
        key, part = parts[0]
        kept = [(key, _fit(part, room - _NOTE - _overhead(key), (*keys, key), cuts))]
    if len(kept) < len(parts):
        cuts.insert(place, Cut(keys, len(kept), len(parts), unit))
    return kept


def _fair_share(parts: Sequence[tuple[str | int, Json]], room: int) -> int:
    """The room of each part that is too large to stay whole; 0 if there are more parts than room."""
    if len(parts) * 2 > room:
        return 0
    sizes = sorted(_size(part) + _overhead(key) for key, part in parts)
    for place, size in enumerate(sizes):
        share = room // (len(sizes) - place)
        if size > share:
            return share
        room -= size
    return room


def _shorten_text(text: str, size: int, room: int, keys: Path, cuts: list[Cut]) -> str:
    kept = max(0, len(text) * (room - _NOTE) // size)
    cuts.append(Cut(keys, kept, len(text), "characters"))
    note = f"[… {len(text) - kept:,} of {len(text):,} characters left out …]"
    head, tail = text[: kept - kept // 2], text[len(text) - kept // 2 :]
    return f"{head} {note} {tail}" if kept else note


def _size(value: Json) -> int:
    return len(_encode(value))


def _overhead(key: str | int) -> int:
    # A comma; for an entry of an object also its key and a colon.
    return 1 if isinstance(key, int) else _size(key) + 2
