"""Every kind of value, sent right and sent wrong, in every style and behind every door.

`make test` tries each row behind each door and in each style, and each style behind each door (`tests.depth.pairs`);
`make test-long` tries all combinations.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

import pytest

from tests.depth import deeper, pairs
from tests.server_processes import ROOT
from tests.styles.connections import DOORS, ERRORS, Answered, BehindGateway, Door, codes_of, text_of
from tests.styles.kinds import KINDS, STYLES

BOARD = ROOT / "tests" / "styles" / "kinds.py"
BEHIND = list(DOORS)

REFUSED: Final = object()
ABSENT: Final = object()

TO_BOOLEAN = "string_literal_converted_to_boolean"
TO_INTEGER = "string_literal_converted_to_integer"
TO_NUMBER = "string_literal_converted_to_number"
TO_OBJECT = "string_literal_converted_to_object"
TO_ARRAY = "string_literal_converted_to_array"
KEPT = "non_string_literal_retained"

UUID: Final = "6f9619ff-8b86-d011-b42d-00cf4fc964ff"
FILTER: Final = {"field": "a", "page_size": 5}

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
    ("string", [1], "[1]", [KEPT]),
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
    ("boolean", None, REFUSED, ["null_not_allowed"]),
    ("integer", 42, 42, []),
    ("integer", 3.0, 3, []),
    ("integer", 10**30, 10**30, []),
    ("integer", "42", 42, [TO_INTEGER]),
    ("integer", "1,000", 1000, [TO_INTEGER]),
    ("integer", 42.7, 42, ["fractional_number_truncated_to_integer"]),
    ("integer", "3.7", REFUSED, ["invalid_integer_string"]),
    ("integer", "x", REFUSED, ["invalid_integer_string"]),
    ("integer", True, REFUSED, ["unsupported_integer_literal"]),
    ("integer", [], REFUSED, ["unsupported_integer_literal"]),
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
    ("array", 5, [5], ["scalar_coerced_to_list"]),
    ("array", "[1", REFUSED, ["array_parse_error"]),
    ("array", None, REFUSED, ["null_not_allowed"]),
    ("timestamp", "2026-01-31T12:00:00Z", "2026-01-31T12:00:00Z", []),
    ("timestamp", "2026-01-31 12:00:00Z", "2026-01-31T12:00:00Z", ["timestamp_normalised"]),
    ("timestamp", "2026-01-31T12:00:00", "2026-01-31T12:00:00", ["timestamp_without_offset"]),
    ("timestamp", "2026-01-31", "2026-01-31T00:00:00", ["timestamp_normalised", "timestamp_without_offset"]),
    ("timestamp", "tomorrow", REFUSED, ["invalid_timestamp_format"]),
    ("timestamp", 5, REFUSED, ["timestamp_requires_string"]),
    ("uri", "https://example.com/x", "https://example.com/x", []),
    ("uri", "notes/1", "notes/1", ["uri_not_absolute"]),
    ("uri", 5, REFUSED, ["expected_string"]),
    ("date", "2026-01-31", "2026-01-31", []),
    ("date", "20260131", "2026-01-31", ["date_normalised"]),
    ("date", "soon", REFUSED, ["invalid_date_format"]),
    ("time", "12:30:00", "12:30:00", []),
    ("time", "12:30", "12:30:00", ["time_normalised"]),
    ("time", "noon", REFUSED, ["invalid_time_format"]),
    ("duration", "PT3600S", "PT3600S", []),
    ("duration", "30 s", "PT30S", ["duration_text_converted"]),
    ("duration", "long", REFUSED, ["invalid_duration_format"]),
    ("uuid", UUID, UUID, []),
    ("uuid", f"{{{UUID}}}", UUID, ["uuid_normalised"]),
    ("uuid", UUID.replace("-", ""), UUID, ["uuid_normalised"]),
    ("uuid", "x", REFUSED, ["invalid_uuid_format"]),
    ("unique", [1, 2], [1, 2], []),
    ("unique", [1, 2, 1], [1, 2], ["duplicate_items_dropped"]),
    ("unique", ["1", 1], [1], [TO_INTEGER, "duplicate_items_dropped"]),
    ("filter", FILTER, FILTER, []),
    ("filter", {"field": "a", "pageSize": 5}, FILTER, ["property_name_matched"]),
    ("filter", {"field": "a", "page_size": "5"}, FILTER, [TO_INTEGER]),
    ("filter", '{"field": "a", "page_size": 5}', FILTER, [TO_OBJECT]),
    ("filter", {"field": "a", "page_size": None}, {**FILTER, "page_size": 10}, ["null_replaced_by_default"]),
    ("filter", {"field": "a", "page_sise": 5}, REFUSED, ["unknown_property"]),
    ("filter", {"page_size": 5}, REFUSED, ["missing_required"]),
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
    ("list", 5, ["5"], ["scalar_coerced_to_list", KEPT]),
    ("list", {"a": 1}, REFUSED, ["array_requires_json_array"]),
    ("list", None, REFUSED, ["null_not_allowed"]),
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
    ("optional", "null", ABSENT, ["string_literal_converted_to_null", "null_left_out"]),
    # An empty string is a value, not an absence.
    ("optional", "", REFUSED, ["invalid_integer_string"]),
    ("optional_text", "", "", []),
    ("optional_text", "null", "null", []),
    ("defaulted", 3, 3, []),
    ("defaulted", None, 7, ["null_replaced_by_default"]),
    ("defaulted", "none", 7, ["string_literal_converted_to_null", "null_replaced_by_default"]),
]  # fmt: skip

# The same for the arguments as a whole.
WHOLE: list[Row] = [
    ("integer", {"Value": 3}, 3, ["property_name_matched"]),
    ("integer", '{"value": 3}', 3, [TO_OBJECT]),
    ("integer", '```json\n{"value": 3}\n```', 3, [TO_OBJECT]),
    ("integer", '{"value": 3,} // done', 3, [TO_OBJECT]),
    ("integer", "nonsense", REFUSED, ["json_parse_error"]),
    ("integer", [1], REFUSED, ["arguments_must_be_object"]),
    ("integer", 5, REFUSED, ["arguments_must_be_object"]),
    ("integer", None, REFUSED, ["missing_required"]),
    ("optional", None, ABSENT, ["null_arguments"]),
    ("optional", "", ABSENT, ["empty_object_string"]),
    ("filter", FILTER, FILTER, ["fields_gathered_into_object"]),
]  # fmt: skip


# The codes of the design's parser (seed 003). Decided otherwise: a number other than 0 and 1 is not a boolean, an exact
# 3.0 is an integer without a warning, null for something required is an error, one for something optional leaves it out,
# and a relative URI is kept.
DESIGN: Final = [
    "arguments_must_be_object", "json_parse_error", "missing_required", "unknown_parameter",
    "non_string_literal_retained",
    "string_literal_converted_to_boolean", "number_coerced_to_boolean",
    "invalid_boolean_string", "invalid_boolean_number", "unsupported_boolean_literal",
    "fractional_number_truncated_to_integer", "string_literal_converted_to_integer",
    "invalid_integer_string", "unsupported_integer_literal",
    "string_literal_converted_to_number", "invalid_number_string", "unsupported_number_literal",
    "string_literal_converted_to_object", "empty_object_string", "object_parse_error", "object_requires_json_object",
    "string_literal_converted_to_array", "empty_array_string", "array_parse_error", "array_requires_json_array",
    "timestamp_requires_string", "invalid_timestamp_format",
    "enum_out_of_range",
    "scalar_coerced_to_list",
    "empty_map_string",
]  # fmt: skip


def handed(result: dict[str, Any]) -> Any:
    """The value the tool was handed, as JSON."""
    assert not result.get("isError"), text_of(result)
    text = text_of(result)
    return ABSENT if text == "absent" else json.loads(text.split(" ", 1)[1].replace("+00:00", "Z"))


@deeper
@pytest.mark.parametrize(
    ("door", "style", "kind", "sent", "becomes", "codes"), pairs(BEHIND, STYLES, ROWS), indirect=["door"]
)
def test_a_value_is_taken_repaired_or_refused(
    door: Door, style: str, kind: str, sent: Any, becomes: Any, codes: list[str]
) -> None:
    check(door.call(f"{style}.{kind}", {"value": sent}), becomes, codes)


@deeper
@pytest.mark.parametrize(
    ("door", "style", "kind", "sent", "becomes", "codes"), pairs(BEHIND, STYLES, WHOLE), indirect=["door"]
)
def test_the_arguments_as_a_whole_are_taken_repaired_or_refused(
    door: Door, style: str, kind: str, sent: Any, becomes: Any, codes: list[str]
) -> None:
    check(door.call(f"{style}.{kind}", sent), becomes, codes)


def test_every_repair_and_every_code_of_the_design_is_in_the_tables() -> None:
    """The repairs of docs/arguments.md, and the rows of the design's table of coercions."""
    said = {code for *_, codes in (*ROWS, *WHOLE) for code in codes} | {"unknown_parameter"}
    table = (ROOT / "docs" / "arguments.md").read_text().partition("## Repairs")[2].partition("\n\n")[0]
    documented = {code for line in table.splitlines()[3:] for code in re.findall(r"`([a-z_]+)`", line.split("|")[1])}
    assert len(documented) > 20
    assert documented - said == set()
    assert set(DESIGN) - said == set()


def check(result: dict[str, Any], becomes: Any, codes: list[str]) -> None:
    if becomes is REFUSED:
        assert result["isError"]
        assert codes_of(result, ERRORS) == codes
    else:
        assert handed(result) == becomes
        assert codes_of(result) == codes


@deeper
@pytest.mark.parametrize(
    ("door", "style", "kind"), pairs(BEHIND, STYLES, [(kind,) for kind in KINDS]), indirect=["door"]
)
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
def test_a_case_sensitive_choice_is_repaired_only_behind_a_gateway(door: Door, style: str) -> None:
    result = door.call(f"{style}.exact", {"value": "RED"})
    if isinstance(door, BehindGateway):
        # JSON Schema cannot say that case matters, so a gateway repairs this like any other choice.
        assert (handed(result), codes_of(result)) == ("red", ["enum_token_matched"])
    else:
        assert codes_of(result, ERRORS) == ["enum_out_of_range"]


@pytest.mark.parametrize("style", STYLES)
def test_an_undeclared_name_is_rejected_where_the_schema_forbids_it_and_otherwise_reported(
    door: Door, style: str
) -> None:
    result = door.call(f"{style}.integer", {"value": 3, "valeu": 4})
    if style == "magic":
        assert codes_of(result, ERRORS) == ["unknown_parameter"]
    else:
        assert handed(result) == 3
        assert codes_of(result) == ["unknown_parameter"]


@pytest.mark.parametrize("style", STYLES)
def test_a_refusal_names_the_value_what_is_allowed_and_the_closest_match(door: Door, style: str) -> None:
    text = text_of(door.call(f"{style}.enum", {"value": "rde"}))
    first = f"{door.spelling(f'{style}.enum')}: 1 problem with the arguments; nothing was run. Fix and call again:"
    assert text.splitlines()[0] == first
    assert 'value: got "rde", did you mean "red"? One of "red", "dark-blue"' in text


@deeper
@pytest.mark.parametrize(
    ("door", "style", "kind"), pairs(BEHIND, STYLES, [(kind,) for kind in KINDS]), indirect=["door"]
)
def test_the_schema_says_the_same_in_every_style(door: Door, style: str, kind: str) -> None:
    shown = dict(door.tools[door.spelling(f"{style}.{kind}")]["inputSchema"])
    shown.pop("additionalProperties", None)
    value = dict(shown["properties"]["value"])
    value.pop("description", None)
    assert value == KINDS[kind].schema
    assert shown.get("required", []) == (["value"] if KINDS[kind].required else [])


def test_a_tool_whose_name_has_another_case_is_not_called_but_suggested(door: Door) -> None:
    with pytest.raises(Answered) as refused:
        door.call("Magic.Integer", {"value": 3})
    assert refused.value.data["suggestions"][0] == door.spelling("magic.integer")
