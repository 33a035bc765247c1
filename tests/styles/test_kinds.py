"""Every kind of value, sent right and sent wrong, in every style and behind every door."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest

from tests.server_processes import ROOT
from tests.styles.connections import ERRORS, Answered, Door, codes_of, text_of
from tests.styles.kinds import KINDS, STYLES

BOARD = ROOT / "tests" / "styles" / "kinds.py"

REFUSED: Final = object()
ABSENT: Final = object()

TO_BOOLEAN = "string_literal_converted_to_boolean"
TO_INTEGER = "string_literal_converted_to_integer"
TO_NUMBER = "string_literal_converted_to_number"
TO_OBJECT = "string_literal_converted_to_object"
TO_ARRAY = "string_literal_converted_to_array"
KEPT = "non_string_literal_retained"

# What is sent, what the tool is handed, and the codes of what is said about it.
Row = tuple[str, Any, Any, list[str]]
ROWS: list[Row] = [
    ("string", "hello", "hello", []),
    ("string", "", "", []),
    ("string", "true", "true", []),
    ("string", '{"a": 1}', '{"a": 1}', []),
    ("string", True, "true", [KEPT]),
    ("string", 5, "5", [KEPT]),
    ("string", {"a": 1}, '{"a":1}', [KEPT]),
    ("string", None, REFUSED, ["null_not_allowed"]),
    ("boolean", True, True, []),
    ("boolean", "true", True, [TO_BOOLEAN]),
    ("boolean", "False", False, [TO_BOOLEAN]),
    ("boolean", " yes ", True, [TO_BOOLEAN]),
    ("boolean", "no", False, [TO_BOOLEAN]),
    ("boolean", "ON", True, [TO_BOOLEAN]),
    ("boolean", "off", False, [TO_BOOLEAN]),
    ("boolean", "1", True, [TO_BOOLEAN]),
    ("boolean", "0", False, [TO_BOOLEAN]),
    ("boolean", 1, True, ["number_coerced_to_boolean"]),
    ("boolean", 0, False, ["number_coerced_to_boolean"]),
    ("boolean", 2, REFUSED, ["invalid_boolean_number"]),
    ("boolean", "maybe", REFUSED, ["invalid_boolean_string"]),
    ("boolean", [], REFUSED, ["unsupported_boolean_literal"]),
    ("integer", 42, 42, []),
    ("integer", 3.0, 3, []),
    ("integer", "42", 42, [TO_INTEGER]),
    ("integer", 42.7, 42, ["fractional_number_truncated_to_integer"]),
    ("integer", "3.7", REFUSED, ["invalid_integer_string"]),
    ("integer", "x", REFUSED, ["invalid_integer_string"]),
    ("integer", True, REFUSED, ["unsupported_integer_literal"]),
    ("number", 4.2, 4.2, []),
    ("number", "4.2", 4.2, [TO_NUMBER]),
    ("number", "x", REFUSED, ["invalid_number_string"]),
    ("number", True, REFUSED, ["unsupported_number_literal"]),
    ("object", {"a": 1}, {"a": 1}, []),
    ("object", '{"a": 1}', {"a": 1}, [TO_OBJECT]),
    ("object", '```json\n{"a": 1}\n```', {"a": 1}, [TO_OBJECT]),
    ("object", "", {}, ["empty_object_string"]),
    ("object", "x", REFUSED, ["object_parse_error"]),
    ("object", 5, REFUSED, ["object_requires_json_object"]),
    ("array", [1], [1], []),
    ("array", "[1, 2]", [1, 2], [TO_ARRAY]),
    ("array", "", [], ["empty_array_string"]),
    ("array", "[1", REFUSED, ["array_parse_error"]),
    ("timestamp", "2026-01-31T12:00:00Z", "2026-01-31T12:00:00Z", []),
    ("timestamp", "2026-01-31 12:00:00Z", "2026-01-31T12:00:00Z", ["timestamp_normalised"]),
    ("timestamp", "2026-01-31T12:00:00", "2026-01-31T12:00:00", ["timestamp_without_offset"]),
    ("timestamp", "tomorrow", REFUSED, ["invalid_timestamp_format"]),
    ("timestamp", 5, REFUSED, ["timestamp_requires_string"]),
    ("uri", "https://example.com/x", "https://example.com/x", []),
    ("uri", "notes/1", "notes/1", ["uri_not_absolute"]),
    ("uri", 5, REFUSED, ["expected_string"]),
    ("enum", "red", "red", []),
    ("enum", "RED", "red", ["enum_token_matched"]),
    ("enum", " red ", "red", ["enum_token_matched"]),
    ("enum", "dark_blue", "dark-blue", ["enum_token_matched"]),
    ("enum", "green", REFUSED, ["enum_out_of_range"]),
    ("exact", "red", "red", []),
    ("exact", " red ", "red", ["enum_token_matched"]),
    ("attachment", "file-1", "file-1", []),
    ("attachment", 5, "5", [KEPT]),
    ("list", ["a", "b"], ["a", "b"], []),
    ("list", "foo", ["foo"], ["scalar_coerced_to_list"]),
    ("list", '["a"]', ["a"], [TO_ARRAY]),
    ("list", ["a", 1], ["a", "1"], [KEPT]),
    ("integers", 3, [3], ["scalar_coerced_to_list"]),
    ("integers", ["1", 2], [1, 2], [TO_INTEGER]),
    ("integers", [1, "x", "y"], REFUSED, ["invalid_integer_string", "invalid_integer_string"]),
    ("map", {"a": 1}, {"a": 1}, []),
    ("map", {"a": "1"}, {"a": 1}, [TO_INTEGER]),
    ("map", '{"a": 1}', {"a": 1}, [TO_OBJECT]),
    ("map", "", {}, ["empty_map_string"]),
    ("map", {"a": "x"}, REFUSED, ["invalid_integer_string"]),
    ("map", 5, REFUSED, ["object_requires_json_object"]),
    ("optional", 3, 3, []),
    ("optional", "3", 3, [TO_INTEGER]),
    # An empty string is a value, not an absence.
    ("optional", "", REFUSED, ["invalid_integer_string"]),
    ("optional_text", "", "", []),
    ("defaulted", 3, 3, []),
]  # fmt: skip


def handed(result: dict[str, Any]) -> Any:
    """The value the tool was handed, as JSON."""
    assert not result.get("isError"), text_of(result)
    text = text_of(result)
    return ABSENT if text == "absent" else json.loads(text.split(" ", 1)[1].replace("+00:00", "Z"))


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize(("kind", "sent", "becomes", "codes"), ROWS)
def test_a_value_is_taken_repaired_or_refused(
    door: Door, style: str, kind: str, sent: Any, becomes: Any, codes: list[str]
) -> None:
    result = door.call(f"{style}.{kind}", {"value": sent})
    if becomes is REFUSED:
        assert result["isError"]
        assert codes_of(result, ERRORS) == codes
    else:
        assert handed(result) == becomes
        assert codes_of(result) == codes


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_required_may_not_be_left_out(door: Door, style: str, kind: str) -> None:
    result = door.call(f"{style}.{kind}", {})
    if KINDS[kind].required:
        assert codes_of(result, ERRORS) == ["missing_required"]
        assert "value: required, but missing" in text_of(result)
    else:
        # An explicit tool reads its arguments itself; a default of its schema is for callers to see.
        expected = ABSENT if KINDS[kind].default is None or style == "explicit" else KINDS[kind].default
        assert handed(result) == expected


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("kind", ["optional", "optional_text", "defaulted"])
def test_null_for_something_optional_is_its_default_or_nothing(door: Door, style: str, kind: str) -> None:
    result = door.call(f"{style}.{kind}", {"value": None})
    expected = ABSENT if KINDS[kind].default is None else KINDS[kind].default
    assert handed(result) == expected


@pytest.mark.parametrize("style", ["magic", "declared"])
def test_a_case_sensitive_choice_is_no_matter_of_taste(door: Door, style: str) -> None:
    assert codes_of(door.call(f"{style}.exact", {"value": "RED"}), ERRORS) == ["enum_out_of_range"]


@pytest.mark.parametrize("style", STYLES)
def test_a_parameter_is_found_by_another_spelling_of_its_name(door: Door, style: str) -> None:
    result = door.call(f"{style}.integer", {"Value": 3})
    assert handed(result) == 3
    assert codes_of(result) == ["property_name_matched"]


@pytest.mark.parametrize("style", STYLES)
def test_a_name_nobody_declared_is_refused_where_the_schema_forbids_it_and_else_told(door: Door, style: str) -> None:
    result = door.call(f"{style}.integer", {"value": 3, "valeu": 4})
    if style == "magic":
        assert codes_of(result, ERRORS) == ["unknown_parameter"]
    else:
        assert handed(result) == 3
        assert codes_of(result) == ["unknown_parameter"]


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("sent", ['{"value": 3}', '```json\n{"value": 3}\n```'])
def test_arguments_sent_as_text_are_read(door: Door, style: str, sent: str) -> None:
    result = door.call(f"{style}.integer", sent)
    assert handed(result) == 3
    assert codes_of(result) == [TO_OBJECT]


@pytest.mark.parametrize("style", STYLES)
def test_a_refusal_names_the_value_what_is_allowed_and_the_closest_match(door: Door, style: str) -> None:
    text = text_of(door.call(f"{style}.enum", {"value": "rde"}))
    assert text.splitlines()[0] == f"{style}.enum: 1 problem with the arguments; nothing was run. Fix and call again:"
    assert 'value: got "rde", did you mean "red"? One of "red", "dark-blue"' in text


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("kind", KINDS)
def test_the_schema_says_the_same_in_every_style(door: Door, style: str, kind: str) -> None:
    shown = dict(door.tools[f"{style}.{kind}"]["inputSchema"])
    shown.pop("additionalProperties", None)
    value = dict(shown["properties"]["value"])
    value.pop("description", None)
    assert value == KINDS[kind].schema
    assert shown.get("required", []) == (["value"] if KINDS[kind].required else [])


def test_a_tool_whose_name_has_another_case_is_not_called_but_suggested(door: Door) -> None:
    with pytest.raises(Answered) as refused:
        door.call("Magic.Integer", {"value": 3})
    assert refused.value.data["suggestions"][0] == "magic.integer"
