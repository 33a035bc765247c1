"""Arguments and results of calls are masked by the hints of their schema, by names, and cut."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from pegboard.call_target import CalledItem
from pegboard.middleware.observability.call_masking import CallMasking, Secrets, ToolMasking
from pegboard.middleware.observability.secret_names import EVERYTHING, secret_names

MASK = "***"


def masking(properties: dict[str, Any], *names: str, **more: Any) -> ToolMasking:
    schema = {"type": "object", "properties": properties, **more}
    return CallMasking(names).of(CalledItem(name="tool", input_schema=schema))


@pytest.mark.parametrize(
    "hint",
    [
        {"format": "password"},
        {"writeOnly": True},
        {"x-sensitive": True},
        {"anyOf": [{"type": "string", "format": "password"}, {"type": "null"}]},
        {"type": "array", "items": {"writeOnly": True}},
        {"additionalProperties": {"x-sensitive": True}},
        {"$ref": "#/$defs/Hidden"},
        {"allOf": [{"$ref": "#/$defs/Indirect"}]},
    ],
    ids=str,
)
def test_a_hint_of_the_schema_masks_the_field(hint: dict[str, Any]) -> None:
    definitions = {"Hidden": {"format": "password"}, "Indirect": {"$ref": "#/$defs/Hidden"}}
    tool = masking({"pin": hint, "amount": {"type": "number"}}, **{"$defs": definitions})
    shown, _ = tool.arguments({"pin": "1234", "amount": 3, "nested": [{"pin": ["5678"]}]})
    assert shown == {"pin": MASK, "amount": 3, "nested": [{"pin": MASK}]}


def test_no_hint_masks_nothing() -> None:
    tool = masking({"writeOnly": {"type": "boolean"}, "text": {"default": {"format": "password"}}})
    assert tool.arguments({"writeOnly": True, "text": "x"})[0] == {"writeOnly": True, "text": "x"}


def test_a_schema_that_is_secret_as_a_whole_masks_everything() -> None:
    assert secret_names({"writeOnly": True}) == {EVERYTHING}
    assert masking({}, writeOnly=True).arguments({"a": 1})[0] == MASK


def test_a_recursive_schema_is_read_once() -> None:
    node = {"properties": {"key": {"format": "password"}, "next": {"$ref": "#/$defs/Node"}}}
    tool = masking({"first": {"$ref": "#/$defs/Node"}}, **{"$defs": {"Node": node}})
    shown, _ = tool.arguments({"first": {"key": "a", "next": {"key": "b", "next": None}}})
    assert shown == {"first": {"key": MASK, "next": {"key": MASK, "next": None}}}


def test_names_that_look_secret_and_names_of_the_operator_are_masked() -> None:
    tool = masking({}, "iban", "pin code")
    sent = {"apiKey": "k", "IBAN": "CH93", "customer_iban": "CH94", "pinCode": 1, "pin": 2, "code": 3}
    shown, _ = tool.arguments(sent)
    assert shown == {"apiKey": MASK, "IBAN": MASK, "customer_iban": MASK, "pinCode": MASK, "pin": 2, "code": 3}


@pytest.mark.parametrize("name", ["passwrd", "Pass_word", "passwort", "pasword"])
def test_a_misspelt_name_that_repair_would_accept_is_masked(name: str) -> None:
    assert masking({"password": {}, "user": {}}).arguments({name: "hunter2", "user": "ann"})[0] == {
        name: MASK,
        "user": "ann",
    }


def test_arguments_that_are_not_an_object_are_masked_where_some_of_them_are_secret() -> None:
    tool = masking({"pin": {"writeOnly": True}})
    assert tool.arguments('{"pin": 1234}')[0] == MASK
    assert tool.arguments(["1234"])[0] == MASK
    assert masking({"a": {}}).arguments(["1234"])[0] == ["1234"]


def test_an_object_that_was_sent_as_text_is_masked_inside() -> None:
    shown: Any = masking({"pin": {"writeOnly": True}, "options": {}}).arguments({"options": '{"pin": "1234"}'})[0]
    assert msgspec.json.decode(shown["options"]) == {"pin": MASK}


def test_a_secret_is_masked_in_the_other_texts_of_its_call() -> None:
    tool = masking({"pin": {"writeOnly": True}})
    _, secrets = tool.arguments({"pin": "s3cret-pin"})
    assert tool.value({"content": [{"text": "wrong pin s3cret-pin"}]}, secrets) == {
        "content": [{"text": f"wrong pin {MASK}"}]
    }


def test_the_output_schema_masks_the_result_and_its_text() -> None:
    item = CalledItem(name="tool", output_schema={"properties": {"otc": {"format": "password"}}})
    result = {"structuredContent": {"otc": "778899"}, "content": [{"text": '{"otc":"778899"}'}, {"text": "use 778899"}]}
    shown = CallMasking().of(item).value(result, Secrets())
    assert shown == {
        "structuredContent": {"otc": MASK},
        "content": [{"text": '{"otc":"***"}'}, {"text": f"use {MASK}"}],
    }


def test_what_is_long_deep_or_wide_is_cut() -> None:
    deep: Any = "end"
    for _ in range(1000):
        deep = [deep]
    sent = {"text": "x" * 100_000, "deep": deep, "wide": list(range(100_000)), "k" * 1000: 1}
    shown, _ = masking({}).arguments(sent)
    assert len(msgspec.json.encode(shown)) < 10_000
    assert isinstance(shown, dict)
    assert shown["text"] == "x" * 2000 + "… (100000 characters)"


def test_a_value_of_many_parts_costs_no_more_than_a_small_one() -> None:
    sent: Any = {str(number): {str(inner): [1] * 50 for inner in range(50)} for number in range(50)}
    shown, _ = masking({}).arguments(sent)
    assert len(msgspec.json.encode(shown)) < 20_000


def test_a_schema_made_to_be_expensive_is_read_in_bounded_time_and_masks_what_it_does_not_know() -> None:
    definitions = {f"d{number}": {"$ref": f"#/$defs/d{number + 1}"} for number in range(3000)}
    definitions["d3000"] = {"format": "password"}
    properties = {f"p{number}": {"$ref": f"#/$defs/d{number % 3000}"} for number in range(3000)}
    tool = masking(properties, **{"$defs": definitions})
    assert tool.arguments({"p7": "a", "other": "b"})[0] == {"p7": MASK, "other": MASK}


def test_names_of_callers_are_not_remembered() -> None:
    tool = masking({"user": {}, "password": {}})
    for number in range(1000):
        tool.arguments({f"name{number}": number, "user": "ann"})
    assert list(tool._known) == ["user"]
