"""Reads bounds, descriptions and examples from annotations of any library.

Our own classes, a plain string, annotated-types, pydantic's `Field` and msgspec's `Meta` are read in the same way, by
the names of their attributes; none of those libraries is imported.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import UNSET, Struct

from pegboard.call import Json


class Range(Struct, frozen=True):
    """The smallest and the largest allowed number, inclusive; None for no bound."""

    minimum: float | None = None
    maximum: float | None = None


class MinLength(Struct, frozen=True):
    """The smallest number of characters, or of items."""

    value: int


class MaxLength(Struct, frozen=True):
    """The largest number of characters, or of items."""

    value: int


class Pattern(Struct, frozen=True):
    """A regular expression that must be found in the text; anchor it with ^ and $ to match the whole."""

    value: str | re.Pattern[str]


class Description(Struct, frozen=True):
    """The purpose of the parameter, in words for the model."""

    text: str


class Header(Struct, frozen=True):
    """Mirror the argument into the HTTP header `Mcp-Param-<name>`, so that proxies can route by it."""

    name: str


class EnumConstraint(Struct, frozen=True):
    """The only allowed values; another case is accepted unless `case_sensitive`."""

    allowed_values: Sequence[Json]
    case_sensitive: bool = False

    def __post_init__(self) -> None:
        if not self.allowed_values:
            raise ValueError("EnumConstraint: pass at least one allowed value")


class ValueNotes(Struct, frozen=True, kw_only=True):
    """All constraints of one value, from any library."""

    description: str = ""
    examples: tuple[Json, ...] = ()
    minimum: float | None = None
    above: float | None = None
    maximum: float | None = None
    below: float | None = None
    multiple_of: float | None = None
    min_length: int | None = None
    max_length: int | None = None
    pattern: str | None = None
    allowed: tuple[Json, ...] = ()
    case_sensitive: bool = False
    header: str = ""
    alias: str = ""
    default: Any = UNSET
    extra: Mapping[str, Json] = {}


NO_NOTES = ValueNotes()

# Keywords that describe a schema without restricting it.
REMARKS = frozenset(
    {"title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly", "$schema", "$id", "$comment"}
)

_BOUNDS = ("minimum", "above", "maximum", "below", "multiple_of", "min_length", "max_length", "pattern", "allowed")

# Attribute → field, for annotated-types, msgspec.Meta and pydantic.
_SHARED_WORDS = {
    "ge": "minimum",
    "gt": "above",
    "le": "maximum",
    "lt": "below",
    "multiple_of": "multiple_of",
    "min_length": "min_length",
    "max_length": "max_length",
    "pattern": "pattern",
    "description": "description",
    "documentation": "description",
    "examples": "examples",
}


def has_bounds(notes: ValueNotes) -> bool:
    """Whether these notes reject any value of the type."""
    return notes is not NO_NOTES and (narrows(notes) or any(getattr(notes, name) not in {None, ()} for name in _BOUNDS))


def narrows(notes: ValueNotes) -> bool:
    """Whether the author's own keywords may reject a value: all but those that only describe."""
    return any(key not in REMARKS and not key.startswith("x-") for key in notes.extra)


def read_notes(metadata: Iterable[Any], under: ValueNotes = NO_NOTES) -> ValueNotes:
    """Collect the metadata of an `Annotated`, where the last one wins; `under` is what is known already."""
    notes: dict[str, Any] = {}
    for word in metadata:
        _read_word(word, notes)
    return msgspec.structs.replace(under, **notes) if notes else under


def is_field(word: Any) -> bool:
    """Whether this is a pydantic `Field(…)`."""
    return hasattr(word, "json_schema_extra") and hasattr(word, "metadata")


def _read_word(word: Any, notes: dict[str, Any]) -> None:
    match word:
        case str():
            notes["description"] = word
        case Description(text):
            notes["description"] = text
        case Range(minimum, maximum):
            notes.update({"minimum": minimum, "maximum": maximum})
        case MinLength(value):
            notes["min_length"] = value
        case MaxLength(value):
            notes["max_length"] = value
        case Pattern(value):
            notes["pattern"] = _text_of(value)
        case Header(name):
            notes["header"] = name
        case EnumConstraint(allowed, case_sensitive):
            notes.update({"allowed": tuple(allowed), "case_sensitive": case_sensitive})
        case ValueNotes():
            notes.update(
                {
                    name: value
                    for name, value in msgspec.structs.asdict(word).items()
                    if value != getattr(NO_NOTES, name)
                }
            )
        case _:
            _read_foreign(word, notes)


def _read_foreign(word: Any, notes: dict[str, Any]) -> None:
    if isinstance(word, type):
        return
    if is_field(word):
        for inner in word.metadata:
            _read_foreign(inner, notes)
        _read_field(word, notes)
    for attribute, name in _SHARED_WORDS.items():
        value = getattr(word, attribute, None)
        if value is None:
            continue
        if name == "pattern":
            value = _text_of(value)
        elif name == "examples":
            value = tuple(value)
        notes[name] = value
    title = getattr(word, "title", None)
    if isinstance(title, str):
        notes["extra"] = {"title": title, **notes.get("extra", {})}
    extra = getattr(word, "extra_json_schema", None)
    if isinstance(extra, dict):
        notes["extra"] = {**notes.get("extra", {}), **extra}


def _read_field(field: Any, notes: dict[str, Any]) -> None:
    if isinstance(field.json_schema_extra, dict):
        notes["extra"] = {**notes.get("extra", {}), **field.json_schema_extra}
    alias = next((name for name in (field.validation_alias, field.alias) if isinstance(name, str)), "")
    if alias:
        notes["alias"] = alias
    if not field.is_required() and field.default_factory is None:
        notes["default"] = field.default


def _text_of(pattern: str | re.Pattern[str]) -> str:
    return pattern if isinstance(pattern, str) else pattern.pattern
