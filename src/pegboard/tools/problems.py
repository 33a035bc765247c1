"""Problems told to the model: what was wrong with which argument, in under 120 characters each."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Final, TypeAlias

import msgspec
from msgspec import Struct

from pegboard.call import Json
from pegboard.tools.check import Problem, lookup
from pegboard.tools.literals import kind_of

LENGTH = 119
SHOWN = 20

# A path is a linked pair, so that going down costs no copy; it is spelt out only for a message.
Path: TypeAlias = "tuple[Path, str | int] | None"


class ParseWarning(Struct, frozen=True):
    """A value that was repaired, or kept though something is odd about it."""

    path: str
    code: str
    message: str
    got: Json
    became: Json


class ParseError(Struct, frozen=True):
    """A value that could not be read as what the schema asks for."""

    path: str
    code: str
    message: str
    got: Json


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
_TYPE_CODES: Final = {
    ("boolean", "string"): "invalid_boolean_string",
    ("boolean", "integer"): "invalid_boolean_number",
    ("boolean", "number"): "invalid_boolean_number",
    ("integer", "string"): "invalid_integer_string",
    ("integer", "number"): "invalid_integer_number",
    ("number", "string"): "invalid_number_string",
    ("object", "string"): "object_parse_error",
    ("array", "string"): "array_parse_error",
}
_OTHER_TYPE_CODES: Final = {
    "string": "expected_string",
    "boolean": "unsupported_boolean_literal",
    "integer": "unsupported_integer_literal",
    "number": "unsupported_number_literal",
    "object": "object_requires_json_object",
    "array": "array_requires_json_array",
    "null": "expected_null",
}
_KEYWORD_CODES: Final = {
    "enum": "enum_out_of_range",
    "const": "enum_out_of_range",
    "minimum": "number_below_minimum",
    "exclusiveMinimum": "number_below_minimum",
    "maximum": "number_above_maximum",
    "exclusiveMaximum": "number_above_maximum",
    "multipleOf": "number_not_a_multiple",
    "minLength": "string_too_short",
    "maxLength": "string_too_long",
    "pattern": "string_pattern_mismatch",
    "minItems": "array_too_short",
    "maxItems": "array_too_long",
    "uniqueItems": "array_items_not_unique",
    "minProperties": "object_too_small",
    "maxProperties": "object_too_large",
    "anyOf": "no_branch_matches",
    "oneOf": "no_branch_matches",
    "encoding": "text_not_encodable",
}
_FORMAT_CODES: Final = {
    "date-time": "invalid_timestamp_format",
    "date": "invalid_date_format",
    "time": "invalid_time_format",
    "duration": "invalid_duration_format",
    "uuid": "invalid_uuid_format",
}


def spell(path: Path) -> str:
    """`filters.tags[1]`; the root is the empty text."""
    parts: list[str | int] = []
    while path is not None:
        path, key = path
        parts.append(key)
    return spell_keys(parts[::-1])


def spell_keys(keys: Iterable[str | int]) -> str:
    text = ""
    for key in keys:
        text += f"[{key}]" if isinstance(key, int) else f".{key}" if text else key
    return text


def show(value: Json, most: int = 40) -> str:
    """A value as JSON, cut."""
    try:
        if isinstance(value, str):
            value = value[: most + 8]
        text = msgspec.json.encode(_head(value, most)).decode()
    except (TypeError, ValueError, RecursionError):
        text = ascii(value)
    if len(text) <= most:
        return text
    return f'{text[: most - 2]}…"' if isinstance(value, str) else f"{text[: most - 1]}…"


def _head(value: Json, most: int) -> Json:
    """Enough of a large container for what is shown of it."""
    if isinstance(value, dict) and len(value) > most:
        return dict(list(value.items())[:most])
    return value[:most] if isinstance(value, list) else value


def closest(name: str, names: Iterable[str]) -> str | None:
    """The name most like another, if one is."""
    known = {each.casefold(): each for each in list(names)[:500] if len(each) <= 80}
    found = get_close_matches(name[:80].casefold(), known, n=1, cutoff=0.6)
    return known[found[0]] if found else None


def fit(path: str, *parts: str) -> str:
    """A message of at most LENGTH characters: later parts are left out when they do not fit."""
    text = f"{path if len(path) <= 40 else '…' + path[-39:]}: " if path else "arguments: "
    for place, part in enumerate(parts):
        if len(text) + len(part) <= LENGTH:
            text += part
        elif place < 2:
            text = f"{text}{part}"[: LENGTH - 1] + "…"
    return text


def describe(schema: Mapping[str, Json], root: Mapping[str, Json], depth: int = 0) -> str:
    """What a schema allows, in a few words."""
    schema = _resolve(schema, root)
    if "const" in schema:
        return show(schema["const"], 30)
    listed = schema.get("enum")
    if isinstance(listed, list) and listed:
        return "one of " + _listing(listed) if len(listed) > 1 else show(listed[0], 30)
    branches = schema.get("anyOf") or schema.get("oneOf")
    if "type" not in schema and isinstance(branches, list) and depth < 3:
        told = [describe(branch, root, depth + 1) for branch in branches[:6] if isinstance(branch, Mapping)]
        return " or ".join(dict.fromkeys(told)) or "another value"
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
        return (f"a list of {plural}" if plural else "a list") + _sizes(schema, "minItems", "maxItems", "items")
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
    text = "a string" + _sizes(schema, "minLength", "maxLength", "characters")
    return f"{text} matching {pattern[:40]}" if isinstance(pattern, str) else text


def _span(schema: Mapping[str, Json]) -> str:
    low, above = schema.get("minimum"), schema.get("exclusiveMinimum")
    high, below = schema.get("maximum"), schema.get("exclusiveMaximum")
    if low is not None and high is not None:
        return f" from {low} to {high}"
    parts = [
        f"{word} {show(bound)}"
        for word, bound in (("at least", low), ("above", above), ("at most", high), ("below", below))
        if bound is not None and not isinstance(bound, bool)
    ]
    step = schema.get("multipleOf")
    if step is not None:
        parts.append(f"a multiple of {show(step)}")
    return " " + " and ".join(parts) if parts else ""


def _sizes(schema: Mapping[str, Json], least: str, most: str, unit: str) -> str:
    low, high = schema.get(least), schema.get(most)
    if low is not None and high is not None:
        return f" of {low} {unit}" if low == high else f" of {low} to {high} {unit}"
    if low is not None:
        return f" of at least {low} {unit}" if low != 1 else ", not empty"
    return f" of at most {high} {unit}" if high is not None else ""


def _listing(values: Sequence[Json]) -> str:
    text = ", ".join(show(value, 24) for value in values[:8])
    return f"{text}, …" if len(values) > 8 else text


def _resolve(schema: Mapping[str, Json], root: Mapping[str, Json]) -> Mapping[str, Json]:
    for _ in range(8):
        reference = schema.get("$ref")
        every = schema.get("allOf")
        if isinstance(reference, str) and reference.startswith("#"):
            try:
                found = lookup(root, reference[1:])
            except LookupError:
                return schema
        elif "type" not in schema and isinstance(every, list) and len(every) == 1:
            found = every[0]
        else:
            return schema
        if not isinstance(found, Mapping):
            return schema
        schema = {**found, **{key: value for key, value in schema.items() if key not in ("$ref", "allOf")}}
    return schema


def example(schema: Mapping[str, Json], root: Mapping[str, Json], depth: int = 0) -> tuple[Json] | None:
    """A value the schema would take: the author's own, or one made up from the bounds."""
    schema = _resolve(schema, root)
    given = schema.get("examples")
    if isinstance(given, list) and given:
        return (given[0],)
    for key in ("example", "default", "const"):
        if schema.get(key) is not None:
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
        inner = example(items, root, depth + 1) if isinstance(items, Mapping) else None
        if inner is None and isinstance(items, Mapping) and items.get("type") == "string":
            return (["a", "b"],)
        return ([inner[0]],) if inner else None
    return None


def _example_number(kind: Json, schema: Mapping[str, Json]) -> tuple[Json] | None:
    number: Json = 10 if kind == "integer" else 1.5
    low, high = schema.get("minimum"), schema.get("maximum")
    if isinstance(low, int | float) and number < low:
        number = low
    if isinstance(high, int | float) and number > high:
        number = high
    return None if any(key in schema for key in ("multipleOf", "exclusiveMinimum", "exclusiveMaximum")) else (number,)


def tell(problems: Iterable[Problem], root: Mapping[str, Json], above: Path = None) -> list[ParseError]:
    """The errors of a list of problems, each told once."""
    errors: dict[tuple[str, str], ParseError] = {}
    keys = _keys(above)
    for problem in problems:
        for settled in _settle(problem):
            for error in _tell_one(settled, root, keys):
                errors.setdefault((error.path, error.code), error)
    return list(errors.values())


def _keys(path: Path) -> tuple[str | int, ...]:
    keys: list[str | int] = []
    while path is not None:
        path, key = path
        keys.append(key)
    return tuple(reversed(keys))


def _settle(problem: Problem, depth: int = 0) -> list[Problem]:
    """Of a union, the problems of the one branch the value was meant for, if that can be said."""
    if not problem.branches or depth > 8:
        return [problem]
    near = [branch for branch in problem.branches if branch and not any(_is_other(inner, problem) for inner in branch)]
    if len(near) != 1:
        return [problem]
    return [settled for inner in near[0] for settled in _settle(inner, depth + 1)]


def _is_other(inner: Problem, union: Problem) -> bool:
    if inner.path == union.path:
        return inner.keyword in ("type", "const", "enum")
    return len(inner.path) == len(union.path) + 1 and inner.keyword == "const"


def _tell_one(problem: Problem, root: Mapping[str, Json], above: tuple[str | int, ...]) -> list[ParseError]:
    path = spell_keys((*above, *problem.path))
    match problem.keyword:
        case "required":
            return [missing(spell_keys((*above, *problem.path, name)), name, problem, root) for name in problem.names]
        case "additionalProperties" | "unevaluatedProperties" if problem.names:
            declared = problem.schema.get("properties")
            names = [name for name in declared if name not in problem.got] if isinstance(declared, Mapping) else []
            return [
                unknown(spell_keys((*above, *problem.path, name)), name, names, problem.got.get(name), at_top=not path)
                for name in problem.names[:SHOWN]
            ]
        case "falseSchema":
            return [
                ParseError(path, "value_not_allowed", fit(path, "nothing is allowed here, leave it out"), problem.got)
            ]
    code = _code(problem)
    if not path and code == "object_requires_json_object":
        code = "arguments_must_be_object"
    elif not path and code == "object_parse_error":
        code = "json_parse_error"
    return [ParseError(path, code, _mismatch(path, problem, root), problem.got)]


def missing(path: str, name: str, problem: Problem, root: Mapping[str, Json]) -> ParseError:
    declared = problem.schema.get("properties")
    schema = declared.get(name) if isinstance(declared, Mapping) else None
    parts = ["required, but not given"]
    if isinstance(schema, Mapping):
        parts.append(f"; expected {describe(schema, root)}")
        if (sample := example(schema, root)) is not None:
            parts.append(f", e.g. {show(sample[0])}")
    return ParseError(path, "missing_required", fit(path, *parts), None)


def unknown(path: str, name: str, names: Sequence[str], got: Json, *, at_top: bool) -> ParseError:
    code = "unknown_parameter" if at_top else "unknown_property"
    return ParseError(path, code, fit(path, *unknown_parts(name, names, at_top=at_top)), got)


def unknown_parts(name: str, names: Sequence[str], *, at_top: bool) -> list[str]:
    parts = [f"unknown {'argument' if at_top else 'property'}"]
    near = closest(name, names)
    if near is not None:
        parts.append(f', did you mean "{near}"?')
    elif names:
        parts.append(f", known and not given: {', '.join(names[:8])}")
    return parts


def _code(problem: Problem) -> str:
    got = kind_of(problem.got)
    kinds = problem.schema.get("type")
    kind = kinds if isinstance(kinds, str) else None
    if problem.keyword == "type":
        if got == "null":
            return "null_not_allowed"
        if kind == "string" and problem.schema.get("format") == "date-time":
            return "timestamp_requires_string"
        if kind == "string" and problem.schema.get("format") == "uri":
            return "uri_requires_string"
        return _TYPE_CODES.get((kind or "", got)) or _OTHER_TYPE_CODES.get(kind or "", "no_branch_matches")
    if problem.keyword == "format":
        form = problem.schema.get("format")
        return _FORMAT_CODES.get(form, "invalid_format") if isinstance(form, str) else "invalid_format"
    return _KEYWORD_CODES.get(problem.keyword, "schema_mismatch")


def _mismatch(path: str, problem: Problem, root: Mapping[str, Json]) -> str:
    schema, got = problem.schema, problem.got
    match problem.keyword:
        case "encoding":
            return fit(path, "the text holds half a character pair (a lone surrogate)", ", send whole characters")
        case "uniqueItems":
            return fit(path, f"got {show(got)}", ", expected every item only once")
        case "minProperties" | "maxProperties":
            allowed = f"an object{_sizes(schema, 'minProperties', 'maxProperties', 'properties')}"
        case "not":
            allowed = "another value (this one is ruled out)"
        case "dependentRequired" | "dependencies" | "contains" | "propertyNames" | "if":
            allowed = f"a value that satisfies its {problem.keyword} rule"
        case _:
            allowed = describe(schema, root)
    parts = [f"got {show(got)}", f", expected {allowed}"]
    listed = schema.get("enum")
    if isinstance(got, str) and isinstance(listed, list):
        near = closest(got, [value for value in listed if isinstance(value, str)])
        if near is not None:
            parts.insert(1, f', did you mean "{near}"?')
            parts[2] = f" {allowed[:1].upper()}{allowed[1:]}"
    elif "const" not in schema and problem.keyword != "pattern" and (sample := example(schema, root)) is not None:
        parts.append(f", e.g. {show(sample[0])}")
    return fit(path, *parts)


def render(errors: Sequence[ParseError], tool_name: str) -> str:
    """The text of the `isError` result: every problem on a line of its own."""
    count = "1 problem" if len(errors) == 1 else f"{len(errors)} problems"
    lines = [f"{tool_name}: {count} with the arguments; nothing was run. Mend and call again:"]
    lines.extend(f"- {error.message}" for error in errors[:SHOWN])
    if len(errors) > SHOWN:
        lines.append(f"- and {len(errors) - SHOWN} more")
    return "\n".join(lines)


_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
