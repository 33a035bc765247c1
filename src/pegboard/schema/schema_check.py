"""Rejects schemas that are invalid, too large or too expensive."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from urllib.parse import unquote

from pegboard.call import Json
from pegboard.errors import DeclarationError
from pegboard.schema.cost.references import DIALECTS, join, lookup, subschemas
from pegboard.schema.jsonschema_backend import SchemaProblem
from pegboard.schema.validator import Validator

SCHEMA_DEPTH = 64
SCHEMA_PARTS = 10_000
PATTERN_LENGTH = 1_000


def check_schema(schema: Mapping[str, Json], where: str) -> None:
    """Reject an invalid or unbounded schema of a tool, or one with outside references; the text says where and how to
    fix it."""
    refuse = partial(_declare, where)
    dialect = schema.get("$schema", next(iter(DIALECTS)))
    if not isinstance(dialect, str) or dialect.rstrip("#") not in DIALECTS:
        refuse(
            "/$schema", f"uses an unsupported dialect: {dialect!r:.80}", f"use one of {', '.join(DIALECTS.values())}"
        )
    if schema.get("type") != "object":
        refuse("/type", f"is {schema.get('type')!r:.40}", 'arguments are an object: write "type": "object"')
    _measure(schema, refuse)
    try:
        Validator(schema).compile()
    except SchemaProblem as error:
        refuse(join("", *error.path), str(error)[:200], error.fix)
    except (ValueError, RecursionError, TypeError) as error:
        refuse("", str(error)[:200], "a schema may contain only JSON values")


def _declare(where: str, pointer: str, wrong: str, fix: str) -> None:
    raise DeclarationError(f"{where}: schema at {pointer or 'its root'}: {wrong}; {fix}")


def _measure(schema: Mapping[str, Json], refuse: Callable[[str, str, str], None]) -> None:
    parts, identified = 0, False
    found: list[tuple[str, Mapping[str, Json]]] = []
    for pointer, part, depth in subschemas(schema):
        choices = part.get("enum")
        parts += 1 + (len(choices) if isinstance(choices, list) else 0)
        if depth > SCHEMA_DEPTH:
            refuse(pointer[:80], f"nests deeper than {SCHEMA_DEPTH}", 'move parts to "$defs" and refer to them')
        if parts > SCHEMA_PARTS:
            refuse("", f"has more than {SCHEMA_PARTS} subschemas", "describe the arguments with fewer")
        identified = identified or isinstance(part.get("$id"), str)
        found.append((pointer, part))
    for pointer, part in found:
        _check_patterns(pointer, part, refuse)
        if not identified:
            _check_reference(pointer, part.get("$ref"), refuse, schema)


def _check_patterns(pointer: str, part: Mapping[str, Json], refuse: Callable[[str, str, str], None]) -> None:
    named = part.get("patternProperties")
    for pattern in (part.get("pattern"), *(named if isinstance(named, Mapping) else ())):
        if isinstance(pattern, str) and len(pattern) > PATTERN_LENGTH:
            refuse(pointer, f"has a pattern longer than {PATTERN_LENGTH} characters", "check such text in the tool")


def _check_reference(
    pointer: str, reference: Json, refuse: Callable[[str, str, str], None], root: Mapping[str, Json]
) -> None:
    if not isinstance(reference, str):
        return
    at = join(pointer, "$ref")
    if not reference.startswith("#"):
        if reference.rstrip("#") not in DIALECTS:
            refuse(
                at,
                f"refers outside the document: {reference[:80]!r}",
                'references are not fetched; copy it into "$defs"',
            )
    elif reference.startswith("#/"):
        try:
            lookup(root, unquote(reference[1:]))
        except LookupError:
            refuse(at, f"refers to nothing: {reference[:80]!r}", "define it or fix the pointer")
