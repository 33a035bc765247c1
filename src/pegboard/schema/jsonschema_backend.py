"""Loads the JSON Schema library when the first schema is compiled.

It takes four megabytes, and a board whose calls fit the signatures of its functions never needs it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

from pegboard.schema.formats import is_duration, is_time, is_timestamp

if TYPE_CHECKING:
    import jsonschema_rs

BACKTRACKS = 10_000


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
