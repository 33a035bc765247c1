"""Validation errors as messages for the model."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Final, TypeAlias

from pegboard.argument_problems import ParseError
from pegboard.call import Json
from pegboard.protocol.json_values import as_object, texts_in
from pegboard.schema.literals import NAME_LENGTH, fold_name, kind_of
from pegboard.schema.validator import Problem
from pegboard.schema.wording import COMPARED, closest, describe, describe_size, example, show_value

MAX_LENGTH = 119
MAX_PATH_LENGTH = 40
MAX_SHOWN = 20

_NAME = re.compile(r"[\w$-]{1,80}")

# A path is a linked pair, so that descending copies nothing; it is formatted only for a message.
Path: TypeAlias = "tuple[Path, str | int] | None"


# The code of an undeclared name and the word for it, inside an object and at the top.
UNKNOWN = (("unknown_property", "property"), ("unknown_parameter", "argument"))
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


def format_path(path: Path) -> str:
    """`filters.tags[1]`; the root is the empty text."""
    if path is None:
        return ""
    above, key = path
    if above is None and isinstance(key, str) and len(key) <= 80 and key.isascii() and key.isidentifier():
        return key
    if isinstance(key, int):
        return f"{format_path(above)}[{key}]"
    return format_keys(_keys(path))


def format_keys(keys: Iterable[str | int]) -> str:
    text = ""
    for key in keys:
        if isinstance(key, int):
            text += f"[{key}]"
        elif _NAME.fullmatch(key):
            text += f".{key}" if text else key
        else:
            # A property name from a caller must look like a name only.
            text += f"[{show_value(key)}]"
    return text


def fit_message(path: str, *parts: str) -> str:
    """A message of at most LENGTH characters: later parts are omitted if they do not fit."""
    text = f"{path if len(path) <= MAX_PATH_LENGTH else '…' + path[1 - MAX_PATH_LENGTH :]}: " if path else "arguments: "
    for place, part in enumerate(parts):
        if len(text) + len(part) <= MAX_LENGTH:
            text += part
        elif place < 2:
            text = f"{text}{part}"[: MAX_LENGTH - 1] + "…"
    return text


def describe_problems_of(problems: Iterable[Problem], root: Mapping[str, Json], above: Path = None) -> list[ParseError]:
    """The errors for a list of problems, without duplicates."""
    errors: dict[tuple[str, str], ParseError] = {}
    keys = _keys(above)
    for problem in problems:
        # Finding suggestions costs more than all the rest, and the model sees no more than these.
        for error in _describe_problem(problem, root, keys, hinted=len(errors) < MAX_SHOWN):
            errors.setdefault((error.path, error.code), error)
    return list(errors.values())


def _keys(path: Path) -> tuple[str | int, ...]:
    keys: list[str | int] = []
    while path is not None:
        path, key = path
        keys.append(key)
    return tuple(reversed(keys))


def _describe_problem(
    problem: Problem, root: Mapping[str, Json], above: tuple[str | int, ...], *, hinted: bool
) -> list[ParseError]:
    path = format_keys((*above, *problem.path))
    match problem.keyword:
        case "required":
            return [missing(format_keys((*above, *problem.path, name)), name, problem, root) for name in problem.names]
        case "additionalProperties" | "unevaluatedProperties" if problem.names:
            known = list(as_object(problem.schema.get("properties")))
            given = as_object(problem.got)
            return [
                unknown(
                    format_keys((*above, *problem.path, name)),
                    name,
                    known,
                    given,
                    guess(name, known, given, problem.schema) if hinted else "",
                    at_top=not path,
                )
                for name in problem.names[:MAX_SHOWN]
            ]
        case "falseSchema":
            message = fit_message(path, "no value is allowed here, remove it")
            return [ParseError(path, "value_not_allowed", message, problem.got)]
    code = _code(problem)
    if not path and code == "object_requires_json_object":
        code = "arguments_must_be_object"
    elif not path and code == "object_parse_error":
        code = "json_parse_error"
    return [ParseError(path, code, _mismatch(path, problem, root, hinted=hinted), problem.got)]


def missing(path: str, name: str, problem: Problem, root: Mapping[str, Json]) -> ParseError:
    schema = as_object(problem.schema.get("properties")).get(name)
    parts = ["required, but missing"]
    if isinstance(schema, Mapping):
        parts.append(f"; expected {describe(schema, root)}")
        if (sample := example(schema, root)) is not None:
            parts.append(f", e.g. {show_value(sample[0])}")
    return ParseError(path, "missing_required", fit_message(path, *parts), None)


def unknown(
    path: str,
    name: str,
    names: Sequence[str],
    given: Mapping[str, Json],
    guessed: str,
    *,
    at_top: bool,
) -> ParseError:
    """An unknown name; `guessed` is the suggestion."""
    code, word = UNKNOWN[at_top]
    absent = list(islice((each for each in names if each not in given), 8))
    hint = guessed or (f", remove it or use one of: {', '.join(absent)}" if absent else ", remove it")
    return ParseError(path, code, fit_message(path, f"unknown {word}", hint), given.get(name))


def guess(name: str, names: Sequence[str], given: Mapping[str, Json], schema: Mapping[str, Json]) -> str:
    """The suggestion: a similar known name, or the missing one; empty if there is none."""
    return suggest(name, names, given) or suggest_missing(name, names, given, schema)


def suggest(name: str, names: Sequence[str], given: Mapping[str, Json]) -> str:
    """The similar known name, or nothing."""
    near = closest(name, (each for each in names if each not in given))
    if near is not None:
        return f', did you mean "{near}"?'
    sought = fold_name(name[:NAME_LENGTH])
    twin = next((each for each in islice(names, COMPARED) if each in given and fold_name(each) == sought), None)
    return f', "{twin}" is also given' if twin is not None else ""


def suggest_missing(name: str, names: Sequence[str], given: Mapping[str, Json], schema: Mapping[str, Json]) -> str:
    """The only missing name if there is only one extra one, and the value could belong to it; else nothing."""
    missing = [each for each in texts_in(schema.get("required")) if each not in given]
    known = set(names)
    if len(missing) != 1 or len(list(islice((each for each in given if each not in known), 2))) != 1:
        return ""
    kind = as_object(as_object(schema.get("properties")).get(missing[0])).get("type")
    got = kind_of(given.get(name))
    fits = not isinstance(kind, str) or kind == got or (kind, got) == ("number", "integer")
    return f', did you mean "{missing[0]}"?' if fits else ""


def _code(problem: Problem) -> str:
    got = kind_of(problem.got)
    kinds = problem.schema.get("type")
    kind = kinds if isinstance(kinds, str) else None
    if problem.keyword == "type":
        if got == "null":
            return "null_not_allowed"
        if kind == "string" and problem.schema.get("format") == "date-time":
            return "timestamp_requires_string"
        return _TYPE_CODES.get((kind or "", got)) or _OTHER_TYPE_CODES.get(kind or "", "no_branch_matches")
    if problem.keyword == "format":
        form = problem.schema.get("format")
        return _FORMAT_CODES.get(form, "invalid_format") if isinstance(form, str) else "invalid_format"
    return _KEYWORD_CODES.get(problem.keyword, "schema_mismatch")


def _mismatch(path: str, problem: Problem, root: Mapping[str, Json], *, hinted: bool) -> str:
    schema, got = problem.schema, problem.got
    match problem.keyword:
        case "encoding":
            return fit_message(
                path, "the text contains half a character pair (a lone surrogate)", ", send whole characters"
            )
        case "uniqueItems":
            return fit_message(path, f"got {show_value(got)}", ", expected unique items")
        case "minProperties" | "maxProperties":
            allowed = f"an object{describe_size(schema, 'minProperties', 'maxProperties', 'properties')}"
        case "not":
            allowed = "another value (this one is not allowed)"
        case "propertyNames":
            return fit_message(
                path, f"got the name {show_value(problem.names[0])}", f", expected {describe(schema, root)}"
            )
        case "contains":
            allowed = "a list that contains another item"
        case _:
            allowed = describe(schema, root)
    parts = [f"got {show_value(got)}", f", expected {allowed}"]
    listed = schema.get("enum")
    if isinstance(got, str) and isinstance(listed, list):
        near = closest(got, (value for value in listed if isinstance(value, str))) if hinted else None
        if near is not None:
            parts.insert(1, f', did you mean "{near}"?')
            parts[2] = f" {allowed[:1].upper()}{allowed[1:]}"
    elif (
        not schema.keys() & {"const", "enum"}
        and problem.keyword != "pattern"
        and (sample := example(schema, root)) is not None
    ):
        parts.append(f", e.g. {show_value(sample[0])}")
    return fit_message(path, *parts)


def render(errors: Sequence[ParseError], tool_name: str) -> str:
    """The text of the `isError` result: each problem on its own line."""
    count = "1 problem" if len(errors) == 1 else f"{len(errors)} problems"
    lines = [f"{tool_name}: {count} with the arguments; nothing was run. Fix and call again:"]
    lines.extend(f"- {error.message}" for error in errors[:MAX_SHOWN])
    if len(errors) > MAX_SHOWN:
        lines.append(f"- and {len(errors) - MAX_SHOWN} more")
    return "\n".join(lines)
