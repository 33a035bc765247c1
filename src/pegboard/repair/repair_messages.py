"""Repairs as messages for the model: the old value and the new one."""

from __future__ import annotations

from typing import Final, TypeAlias

from pegboard.argument_problems import ParseWarning
from pegboard.call import Json
from pegboard.schema.problems import MAX_LENGTH, MAX_PATH_LENGTH, Path, fit_message, format_path
from pegboard.schema.wording import show_value

# Path, code, what was sent, what it became.
Note: TypeAlias = tuple[Path, str, Json, Json]

MESSAGES: Final = {
    "string_literal_converted_to_boolean": "string {got} read as boolean {became}",
    "string_literal_converted_to_integer": "string {got} read as integer {became}",
    "string_literal_converted_to_number": "string {got} read as number {became}",
    "string_literal_converted_to_null": "string {got} read as null",
    "string_literal_converted_to_object": "string {got} read as JSON object",
    "string_literal_converted_to_array": "string {got} read as JSON list",
    "empty_object_string": "empty string read as {became}",
    "empty_map_string": "empty string read as {became}",
    "empty_array_string": "empty string read as {became}",
    "number_coerced_to_boolean": "number {got} read as boolean {became}",
    "fractional_number_truncated_to_integer": "number {got} truncated to integer {became}",
    "non_string_literal_retained": "{got} kept as string {became}",
    "scalar_coerced_to_list": "single value {got} read as list of one",
    "enum_token_matched": "{got} read as {became}",
    "property_name_matched": "name {got} read as {became}",
    "null_arguments": "null read as no arguments",
    "null_left_out": "null for an optional value omitted",
    "null_replaced_by_default": "null replaced by the default {became}",
    "fields_gathered_into_object": "fields sent beside it moved into it: {became}",
    "duplicate_items_dropped": "duplicates in {got} removed",
    "timestamp_without_offset": "{got} has no offset such as Z, kept unchanged",
    "uri_not_absolute": "{got} is not an absolute URI, kept unchanged",
}


def _split_template(template: str) -> tuple[str, str | None, str | None]:
    """A message split before `got`, between it and `became`, and after; None for one that is not shown."""
    before, got, rest = template.partition("{got}")
    if not got:
        before, became, rest = template.partition("{became}")
        return (before, None, rest) if became else (template, None, None)
    between, became, rest = rest.partition("{became}")
    return before, between, rest if became else None


_PIECES: Final = {code: _split_template(template) for code, template in MESSAGES.items()}
_OTHER: Final = _split_template("{got} read as {became}")


def write(note: Note) -> ParseWarning:
    """The warning that reports a repair."""
    path, code, got, became = note
    before, between, after = _PIECES.get(code, _OTHER)
    shown = before
    if between is not None:
        shown += show_value(got) + between
    if after is not None:
        shown += show_value(became) + after
    where = format_path(path)
    text = f"{where}: {shown}"
    if not where or len(where) > MAX_PATH_LENGTH or len(text) > MAX_LENGTH:
        text = fit_message(where, shown)
    return ParseWarning(where, code, text, got, became)
