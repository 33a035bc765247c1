"""Times on the command line: a duration such as 12h or 30d, or a date."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final

from pegboard.errors import SetupError

_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_DURATION: Final = re.compile(r"([1-9][0-9]{0,8})([smhdw])")


def read_duration(flag: str, text: str) -> float:
    """The seconds of a duration."""
    found = _DURATION.fullmatch(text)
    if found is None:
        raise SetupError(f"{flag} {text!r} is not a time; write it like 12h, 30d or 8w")
    return int(found[1]) * _UNITS[found[2]]


def read_moment(flag: str, text: str, now: float) -> float:
    """A point in time: so long ago, or a date with or without a time, which is in UTC unless it names a zone."""
    if _DURATION.fullmatch(text):
        return now - read_duration(flag, text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise SetupError(
            f"{flag} {text!r} is not a time; write it like 2h, 3d, 2026-01-31 or 2026-01-31T12:00"
        ) from None
    return (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp()
