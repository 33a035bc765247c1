"""The string formats that are validated.

`format` is an annotation except for the formats our own schemas use, because only these have one meaning everywhere:

    format      fits (STRICT)                 acceptable after a warning (LENIENT)
    date-time   RFC 3339                      the same without an offset
    date        RFC 3339 full-date            -
    time        RFC 3339, offset optional     -
    duration    ISO 8601, seconds may have a  -
                fraction, the whole a sign
    uuid        hyphenated, any case          -
    uri         absolute, RFC 3986            any text
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import Final

STRICT: Final = frozenset({"date-time", "date", "time", "duration", "uuid", "uri"})
LENIENT: Final = STRICT - {"uri"}
# Formats that are not enforced: a value is accepted without matching.
SOFT: Final = frozenset({"date-time", "uri"})

_TIMESTAMP = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?([Zz]|[+-][0-9]{2}:[0-9]{2})?"
)
_DURATION = re.compile(
    r"[+-]?P([0-9]+W|(?=[0-9T])([0-9]+Y)?([0-9]+M)?([0-9]+D)?"
    r"(T(?=[0-9])([0-9]+H)?([0-9]+M)?([0-9]+(\.[0-9]+)?S)?)?)"
)


def is_timestamp(text: str) -> bool:
    """RFC 3339, with or without an offset."""
    if _TIMESTAMP.fullmatch(text) is None:
        return False
    try:
        # A leap second is a valid timestamp that the standard library does not support.
        datetime.fromisoformat(text.replace(":60", ":59", 1).upper())
    except ValueError:
        return False
    return True


def is_time(text: str) -> bool:
    """RFC 3339 time of day, with or without an offset."""
    return is_timestamp(f"2026-01-31T{text}")


def is_duration(text: str) -> bool:
    """ISO 8601. RFC 3339 has neither sign nor fraction, but a timedelta has both and msgspec writes them."""
    return _DURATION.fullmatch(text) is not None
