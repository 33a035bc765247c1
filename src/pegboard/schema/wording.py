"""Phrases for messages to the model: values, allowed values and examples."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Final

from pegboard.call import Json
from pegboard.schema.cost.references import follow_local
from pegboard.schema.literals import CONTAINERS, encode
from pegboard.schema.name_similarity import likeliest

_ARTICLES: Final = {
    "string": "a string",
    "boolean": "true or false",
    "integer": "an integer",
    "number": "a number",
    "null": "null",
    "array": "a list",
    "object": "an object",
}
_PLURALS: Final = {
    "string": "strings",
    "boolean": "booleans",
    "integer": "integers",
    "number": "numbers",
    "array": "lists",
    "object": "objects",
}
_FORMATS: Final = {
    "date-time": ("a date and time", "2026-01-31T12:00:00Z"),
    "date": ("a date", "2026-01-31"),
    "time": ("a time of day", "12:30:00"),
    "duration": ("a duration", "PT1H30M"),
    "uuid": ("a UUID", "123e4567-e89b-12d3-a456-426614174000"),
    "uri": ("an absolute URI", None),
}


# The text of a decimal number, which is described in words.
DECIMAL_PATTERN: Final = r"^[+-]?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?$"
# If there are more names than this, only the first are compared with an unknown one; longer names never.
COMPARED = 500
COMPARED_LENGTH = 48
# Whole numbers up to this are shown in full, and have one spelling.
_SHORT: Final = 10**12


def show_value(value: Json, most: int = 40) -> str:
    """A value as JSON, cut to a length."""
    if type(value) is str:
        if len(value) < most - 2 and value.isascii() and value.isprintable() and not ('"' in value or "\\" in value):
            # Its repr is its JSON.
            return f'"{value}"'
    elif type(value) is int and -_SHORT < value < _SHORT:
        return repr(value)
    text = encode(_head(value, most) if isinstance(value, (str, *CONTAINERS)) else value)
    if text is None:
        text = ascii(value[:most]) if isinstance(value, str) else "…"
    if len(text) <= most:
        return text
    return f'{text[: most - 2]}…"' if isinstance(value, str) else f"{text[: most - 1]}…"


def _head(value: Json, most: int, depth: int = 3) -> Json:
    """Enough of a value for the part that is shown."""
    match value:
        case str():
            return value[: most + 8]
        case dict():
            shown = dict(islice(value.items(), 12 if depth else 0))
            return {key[:most]: _head(inner, most, depth - 1) for key, inner in shown.items()}
        case list():
            return [_head(inner, most, depth - 1) for inner in value[: 12 if depth else 0]]
    return value


def clip_value(value: Json, most: int = 1000) -> Json:
    """The value itself where its JSON takes about `most` characters or fewer; otherwise the beginning of its JSON, as text."""
    if type(value) is str and len(value) <= most - 2:
        return value
    return value if _room_after(value, most) >= 0 else show_value(value, 200)


def _room_after(value: Json, room: int) -> int:
    """How many of `room` characters are left after a value; negative as soon as there are none."""
    match value:
        case str():
            return room - len(value) - 2
        case dict():
            parts: Iterable[Json] = (part for member in value.items() for part in member)
        case list():
            parts = value
        case _:
            return room - 4
    room -= 2
    for part in parts:
        room = _room_after(part, room)
        if room < 0:
            break
    return room


def closest(name: str, names: Iterable[str]) -> str | None:
    """The most similar name, if one is similar."""
    # Only messages about mistakes need it.
    from difflib import get_close_matches  # noqa: PLC0415 — slow to import

    known = {each.casefold(): each for each in islice(names, COMPARED) if len(each) <= COMPARED_LENGTH}
    sought = name[:COMPARED_LENGTH].casefold()
    found = get_close_matches(sought, likeliest(sought, known, 8), n=1, cutoff=0.6)
    return known[found[0]] if found else None


def describe(schema: Mapping[str, Json], root: Mapping[str, Json], depth: int = 0) -> str:
    """What a schema allows, in a few words."""
    schema = _resolve(schema, root)
    if "const" in schema:
        return show_value(schema["const"], 30)
    listed = schema.get("enum")
    if isinstance(listed, list) and listed:
        return "one of " + _listing(listed) if len(listed) > 1 else show_value(listed[0], 30)
    branches = schema.get("anyOf") or schema.get("oneOf")
    if "type" not in schema and isinstance(branches, list) and depth < 3:
        descriptions = [describe(branch, root, depth + 1) for branch in branches[:6] if isinstance(branch, Mapping)]
        return " or ".join(dict.fromkeys(descriptions)) or "another value"
    kinds = schema.get("type")
    kinds = kinds if isinstance(kinds, list) else [kinds]
    return " or ".join(_describe_kind(kind, schema, root, depth) for kind in kinds[:6])


def _describe_kind(kind: Json, schema: Mapping[str, Json], root: Mapping[str, Json], depth: int) -> str:
    if kind in ("integer", "number"):
        return _ARTICLES[kind] + _span(schema)
    if kind == "string":
        return _describe_string(schema)
    if kind == "array":
        items = schema.get("items")
        inner = _resolve(items, root) if isinstance(items, Mapping) and depth < 3 else {}
        inner_kind = inner.get("type")
        listed = inner.get("enum")
        if isinstance(listed, list):
            return "a list of " + _listing(listed)
        plural = _PLURALS.get(inner_kind) if isinstance(inner_kind, str) else None
        return (f"a list of {plural}" if plural else "a list") + describe_size(schema, "minItems", "maxItems", "items")
    if kind == "object":
        required = schema.get("required")
        names = [name for name in required if isinstance(name, str)] if isinstance(required, list) else []
        return "an object" + (f" with {', '.join(names[:4])}" if names else "")
    return _ARTICLES.get(kind, "another value") if isinstance(kind, str) else "another value"


def _describe_string(schema: Mapping[str, Json]) -> str:
    form = schema.get("format")
    if isinstance(form, str) and form in _FORMATS:
        return _FORMATS[form][0]
    pattern = schema.get("pattern")
    if pattern == DECIMAL_PATTERN:
        return "a decimal number as text"
    text = "a string" + describe_size(schema, "minLength", "maxLength", "characters")
    return f"{text} matching {pattern[:40]}" if isinstance(pattern, str) else text


def _span(schema: Mapping[str, Json]) -> str:
    low, above = schema.get("minimum"), schema.get("exclusiveMinimum")
    high, below = schema.get("maximum"), schema.get("exclusiveMaximum")
    if low is not None and high is not None:
        return f" from {low} to {high}"
    parts = [
        f"{word} {show_value(bound)}"
        for word, bound in (("at least", low), ("above", above), ("at most", high), ("below", below))
        if bound is not None and not isinstance(bound, bool)
    ]
    step = schema.get("multipleOf")
    if step is not None:
        parts.append(f"a multiple of {show_value(step)}")
    return " " + " and ".join(parts) if parts else ""


def describe_size(schema: Mapping[str, Json], least: str, most: str, unit: str) -> str:
    low, high = schema.get(least), schema.get(most)
    if low is not None and high is not None:
        return f" of {low} {unit}" if low == high else f" of {low} to {high} {unit}"
    if low is not None:
        return f" of at least {low} {unit}" if low != 1 else ", not empty"
    return f" of at most {high} {unit}" if high is not None else ""


def _listing(values: Sequence[Json]) -> str:
    text = ", ".join(show_value(value, 24) for value in values[:8])
    return f"{text}, …" if len(values) > 8 else text


def _resolve(schema: Mapping[str, Json], root: Mapping[str, Json]) -> Mapping[str, Json]:
    for _ in range(8):
        every = schema.get("allOf")
        found: Json = follow_local(schema, root)
        if found is None and "type" not in schema and isinstance(every, list) and len(every) == 1:
            found = every[0]
        if not isinstance(found, Mapping):
            return schema
        schema = {**found, **{key: value for key, value in schema.items() if key not in ("$ref", "allOf")}}
    return schema


def example(schema: Mapping[str, Json], root: Mapping[str, Json], depth: int = 0) -> tuple[Json] | None:
    """A value that the schema accepts: the author's example, or one made from the bounds."""
    schema = _resolve(schema, root)
    given = schema.get("examples")
    if isinstance(given, list) and given:
        return (given[0],)
    for key in ("example", "default", "const"):
        if schema.get(key) is not None and schema.get("type") != "boolean":
            return (schema[key],)
    listed = schema.get("enum")
    if isinstance(listed, list) and listed:
        return (listed[0],)
    branches = schema.get("anyOf") or schema.get("oneOf")
    if isinstance(branches, list) and branches and isinstance(branches[0], Mapping):
        return example(branches[0], root, depth + 1) if depth < 4 else None
    kind = schema.get("type")
    kind = kind[0] if isinstance(kind, list) and kind else kind
    if kind in ("integer", "number"):
        return _example_number(kind, schema)
    if kind == "string":
        form = schema.get("format")
        text = _FORMATS.get(form, (None, None))[1] if isinstance(form, str) else None
        return (text,) if text is not None else None
    if kind == "array" and depth < 4:
        items = schema.get("items")
        least = schema.get("minItems")
        least = least if isinstance(least, int) else 0
        if least > 2 or (least == 2 and schema.get("uniqueItems")):
            return None
        inner = example(items, root, depth + 1) if isinstance(items, Mapping) else None
        if inner is None and isinstance(items, Mapping) and items.get("type") == "string":
            return (["a", "b"],)
        return ([inner[0]] * max(least, 1),) if inner else None
    return _example_object(schema, root, depth) if kind == "object" and depth < 3 else None


def _example_object(schema: Mapping[str, Json], root: Mapping[str, Json], depth: int) -> tuple[Json] | None:
    declared, required = schema.get("properties"), schema.get("required")
    if not isinstance(declared, Mapping) or not isinstance(required, list) or len(required) > 4:
        return None
    made: dict[str, Json] = {}
    for name in required:
        inner = declared.get(name)
        if not isinstance(inner, Mapping):
            return None
        sample = example(inner, root, depth + 1)
        if sample is None and inner.get("type") != "string":
            return None
        made[name] = sample[0] if sample is not None else "…"
    return (made,)


def _example_number(kind: Json, schema: Mapping[str, Json]) -> tuple[Json] | None:
    number: float = 10 if kind == "integer" else 1.5
    low, high = schema.get("minimum"), schema.get("maximum")
    if isinstance(low, int | float) and number < low:
        number = low
    if isinstance(high, int | float) and number > high:
        number = high
    return None if any(key in schema for key in ("multipleOf", "exclusiveMinimum", "exclusiveMaximum")) else (number,)
