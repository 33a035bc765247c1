"""Finds members that a JSON object repeats, without looking at each of them.

Theory of operation. One parser takes the first value of a repeated member, another the last, so that what was checked is
not what is used. Our decoder keeps the last. A text with a repeated member therefore has more strings than the value it
decodes to, and each string takes two quotation marks. Marks within strings are escaped alike in the text and in its encoded
value, so the counts of both are equal unless a member is repeated. The one exception is a mark that is written as its
number, 0022: such a text is looked at exactly, and so is every text whose counts differ.

Long texts are mostly long strings, which are not decoded: the members of an object are split off as text, and where the
marks of all values and of all distinct names are those of the object, no name comes twice.
"""

from __future__ import annotations

import json
from typing import Any, Final

import msgspec
from msgspec import Raw

QUOTE: Final = b'"'
_ESCAPED_QUOTE: Final = b"\\u0022"
_LONG: Final = 1024
# The message, its params and their arguments; deeper parts would be scanned repeatedly.
_LEVELS: Final = 3

_decode = msgspec.json.Decoder().decode
_decode_members = msgspec.json.Decoder(dict[str, Raw]).decode
_encode = msgspec.json.Encoder().encode


def repeated_member(text: bytes) -> str | None:
    """The name of a member that an object in this JSON text repeats, at any depth."""
    return _find_repeated(text) if may_repeat(text, text.count(QUOTE)) else None


def may_repeat(text: bytes, quotes: int, levels: int = _LEVELS) -> bool:
    """Whether an object in this JSON text, with this many quotation marks, may repeat a member; False is certain."""
    try:
        if len(text) > _LONG and levels and text.startswith(b"{"):
            return _may_repeat_long(text, quotes, levels)
        value = _decode(text)
        # Most arguments are flat: if all strings are different, there are no repeated names.
        if type(value) is dict and 2 * len(value) == quotes:
            return False
        # A single byte is found fastest, and most texts have no backslash.
        if text.find(b"\\") >= 0 and text.find(_ESCAPED_QUOTE) >= 0:
            return True
        return _encode(value).count(QUOTE) != quotes
    except msgspec.MsgspecError:
        # JSON with a number that does not fit a float.
        return True


def _may_repeat_long(text: bytes, quotes: int, levels: int) -> bool:
    left = quotes
    for value in _decode_members(text).values():
        written = bytes(value)
        inside = written.count(QUOTE)
        left -= 2 + inside
        # Two members need at least four quotation marks.
        if inside >= 4 and not written.startswith(QUOTE) and may_repeat(written, inside, levels - 1):
            return True
    return left != 0


class _Repeated(Exception):
    """An object repeats this member."""


def _find_repeated(text: bytes) -> str | None:
    try:
        json.loads(text, object_pairs_hook=_check_pairs, parse_int=str, parse_float=str)
    except _Repeated as found:
        return str(found)
    return None


def _check_pairs(pairs: list[tuple[str, Any]]) -> None:
    seen: set[str] = set()
    for name, _ in pairs:
        if name in seen:
            raise _Repeated(name)
        seen.add(name)
