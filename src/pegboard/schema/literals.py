"""What a value sent as the wrong JSON type can be read as.

All functions are pure. A reader returns `None` if the text is not such a literal (or a tuple, where null is a possible
value).
"""

from __future__ import annotations

import math
import re
import uuid
from collections.abc import Callable, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal, InvalidOperation
from typing import Final, TypeAlias

import msgspec

from pegboard.call import Json
from pegboard.schema.exact_floats import ExactFloats

# Faster to check than a union of the two.
CONTAINERS: Final = (dict, list)
# More digits than any number a tool takes; the cost of conversion grows with the square of the length.
NUMBER_LENGTH = 400
TEXT_DEPTH = 64
# Longer text is not a misspelt name.
NAME_LENGTH = 1_000

_BOOLEANS: Final = {
    "true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False,
}  # fmt: skip
_NULLS: Final = frozenset({"null", "none"})
_NUMBER = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]{1,4})?")
_THOUSANDS = re.compile(r"[+-]?[1-9][0-9]{0,2}(,[0-9]{3})+(\.[0-9]+)?")
# A string is always matched whole, so that nothing inside one is taken for a comment or a trailing comma.
_COMMENT = re.compile(r'("(?:[^"\\]|\\.)*+"?)|//[^\n]*|/\*[\s\S]*?(?:\*/|\Z)')
_COMMA = re.compile(r'("(?:[^"\\]|\\.)*+"?)|,(?=\s*+[}\]])')
_CLOCK = re.compile(r"([0-9]{1,3}):([0-5][0-9]):([0-5][0-9])")
_AMOUNT = re.compile(r"\s*([0-9]{1,9}(?:\.[0-9]{1,6})?)\s*([a-z]+)\s*(?:,|and\b)?")
_UNITS: Final = {
    name: seconds
    for names, seconds in (
        ("s sec secs second seconds", 1),
        ("m min mins minute minutes", 60),
        ("h hr hrs hour hours", 3600),
        ("d day days", 86400),
        ("w week weeks", 604800),
    )
    for name in names.split()
}

# A possible reading of a value, and the code of the repair.
Reading: TypeAlias = tuple[Json, str]

_SEPARATORS = str.maketrans("", "", "-_ .")


def kind_of(value: Json) -> str:
    """The JSON Schema type of a JSON value."""
    match value:
        case str():
            return "string"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "integer" if value.is_integer() else "number"
        case None:
            return "null"
        case list():
            return "array"
        case _:
            return "object"


def fold_name(name: str) -> str:
    """One spelling for userName, user_name, user-name and User Name."""
    return name.casefold().translate(_SEPARATORS)


def encode(value: Json) -> str | None:
    """JSON text; None if it is not valid JSON."""
    try:
        return msgspec.json.encode(value).decode()
    except (TypeError, ValueError, RecursionError):
        return None


def says_null(value: Json) -> bool:
    return isinstance(value, str) and len(value) < 40 and value.strip().lower() in _NULLS


def to_boolean(text: str) -> bool | None:
    return _BOOLEANS.get(text.strip().lower()) if len(text) < 40 else None


def to_decimal(text: str) -> Decimal | None:
    """A finite decimal number, thousands separated by commas only where every group has three digits."""
    text = text.strip()
    if len(text) > NUMBER_LENGTH:
        return None
    if _THOUSANDS.fullmatch(text):
        text = text.replace(",", "")
    elif not _NUMBER.fullmatch(text):
        return None
    try:
        number = Decimal(text)
    except InvalidOperation:
        return None
    return number if abs(number.adjusted()) <= NUMBER_LENGTH else None


def to_integer(text: str) -> int | None:
    if text.isascii() and text.isdecimal() and len(text) <= NUMBER_LENGTH:
        return int(text)
    number = to_decimal(text)
    return int(number) if number is not None and number == number.to_integral_value() else None


def to_number(text: str) -> int | float | None:
    if text.isascii() and text.isdecimal() and len(text) <= NUMBER_LENGTH:
        return int(text)
    number = to_decimal(text)
    if number is None:
        return None
    if number == number.to_integral_value() and "." not in text:
        return int(number)
    real = float(number)
    return real if math.isfinite(real) else None


def to_json(text: str, decode: Callable[[str], Json] = msgspec.json.decode) -> tuple[Json] | None:
    """The value of JSON text; a code fence around it, comments and trailing commas are accepted."""
    text = text.strip()
    if text.startswith("```") and text.endswith("```"):
        text = text[3:-3].removeprefix("json").removeprefix("JSON").strip()
    if not text:
        return None
    try:
        value = decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        plain = _COMMA.sub(r"\1", _COMMENT.sub(r"\1", text))
        if plain == text:
            return None
        try:
            value = decode(plain)
        except (msgspec.DecodeError, RecursionError, UnicodeError):
            return None
    return (value,) if _is_shallow(value, text) else None


def _is_shallow(value: Json, text: str) -> bool:
    if text.count("[") + text.count("{") <= TEXT_DEPTH:
        return True
    level = [value]
    for _ in range(TEXT_DEPTH):
        level = [
            inner
            for part in level
            if isinstance(part, CONTAINERS)
            for inner in (part.values() if isinstance(part, dict) else part)
            if isinstance(inner, CONTAINERS)
        ]
        if not level:
            return True
    return False


def to_duration(text: str) -> str | None:
    """ISO 8601 of `1h`, `90 min`, `1h 30m`, `2 days` or `01:30:00`."""
    text = text.strip().lower()
    if len(text) > 100:
        return None
    if text.startswith("p"):
        return text.upper()
    if clock := _CLOCK.fullmatch(text):
        hours, minutes, seconds = map(int, clock.groups())
        return _format_duration(timedelta(hours=hours, minutes=minutes, seconds=seconds))
    total, at = Decimal(0), 0
    used: set[int] = set()
    while at < len(text):
        amount = _AMOUNT.match(text, at)
        unit = _UNITS.get(amount[2]) if amount else None
        if amount is None or unit is None or unit in used:
            return None
        used.add(unit)
        total += Decimal(amount[1]) * unit
        at = amount.end()
    if not used:
        return None
    try:
        return _format_duration(timedelta(microseconds=int(total * 1_000_000)))
    except OverflowError:
        return None


def _format_duration(span: timedelta) -> str:
    minutes, seconds = divmod(span.seconds, 60)
    hours, minutes = divmod(minutes, 60)
    fraction = f".{span.microseconds:06d}".rstrip("0") if span.microseconds else ""
    days = f"{span.days}D" if span.days else ""
    clock = "".join(f"{amount}{unit}" for amount, unit in ((hours, "H"), (minutes, "M")) if amount)
    if seconds or fraction or not (days or clock):
        clock += f"{seconds}{fraction}S"
    return f"P{days}T{clock}" if clock else f"P{days}"


def to_timestamp(text: str) -> str | None:
    """RFC 3339 of other ISO 8601 spellings; a date alone is its midnight; an offset is never guessed."""
    return _normal(lambda: datetime.fromisoformat(text.strip()).isoformat())


def to_uuid(text: str) -> str | None:
    return _normal(lambda: str(uuid.UUID(text.strip()))) if len(text) <= 60 else None


def _normal(read: Callable[[], str]) -> str | None:
    """The usual spelling of a text; None if it cannot be read."""
    try:
        return read()
    except ValueError:
        return None


_FORMATS: Final[Mapping[str, tuple[Callable[[str], str | None], str]]] = {
    "date-time": (to_timestamp, "timestamp_normalised"),
    "date": (lambda text: _normal(lambda: date.fromisoformat(text.strip()).isoformat()), "date_normalised"),
    # With its seconds spelt out.
    "time": (lambda text: _normal(lambda: time.fromisoformat(text.strip()).isoformat()), "time_normalised"),
    "duration": (to_duration, "duration_text_converted"),
    "uuid": (to_uuid, "uuid_normalised"),
}


def readings(
    value: Json, wanted: frozenset[str], formats: frozenset[str], floats: ExactFloats | None = None
) -> list[Reading]:
    """All possible readings of a value as one of these types; the caller keeps those that are valid.

    `floats` are those of the document that contains the value: as text, they keep their characters.
    """
    floats = floats or ExactFloats()
    if isinstance(value, str):
        return _text_readings(value, wanted, formats, floats)
    found: list[Reading] = []
    # Any text may be a relative URI; other types may not.
    as_text = "string" in wanted and "uri" not in formats
    match value:
        case bool():
            if as_text:
                found.append(("true" if value else "false", "non_string_literal_retained"))
        case int() | float():
            if "boolean" in wanted and value in {0, 1}:
                found.append((value == 1, "number_coerced_to_boolean"))
            if "integer" in wanted and isinstance(value, float) and math.isfinite(value):
                found.append((int(value), "fractional_number_truncated_to_integer"))
            if as_text and math.isfinite(value):
                found.append((floats.encode(value), "non_string_literal_retained"))
        case dict() | list():
            if as_text and (text := floats.encode(value)) is not None:
                found.append((text, "non_string_literal_retained"))
    return found


def _text_readings(text: str, wanted: frozenset[str], formats: frozenset[str], floats: ExactFloats) -> list[Reading]:
    found: list[Reading] = []
    if formats and "string" in wanted:
        for name in formats & _FORMATS.keys():
            read, code = _FORMATS[name]
            if (normal := read(text)) is not None and normal != text:
                found.append((normal, code))
    if "boolean" in wanted and (truth := to_boolean(text)) is not None:
        found.append((truth, "string_literal_converted_to_boolean"))
    if "number" in wanted:
        if (number := to_number(text)) is not None:
            found.append((number, "string_literal_converted_to_number"))
    elif "integer" in wanted and (whole := to_integer(text)) is not None:
        found.append((whole, "string_literal_converted_to_integer"))
    if "null" in wanted and says_null(text):
        found.append((None, "string_literal_converted_to_null"))
    if "object" in wanted or "array" in wanted:
        found += _container_readings(text, wanted, floats)
    return found


def _container_readings(text: str, wanted: frozenset[str], floats: ExactFloats) -> list[Reading]:
    if not text or text.isspace():
        empty: list[tuple[str, Reading]] = [
            ("object", ({}, "empty_object_string")),
            ("array", ([], "empty_array_string")),
        ]
        return [reading for kind, reading in empty if kind in wanted]
    found = to_json(text, floats.decode)
    if found is not None and isinstance(found[0], str):
        # JSON text inside JSON text: unwrapped once only.
        found = to_json(found[0], floats.decode)
    if found is not None and isinstance(found[0], dict) and "object" in wanted:
        return [(found[0], "string_literal_converted_to_object")]
    if found is not None and isinstance(found[0], list) and "array" in wanted:
        return [(found[0], "string_literal_converted_to_array")]
    return []


class Names:
    """The values of an enumeration by name, as a caller may spell them.

    A name matches first without case and surrounding space, then without separators; `exact` ignores surrounding space
    only. Two names of one value are one match.
    """

    __slots__ = ("_spelt",)

    def __init__(self, names: Mapping[str, Json], *, exact: bool = False) -> None:
        self._spelt: list[tuple[Callable[[str], str], dict[str, dict[str | None, Json]]]] = []
        for spell in (str.strip,) if exact else (lambda name: name.strip().casefold(), fold_name):
            spelt: dict[str, dict[str | None, Json]] = {}
            for name, value in names.items():
                spelt.setdefault(spell(name), {})[encode(value)] = value
            self._spelt.append((spell, spelt))

    def match(self, text: str) -> list[Json]:
        """The values that a text names."""
        if len(text) > NAME_LENGTH:
            return []
        for spell, spelt in self._spelt:
            sought = spell(text)
            if not sought:
                break
            if sought in spelt:
                return list(spelt[sought].values())
        return []
