"""Loads the JSON Schema library when the first schema is compiled, and checks formats for it.

It takes four megabytes, and a board whose calls fit the signatures of its functions never needs it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    import jsonschema_rs
import re
from datetime import datetime
from typing import Final

BACKTRACKS = 10_000

# `format` is an annotation except for the formats our own schemas use, because only these have one meaning everywhere:
#
#     format      fits (STRICT)                 acceptable after a warning (LENIENT)
#     date-time   RFC 3339                      the same without an offset
#     date        RFC 3339 full-date            -
#     time        RFC 3339, offset optional     -
#     duration    ISO 8601, seconds may have a  -
#                 fraction, the whole a sign
#     uuid        hyphenated, any case          -
#     uri         absolute, RFC 3986            any text
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


class SchemaProblem(ValueError):
    """An invalid schema; `path` leads to the keyword, `fix` says what to do."""

    def __init__(
        self, path: Sequence[str | int], message: str, fix: str = "see the JSON Schema keyword at that path"
    ) -> None:
        super().__init__(message)
        self.path = path
        self.fix = fix


def compile_schema(
    schema: Any,
    formats: frozenset[str],
    registry: jsonschema_rs.Registry | None = None,
    keywords: dict[str, type] | None = None,
) -> jsonschema_rs.Validator:
    """The validator of a schema, which fetches nothing: patterns run in linear time, or with bounded backtracking."""
    import jsonschema_rs  # noqa: PLC0415 (a heavy third party, imported only here)

    checks: dict[str, Callable[[str], bool]] = {"time": is_time, "duration": is_duration}
    if "uri" not in formats:
        checks["date-time"] = is_timestamp
    build: Callable[..., jsonschema_rs.Validator] = partial(
        jsonschema_rs.validator_for,
        schema,
        formats=checks,
        validate_formats=True,
        retriever=_refuse,
        registry=registry,
        keywords=keywords or None,
    )
    try:
        return build(pattern_options=jsonschema_rs.RegexOptions())
    except ValueError:
        pass
    try:
        return build(pattern_options=jsonschema_rs.FancyRegexOptions(backtrack_limit=BACKTRACKS))
    except jsonschema_rs.ValidationError as error:
        raise SchemaProblem(error.instance_path, error.message) from error


def register(name: str, schema: Any) -> jsonschema_rs.Registry:
    """The registry that lets other schemas refer to this one by name."""
    import jsonschema_rs  # noqa: PLC0415 (a heavy third party, imported only here)

    return jsonschema_rs.Registry([(name, schema)], retriever=_refuse)


def _refuse(uri: str) -> NoReturn:
    raise LookupError(f"{uri[:80]} is outside the schema and is never fetched")
