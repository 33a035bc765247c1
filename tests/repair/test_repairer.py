"""Arguments are repaired where they can only have meant one thing, and every repair is told."""

from __future__ import annotations

import copy
import gc
import json
import weakref
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pegboard.limits import Limits
from pegboard.repair import repair_messages, repairer
from pegboard.repair.repairer import Repairer
from pegboard.schema.schema_check import check_schema
from pegboard.schema.validator import Validator
from tests.depth import examples
from tests.repair.schemas import TEXTS, cases, parts, values
from tests.repair.sloppy import CALLS, FITTING, REFUSED, TOOLS, Sloppy
from tests.work import count_calls

pytestmark = pytest.mark.same_on_every_python

# Warnings about what is kept as it is: they come back as long as it is sent.
KEPT = {"uri_not_absolute", "timestamp_without_offset", "unknown_parameter", "unknown_property"}

properties = settings(
    max_examples=examples(25), deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)


def tool(properties: dict[str, Any], **keywords: Any) -> Repairer:
    return Repairer({"type": "object", "properties": properties, **keywords})


def repairer_of(name: str) -> Repairer:
    return Repairer(TOOLS[name])


def same(one: Any, other: Any) -> bool:
    """Equal as JSON: 1, 1.0 and true are three values."""
    return repr(one) == repr(other)


@pytest.mark.parametrize("call", CALLS, ids=lambda call: f"{call.kind}: {str(call.sent)[:40]}")
def test_a_sloppy_call_becomes_what_it_meant_or_is_refused(call: Sloppy) -> None:
    repair = repairer_of(call.tool).repair(call.sent)
    if call.becomes is REFUSED:
        assert tuple(error.code for error in repair.errors) == call.codes
    else:
        assert repair.errors == ()
        assert same(repair.value, call.becomes)
        assert tuple(warning.code for warning in repair.warnings) == call.codes


def test_the_table_covers_six_tools_and_ninety_slips() -> None:
    assert len(CALLS) >= 90
    assert len({call.tool for call in CALLS}) >= 6
    for name, schema in TOOLS.items():
        check_schema(schema, name)


@pytest.mark.parametrize(("name", "value"), FITTING)
def test_what_fits_passes_as_the_same_object(name: str, value: Any) -> None:
    repair = repairer_of(name).repair(value)
    assert repair.value is value
    assert (repair.warnings, repair.errors) == ((), ())


@pytest.mark.parametrize("call", CALLS, ids=lambda call: f"{call.kind}: {str(call.sent)[:40]}")
def test_strict_reports_every_slip_and_changes_nothing(call: Sloppy) -> None:
    repairer, sent = repairer_of(call.tool), copy.deepcopy(call.sent)
    errors = repairer.report(sent)
    kept = call.becomes is not REFUSED and {*call.codes} <= KEPT
    allowed = kept or call.kind == "name by case where others are allowed"
    assert bool(errors) is not kept or allowed
    assert same(sent, call.sent)


def test_every_documented_code_is_shown_by_the_table() -> None:
    shown = {code for call in CALLS if call.becomes is not REFUSED for code in call.codes}
    told = set(repair_messages.MESSAGES)
    assert told == shown & told
    assert all(code in (repairer.__doc__ or "") for code in told | shown)


@properties
@given(cases())
def test_repairs_keep_their_promises(case: tuple[dict[str, Any], Any]) -> None:
    schema, value = case
    check_schema(schema, "tool")
    repairer, sent = Repairer(schema), copy.deepcopy(value)
    repair = repairer.repair(value)
    assert same(value, sent), "the input was changed"
    if repairer.fits(value):
        assert repair.value is value
        assert (repair.warnings, repair.errors) == ((), ())
        assert repairer.report(value) == ()
        return
    assert repair.errors or repair.warnings, "a silent change"
    if not repair.errors:
        assert Validator(schema).is_valid(repair.value)
        again = repairer.repair(repair.value)
        assert same(again.value, repair.value)
        assert again.errors == ()
        assert {warning.code for warning in again.warnings} <= KEPT


@properties
@given(cases())
def test_every_message_is_short_and_says_where(case: tuple[dict[str, Any], Any]) -> None:
    schema, value = case
    repairer = Repairer(schema)
    repair = repairer.repair(value)
    for said in (*repair.warnings, *repair.errors, *repairer.report(value)):
        assert 0 < len(said.message) < 120
        assert "\n" not in said.message
        json.dumps(said.path)


@properties
@given(
    st.dictionaries(st.sampled_from(["a", "b", "c"]), parts, min_size=1),
    st.dictionaries(st.sampled_from(["a", "b", "c"]), values),
)
def test_valid_parts_are_the_same_objects_afterwards(schemas: dict[str, Any], value: dict[str, Any]) -> None:
    schema = {"type": "object", "properties": schemas, "$defs": {"Tree": {"type": "object"}}}
    repair = Repairer(schema).repair(value)
    for name, part in schemas.items():
        if name in value and Validator({**part, "$defs": {"Tree": {"type": "object"}}}).is_valid(value[name]):
            assert repair.value[name] is value[name]


PLAIN = [
    {"type": "string"},
    {},
    True,
    {"type": ["string", "integer", "boolean"]},
    {"anyOf": [{"type": "integer"}, {"type": "string"}]},
    {"oneOf": [{"type": "object"}, {"type": "string"}]},
    {"anyOf": [{"type": "array"}, {"$ref": "#/$defs/Text"}]},
    {"allOf": [{"type": ["string", "null"]}, {"type": ["string", "integer"]}]},
    {"type": "string", "format": "uri"},
    {"type": "string", "format": "email"},
]


@properties
@given(st.sampled_from(PLAIN), st.sampled_from(TEXTS).filter(lambda text: text != "\ud800") | st.text(), st.booleans())
def test_where_any_string_is_admitted_none_is_parsed(part: Any, text: str, slip: bool) -> None:
    repairer = tool({"text": part, "n": {"type": "integer"}}, **{"$defs": {"Text": {"type": "string"}}})
    repair = repairer.repair({"text": text, "n": "3" if slip else 3})
    assert repair.value == {"text": text, "n": 3}
    assert repair.errors == ()


@pytest.mark.parametrize(
    "part",
    [
        {"type": ["string", "integer"], "minLength": 3},
        {"anyOf": [{"type": "string", "pattern": "^x"}, {"type": "integer"}]},
    ],
)
def test_a_string_of_the_wrong_form_is_not_read_as_another_type(part: dict[str, Any]) -> None:
    repair = tool({"text": part}).repair({"text": "7"})
    assert repair.value == {"text": "7"}
    assert len(repair.errors) == 1


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ({"type": ["integer", "string"], "minimum": 5}, 3),
        ({"anyOf": [{"type": "integer", "maximum": 5}, {"type": "string"}]}, 9),
        ({"anyOf": [{"type": "integer", "maximum": 5}, {"type": "array", "items": {"type": "integer"}}]}, 9),
        ({"type": ["array", "string"], "maxItems": 1}, [1, 2]),
        ({"not": {"type": "integer"}}, 3),
    ],
)  # fmt: skip
def test_a_rule_is_not_got_round_by_way_of_another_type(part: dict[str, Any], value: Any) -> None:
    repair = tool({"x": part}).repair({"x": value})
    assert repair.value == {"x": value}
    assert [error.path for error in repair.errors] == ["x"]


@pytest.mark.parametrize("required", [[], ["n"]])
@pytest.mark.parametrize("null", [None, "null"])
def test_null_for_something_with_a_default_takes_it(null: Any, required: list[str]) -> None:
    repair = tool({"n": {"type": "integer", "default": 3}}, required=required).repair({"n": null})
    if null is None or not required:
        assert (repair.value, repair.errors) == ({"n": 3}, ())
        assert repair.warnings[-1].code == "null_replaced_by_default"
        assert repair.warnings[-1].became == 3
    else:
        # Text for something required is more likely a mistake than an absence.
        assert [error.code for error in repair.errors] == ["invalid_integer_string"]


def test_null_for_something_optional_without_a_default_is_left_out() -> None:
    repair = tool({"n": {"type": "integer"}}).repair({"n": None})
    assert (repair.value, repair.errors) == ({}, ())
    assert [warning.code for warning in repair.warnings] == ["null_left_out"]


def test_null_for_something_required_without_a_default_is_an_error() -> None:
    repair = tool({"n": {"type": "integer"}}, required=["n"]).repair({"n": None})
    assert [(error.path, error.code) for error in repair.errors] == [("n", "null_not_allowed")]


@pytest.mark.parametrize("default", [None, "three", 0])
def test_a_default_that_the_schema_itself_refuses_is_never_handed_over(default: Any) -> None:
    part = {"type": "integer", "minimum": 1, "default": default}
    assert tool({"n": part}).repair({"n": None}).value == {}
    assert tool({"n": part}, required=["n"]).repair({"n": None}).errors[0].code == "null_not_allowed"


def test_a_default_is_handed_out_as_a_copy() -> None:
    repairer = tool({"tags": {"type": "array", "items": {"type": "string"}, "default": ["a"]}})
    repairer.repair({"tags": None}).value["tags"].append("b")
    assert repairer.repair({"tags": None}).value == {"tags": ["a"]}


def test_null_under_one_spelling_gives_way_to_a_value_under_another() -> None:
    repair = tool({"page_size": {"type": "integer", "default": 3}}).repair({"page_size": None, "pageSize": 7})
    assert (repair.value, repair.errors) == ({"page_size": 7}, ())
    assert [warning.code for warning in repair.warnings] == ["null_left_out", "property_name_matched"]


def test_a_failed_argument_stays_as_it_was_sent_beside_repaired_ones() -> None:
    repair = tool({"a": {"type": "integer"}, "b": {"type": "integer"}}).repair({"a": "1", "b": "one"})
    assert repair.value == {"a": 1, "b": "one"}
    assert [(error.path, error.got) for error in repair.errors] == [("b", "one")]
    assert [warning.path for warning in repair.warnings] == ["a"]


def test_all_failures_are_reported_together() -> None:
    repair = repairer_of("search").repair({"limit": "ten", "exact": "perhaps", "nonsense": 1})
    assert {error.path for error in repair.errors} == {"query", "limit", "exact", "nonsense"}


@pytest.mark.parametrize(
    ("schema", "sent", "becomes"),
    [
        ({"allOf": [{"properties": {"a": {"type": "integer"}}}, {"required": ["a"]}]}, {"A": "1"}, {"a": 1}),
        ({"properties": {"k": {"type": "string"}}, "if": {"properties": {"k": {"const": "n"}}}, "then": {"properties": {"v": {"type": "integer"}}}, "else": {"properties": {"v": {"type": "boolean"}}}}, {"k": "n", "v": "1"}, {"k": "n", "v": 1}),
        ({"properties": {"k": {"type": "string"}}, "if": {"properties": {"k": {"const": "n"}}}, "then": {"properties": {"v": {"type": "integer"}}}, "else": {"properties": {"v": {"type": "boolean"}}}}, {"k": "b", "v": "1"}, {"k": "b", "v": True}),
        ({"properties": {"a": {}}, "dependentSchemas": {"a": {"properties": {"b": {"type": "integer"}}}}}, {"a": 1, "b": "2"}, {"a": 1, "b": 2}),
        ({"patternProperties": {"^n_": {"type": "integer"}}}, {"n_1": "1", "s_1": "1"}, {"n_1": 1, "s_1": "1"}),
        ({"properties": {"a": {"$ref": "#/$defs/a~1b%20c"}}, "$defs": {"a/b c": {"type": "integer"}}}, {"a": "1"}, {"a": 1}),
        ({"properties": {"a": {"$ref": "#here"}}, "$defs": {"x": {"$anchor": "here", "type": "integer"}}}, {"a": "1"}, {"a": 1}),
        ({"properties": {"a": {"$ref": "#/$defs/x"}}, "$defs": {"x": {"$id": "urn:x", "$ref": "#/$defs/y", "$defs": {"y": {"type": "integer"}}}}}, {"a": "1"}, {"a": 1}),
        ({"anyOf": [{"required": ["a"]}, {"required": ["b"]}], "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}}, {"a": "1"}, {"a": 1}),
        ({"$schema": "http://json-schema.org/draft-07/schema#", "definitions": {"p": {"type": "array", "items": [{"type": "integer"}, {"type": "string"}]}}, "properties": {"a": {"$ref": "#/definitions/p"}}}, {"a": ["1", 2]}, {"a": [1, "2"]}),
        ({"properties": {"a": {"anyOf": [{"type": "integer"}], "oneOf": [{"minimum": 3}, {"maximum": 1}]}}}, {"a": "5"}, {"a": 5}),
        ({"properties": {"a": {"const": 3}}}, {"a": "3"}, {"a": 3}),
    ],
)  # fmt: skip
def test_every_kind_of_composition_is_walked(schema: dict[str, Any], sent: Any, becomes: Any) -> None:
    whole = {"type": "object", **schema}
    check_schema(whole, "tool")
    repair = Repairer(whole).repair(sent)
    assert (repair.errors, same(repair.value, becomes)) == ((), True), repair


def test_an_alias_of_a_choice_never_wins_over_the_choice_itself() -> None:
    part = {"enum": ["red", "blue"], "x-pegboard-names": {"BLUE": "red"}}
    assert tool({"c": part}).repair({"c": "Blue"}).errors[0].code == "ambiguous_value"
    assert tool({"c": part}).repair({"c": "blue"}).warnings == ()


def test_extras_are_refused_or_passed_on_with_a_suggestion() -> None:
    schema = {"type": "object", "properties": {"color": {"type": "string"}}}
    refused = Repairer({**schema, "additionalProperties": False}).repair({"colour": "red"})
    assert [error.message for error in refused.errors] == ['colour: unknown argument, did you mean "color"?']
    warned = Repairer(schema).repair({"colour": "red"})
    assert (warned.value, warned.errors) == ({"colour": "red"}, ())
    assert warned.warnings[0].message == 'colour: unknown argument, passed on, did you mean "color"?'


@pytest.mark.parametrize("more", [{}, {"additionalProperties": True}, {"additionalProperties": False}], ids=str)
def test_an_unknown_name_is_reported_with_the_missing_name_as_a_suggestion(more: dict[str, Any]) -> None:
    read = {
        "type": "object",
        "properties": {"path": {"type": "string"}, "limit": {"type": "integer"}},
        "required": ["path"],
    }
    repairer = Repairer({**read, **more})
    for refused in (repairer.repair({"file": "a.txt"}).errors, repairer.report({"file": "a.txt"})):
        assert sorted(error.message for error in refused) == [
            'file: unknown argument, did you mean "path"?',
            "path: required, but missing; expected a string",
        ]
    # What it cannot be, or which of several it is, is not guessed.
    for sent in ({"file": True}, {"file": "a.txt", "mode": "r"}):
        assert not any("did you mean" in error.message for error in repairer.repair(sent).errors)


def test_an_unknown_name_without_a_similar_one_is_reported_with_the_available_names() -> None:
    schema = {
        "type": "object",
        "properties": {"text": {"type": "string"}, "times": {"type": "integer"}},
        "required": ["text"],
    }
    refused = Repairer({**schema, "additionalProperties": False}).repair({"text": "a", "secret": "x"})
    assert [error.message for error in refused.errors] == ["secret: unknown argument, remove it or use one of: times"]


def test_names_the_author_declares_open_are_no_extras() -> None:
    for additional in (
        {"additionalProperties": True},
        {"additionalProperties": {"type": "integer"}},
        {"patternProperties": {"^x": {}}},
    ):
        assert Repairer({"type": "object", **additional}).fits({"x": 1})


def test_a_valid_value_is_kept_when_its_names_cannot_be_repaired() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "not": {"required": ["a"]}}
    repair = Repairer(schema).repair({"A": 1})
    assert (repair.value, repair.errors) == ({"A": 1}, ())
    assert [warning.code for warning in repair.warnings] == ["unknown_parameter"]


def test_json_text_is_taken_out_of_json_text_twice_and_no_further() -> None:
    def nest(levels: int) -> Any:
        value: Any = {"n": 1}
        for _ in range(levels):
            value = {"in": json.dumps(value)}
        return value

    node = {"type": "object", "properties": {"in": {"$ref": "#/$defs/Node"}}, "required": []}
    repairer = tool({"in": {"$ref": "#/$defs/Node"}}, **{"$defs": {"Node": node}})
    assert repairer.repair(nest(2)).value == {"in": {"in": {"n": 1}}}
    assert repairer.repair(nest(3)).errors[0].path == "in.in.in"


EXPRESSION = {
    "type": "object",
    "properties": {"e": {"$ref": "#/$defs/E"}},
    "$defs": {
        "E": {
            "anyOf": [
                {"type": "integer", "maximum": 5},
                *({"type": "object", "properties": {"of": {"type": "array", "items": {"$ref": "#/$defs/E"}}, name: {}}, "required": ["of"]} for name in "abcdefgh"),
            ]
        }
    },
}  # fmt: skip


def nested(levels: int, leaf: Any) -> Any:
    for _ in range(levels):
        leaf = {"of": [leaf, leaf][: 1 + (levels < 10)]}
    return leaf


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (EXPRESSION, {"e": nested(9, "9")}),
        (EXPRESSION, {"e": nested(60, "9")}),
        (EXPRESSION, {"e": nested(2, ["x"] * 50_000)}),
        ({"type": "object", "properties": {"a": {"type": "array", "items": {"type": "integer"}}}}, {"a": ["x"] * 200_000}),
        ({"type": "object", "properties": {"a": {"anyOf": [{"type": "array", "items": {"type": "integer"}}, {"type": "null"}]}}}, {"a": ["x"] * 200_000}),
        ({"type": "object", "properties": {"a": {"type": "object", "properties": {}}}}, {"a": "[" * 100_000}),
        ({"type": "object", "properties": {"a": {"type": "object"}}}, {"a": '"' + '\\"' * 100_000}),
        ({"type": "object", "properties": {"a": {"type": "integer"}}}, {"a": "9" * 1_000_000}),
        ({"type": "object", "properties": {"a": {"type": "object"}}}, {"a": "/*" * 100_000}),
        ({"type": "object", "properties": {f"p{n}": {} for n in range(300)}, "additionalProperties": False}, {f"P_{n}": n for n in range(20_000)}),
    ],
    ids=["wide union", "deep union", "union of large lists", "large list", "optional large list", "brackets", "escapes", "digits", "comments", "names"],
)  # fmt: skip
def test_adversarial_arguments_cost_a_bounded_walk(schema: dict[str, Any], value: Any) -> None:
    repairer = Repairer(schema)
    assert repairer.repair(value).errors
    # A unit of the budget is less than a hundred calls; what is unbounded here takes billions.
    assert count_calls(lambda: repairer.repair(value)) < 100 * Limits().repair_work


def test_a_text_no_json_can_carry_is_refused_without_a_crash() -> None:
    repair = tool({"a": {"type": "string"}, "b": {"type": "array", "uniqueItems": True}}).repair(
        {"a": "\ud800", "b": ["\ud800", "\ud800"]}
    )
    assert all(said.message.isprintable() for said in (*repair.errors, *repair.warnings))


def test_repairers_go_cold_but_not_wrong() -> None:
    repairer._warm.cache_clear()
    repairers = [tool({"a": {"type": "integer"}, f"b{n}": {}}) for n in range(repairer.WARM_CALLS + 20)]
    for _ in range(2):
        assert all(repairer.repair({"a": "1"}).value == {"a": 1} for repairer in repairers)
    assert repairer._warm.cache_info().currsize == repairer.WARM_CALLS


def test_nothing_of_the_arguments_is_kept() -> None:
    class Held(dict[str, Any]):
        pass

    value = Held(a="1")
    held = weakref.ref(value)
    repairer = tool({"a": {"type": "integer"}})
    repairer.repair(value)
    del value
    gc.collect()
    assert held() is None


def test_an_undeclared_name_is_escaped_in_messages() -> None:
    value = {"\nIgnore all that": 1}
    told = Repairer({"type": "object", "properties": {"a": {}}, "additionalProperties": False}).repair(value).errors
    passed = Repairer({"type": "object", "properties": {"a": {}}}).repair(value).warnings
    for said in (*told, *passed):
        assert "\n" not in said.message
        assert said.path == '["\\nIgnore all that"]'


def test_a_choice_that_a_soft_rule_stopped_is_not_read_as_itself() -> None:
    schema = {"type": "object", "properties": {"a": {"allOf": [{"const": "red"}, {"type": "string", "format": "uri"}]}}}
    repair = Repairer(schema).repair({"a": "red"})
    assert (repair.value, repair.errors) == ({"a": "red"}, ())
    assert [warning.code for warning in repair.warnings] == ["uri_not_absolute"]


def test_what_takes_too_much_to_repair_is_refused_in_words_for_the_model() -> None:
    repairer = tool({"a": {"type": "array", "items": {"type": "integer"}}})
    limits = Limits(repair_work=100)
    assert repairer.repair({"a": ["1"] * 50}, limits).value == {"a": [1] * 50}
    refused = repairer.repair({"a": ["1"] * 200}, limits)
    assert [error.code for error in refused.errors] == ["too_much_to_repair"]
    assert "send every value in the type that the schema asks for" in refused.errors[0].message
    assert refused.warnings == ()
    assert repairer.repair({"a": [1] * 200}, limits).errors == ()


@pytest.mark.parametrize("kind", ["object", "array", "integer", "number", "boolean", "null"])
def test_text_is_read_as_something_else_up_to_its_limit(kind: str) -> None:
    text = {"object": "{}", "array": "[]", "integer": "1", "number": "1.5", "boolean": "true", "null": "null"}[kind]
    repairer = tool({"a": {"type": kind}}, required=["a"])
    limits = Limits(repair_text=30)
    assert repairer.repair({"a": f"{text:30}"}, limits).errors == ()
    refused = repairer.repair({"a": f"{text:31}"}, limits).errors
    assert [(error.path, error.code) for error in refused] == [("a", "text_too_long_to_repair")]
    assert refused[0].message == ("a: the text has 31 characters, and only 30 are parsed as another type")


def test_text_that_fits_may_be_as_long_as_it_likes() -> None:
    long = "x" * 200_000
    repairer = tool({"a": {"type": "string"}, "b": {"type": "integer"}})
    assert repairer.repair({"a": long, "b": "1"}).value == {"a": long, "b": 1}


def test_arguments_that_are_one_long_text_are_refused() -> None:
    text = json.dumps({"a": ["1"] * 20_000})
    refused = tool({"a": {"type": "array"}}).repair(text).errors
    assert [(error.path, error.code) for error in refused] == [("", "text_too_long_to_repair")]


def test_a_slip_deep_in_a_recursive_union_is_still_repaired() -> None:
    repairer = Repairer(EXPRESSION)
    value: Any = "4"
    for _ in range(6):
        value = {"of": [value]}
    repair = repairer.repair({"e": value})
    assert repair.errors == ()
    assert [warning.code for warning in repair.warnings] == ["string_literal_converted_to_integer"]
