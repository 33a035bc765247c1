"""What a schema costs is known before a value is checked by it, and is never more than was said."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from pegboard.errors import DeclarationError
from pegboard.repair.repairer import Repairer
from pegboard.schema import jsonschema_backend
from pegboard.schema.cost import schema_cost
from pegboard.schema.cost.schema_cost import LoopingSchema, measure, weigh
from pegboard.schema.jsonschema_backend import LENIENT, compile_schema
from pegboard.schema.schema_check import check_schema
from pegboard.schema.validator import SCHEMA_STEPS, VALUE_STEPS, Validator
from pegboard.tools.message import JsonRpcMessage
from pegboard.tools.relayed_tool import RelayedTool
from pegboard.tools.tool import tool_from_function
from tests.depth import examples

pytestmark = pytest.mark.same_on_every_python

properties = settings(max_examples=examples(20), deadline=None, suppress_health_check=list(HealthCheck))


def ref(name: str) -> dict[str, str]:
    return {"$ref": f"#/$defs/{name}"}


def doubling(levels: int, keyword: str = "allOf") -> dict[str, Any]:
    links = {f"D{number}": {keyword: [ref(f"D{number + 1}")] * 2} for number in range(levels)}
    return {"type": "object", "properties": {"x": ref("D0")}, "$defs": {**links, f"D{levels}": {"type": "string"}}}


def union(kinds: int, **more: Any) -> dict[str, Any]:
    """A recursive union as pydantic writes it: every type repeats it for its field."""
    every = [ref(f"K{kind}") for kind in range(kinds)]
    return {
        "type": "object",
        "properties": {"x": {"anyOf": every}},
        "$defs": {
            f"K{kind}": {
                "type": "object",
                "properties": {"kind": {"const": kind}, "of": {"anyOf": every, "title": f"Of {kind}", **more}},
                "required": ["kind"],
            }
            for kind in range(kinds)
        },
    }


@pytest.mark.parametrize("keyword", ["allOf", "anyOf", "oneOf"])
def test_a_schema_whose_references_multiply_is_refused_with_the_number(keyword: str) -> None:
    assert measure(doubling(8, keyword)).steps == 2 ** (8 + 2) - 1
    check_schema(doubling(8, keyword), "tool")
    with pytest.raises(DeclarationError, match=r"takes up to 1,073,741,823 steps, the limit is 20,000"):
        check_schema(doubling(28, keyword), "tool")


@pytest.mark.parametrize(
    "link",
    [
        lambda below: {"if": below, "then": below},
        lambda below: {"not": below, "allOf": [below]},
        lambda below: {"dependentSchemas": {"a": below, "b": below}},
        lambda below: {"patternProperties": {"a": below, "b": below}},
        lambda below: {"properties": {"a": below}, "patternProperties": {"a": below}},
        lambda below: {"items": below, "contains": below},
        lambda below: {"anyOf": [{"properties": {"a": below}}] * 2},
        lambda below: {"$ref": below["$ref"], "allOf": [below]},
        lambda below: {"allOf": [below], "unevaluatedProperties": False},
    ],
)  # fmt: skip
def test_every_keyword_that_applies_a_schema_twice_counts(link: Any) -> None:
    links = {f"D{number}": link(ref(f"D{number + 1}")) for number in range(28)}
    schema = {"type": "object", "properties": {"x": ref("D0")}, "$defs": {**links, "D28": {"type": "string"}}}
    assert measure(schema).steps > 2**28


def test_an_author_hears_of_such_a_schema_where_the_tool_is_declared() -> None:
    def take(message: JsonRpcMessage) -> None: ...

    with pytest.raises(DeclarationError, match=r"test_schema_cost.py:\d+: schema at its root: .* steps"):
        tool_from_function(take, input_schema=doubling(28))
    with pytest.raises(DeclarationError, match=r"test_schema_cost.py:\d+: output_schema cannot be used: .* steps"):
        tool_from_function(take, output_schema=doubling(28))


def test_a_tool_of_another_server_loses_such_an_output_schema_and_says_why() -> None:
    definition = {"name": "t", "inputSchema": {"type": "object"}, "outputSchema": doubling(28)}

    async def relay(*_: Any) -> Any: ...

    tool = RelayedTool(definition, relay, source="box/server")
    assert tool.output_schema is None
    assert "outputSchema" not in tool.definition()
    assert tool.flaw.startswith("box/server: the outputSchema of 't' is invalid and was removed: ")
    assert "1,073,741,823 steps" in tool.flaw


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "allOf": [{"$ref": "#"}]},
        {"type": "object", "properties": {"x": ref("a")}, "$defs": {"a": {"anyOf": [ref("b")]}, "b": {"not": ref("a")}}},
        {"type": "object", "properties": {"x": ref("n0")}, "$defs": {f"n{at}": {"allOf": [ref(f"n{other}") for other in range(9)]} for at in range(9)}},
    ],
    ids=["the root", "two", "many"],
)  # fmt: skip
def test_a_schema_that_is_applied_to_the_same_value_without_end_is_refused(schema: dict[str, Any]) -> None:
    with pytest.raises(LoopingSchema):
        measure(schema)
    with pytest.raises(DeclarationError, match="applies itself"):
        check_schema(schema, "tool")


@pytest.mark.parametrize(
    ("schema", "most"),
    [
        ({"type": "object", "properties": {f"p{number}": {"type": "integer"} for number in range(1_000)}}, 2),
        ({"$ref": "#/$defs/N", "$defs": {"N": {"properties": {"of": {"items": ref("N")}, "by": ref("N")}}}}, 10),
        ({"$ref": "#/$defs/J", "$defs": {"J": {"anyOf": [{"additionalProperties": ref("J")}, {"items": ref("J")}, {"type": "string"}]}}}, 50),
        (union(3), 100),
        (union(20), 2_000),
        (union(60), SCHEMA_STEPS),
    ],
    ids=["flat", "tree", "any JSON", "small union", "union of 20 types", "union of 60 types"],
)  # fmt: skip
def test_what_people_write_costs_little(schema: dict[str, Any], most: int) -> None:
    assert measure(schema).steps <= most


def test_unions_of_one_wording_are_checked_as_one() -> None:
    shared = measure(union(20)).shared
    assert len(shared) == 20
    assert len(set(shared.values())) == 1


def test_a_value_with_more_parts_than_a_costly_schema_allows_is_refused() -> None:
    repairer = Repairer(union(20))
    few = {"x": {"kind": 1, "of": {"kind": 2}}}
    assert repairer.repair(few).errors == ()
    many = {**few, "y": [1] * (VALUE_STEPS // measure(union(20)).steps)}
    assert [error.code for error in repairer.repair(many).errors] == ["arguments_too_large"]
    assert [error.code for error in repairer.report(many)] == ["arguments_too_large"]
    text = {**few, "y": "long enough to hold many parts, and yet one" * 1_000}
    assert repairer.repair(text).errors == ()


NAMES = st.sampled_from("ab")
LEAVES = st.sampled_from([{"format": "time"}, {"type": "string", "format": "time"}, {"type": "integer"}])
KINDS = 5


def _around(parts: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    some = st.lists(parts, min_size=1, max_size=3)
    return st.one_of(
        some.map(lambda each: {"allOf": each}),
        some.map(lambda each: {"anyOf": each}),
        some.map(lambda each: {"oneOf": each}),
        parts.map(lambda part: {"items": part}),
        parts.map(lambda part: {"additionalProperties": part}),
        st.dictionaries(NAMES, parts, max_size=2).map(lambda named: {"type": "object", "properties": named}),
        st.tuples(parts, parts).map(lambda two: {"properties": {"a": two[0]}, "patternProperties": {".": two[1]}}),
        st.tuples(parts, parts, parts).map(lambda each: {"if": each[0], "then": each[1], "else": each[2]}),
        st.tuples(parts, parts).map(lambda two: {"allOf": [two[0]], "unevaluatedProperties": two[1]}),
    )


PARTS = st.recursive(LEAVES | st.integers(0, KINDS - 1).map(lambda kind: ref(f"D{kind}")), _around, max_leaves=8)
SCHEMAS = st.lists(PARTS, min_size=KINDS, max_size=KINDS).map(
    lambda parts: {
        "type": "object",
        "properties": {"a": ref("D0"), "b": ref("D1")},
        "$defs": {f"D{number}": part for number, part in enumerate(parts)},
    }
)
VALUES = st.dictionaries(
    NAMES,
    st.recursive(
        st.sampled_from(["12:00:00", "x", 1, True]),
        lambda inner: st.dictionaries(NAMES, inner, max_size=2) | st.lists(inner, max_size=2),
        max_leaves=12,
    ),
)


@pytest.fixture(params=["by the library", "in Python"])
def _cut(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "in Python":
        monkeypatch.setattr(schema_cost, "NATIVE_STEPS", 0)


@pytest.mark.usefixtures("_cut")
@properties
@given(SCHEMAS, VALUES)
def test_no_check_takes_more_steps_than_the_schema_costs(schema: dict[str, Any], value: Any) -> None:
    taken = 0

    def check_time(_text: str) -> bool:
        nonlocal taken
        taken += 1
        return True

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(jsonschema_backend, "is_time", check_time)
        judge = Validator(schema)
        try:
            judge.compile()
        except ValueError:
            assume(False)
        judge.is_valid(value)
    assert taken <= judge.cost.steps * weigh(value, 10**9)


@pytest.mark.usefixtures("_cut")
@properties
@given(SCHEMAS, VALUES)
def test_what_is_shared_or_cut_is_checked_as_it_was_written(schema: dict[str, Any], value: Any) -> None:
    judge = Validator(schema)
    try:
        judge.compile()
    except ValueError:
        assume(False)
    assume(judge.cost.shared or judge.cost.cuts)
    valid = compile_schema(schema, LENIENT).is_valid(value)
    assert judge.is_valid(value) is valid
    assert valid or list(judge.problems(value))


def test_references_into_what_is_moved_are_followed() -> None:
    part = {
        "anyOf": [
            {"type": "object", "properties": {"a": ref("N")}},
            {"type": "object", "properties": {"a": ref("N"), "b": {"type": "integer"}}},
        ]
    }
    schema = {
        "type": "object",
        "properties": {"x": ref("N"), "y": {"$ref": "#/$defs/N/anyOf/1/properties/a/anyOf/1/properties/b"}},
        "$defs": {"N": {"anyOf": [{"type": "object", "properties": {"a": part}}, {"type": "object", "properties": {"a": part}}]}},
    }  # fmt: skip
    assert measure(schema).shared
    judge = Validator(schema)
    assert judge.is_valid({"y": 1})
    assert not judge.is_valid({"y": "1"})
    assert judge.part("/$defs/N/anyOf/0/properties/a/anyOf/1").is_valid({"b": 1})
    assert not judge.part("/$defs/N/anyOf/0/properties/a/anyOf/1").is_valid({"b": "x"})
