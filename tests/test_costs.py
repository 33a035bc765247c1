"""Twice the input takes at most three times the work, for whatever comes from outside, up to the limit that guards it.

`INPUTS` names them. Each has a function that makes an input of a given size and returns what is to be measured, with the
sizes that are tried: in one list those below the limit that guards it, in another those beyond, where another path is
taken that ends in a refusal. Work is counted, not timed (`tests/work.py`).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypedDict

import pydantic
import pytest

from pegboard.catalog.tool_catalog import ToolCatalog
from pegboard.errors import DeclarationError, UnknownTool
from pegboard.tools.message import JsonRpcMessage
from pegboard.tools.naming import find_misspelt, suggest
from pegboard.tools.tool import Tool, tool_from_function
from tests.depth import EXPLORE, deeper
from tests.work import assert_linear

pytestmark = pytest.mark.same_on_every_python

Make = Callable[[int], Callable[[], Any]]

# How deep a value is nested: repair goes 64 levels down, which are two for each level of a union.
DEPTHS = ([8, 16], [32, 64])
PLAIN_DEPTHS = ([8, 16, 32], [64, 128])
# Models are not read where pydantic would try too many alternatives.
MODEL_DEPTHS = ([4, 8], [32, 64])
SIZES = ([16, 32, 64, 128, 256, 512, *([1024, 2048, 4096, 8192] if EXPLORE else [])],)
LINKS = ([16, 32, 64, 128, 256],)


@dataclass
class Left:
    a: Left | Right | int


@dataclass
class Right:
    a: Left | Right | int
    b: int = 1


class LeftDict(TypedDict):
    a: LeftDict | RightDict | int


class RightDict(TypedDict, total=False):
    a: LeftDict | RightDict | int
    b: int


class LeftModel(pydantic.BaseModel):
    a: LeftModel | RightModel | int


class RightModel(pydantic.BaseModel):
    a: LeftModel | RightModel | int
    b: int = 1


@dataclass
class Strict:
    a: Strict | Lax | int

    def __post_init__(self) -> None:
        raise ValueError("never taken")


@dataclass
class Lax:
    a: Strict | Lax | int


def take_dataclass(node: Left | Right | int) -> None: ...
def take_dict(node: LeftDict | RightDict | int) -> None: ...
def take_model(node: LeftModel | RightModel | int) -> None: ...
def take_refused(node: Strict | Lax | int) -> None: ...
def take_message(message: JsonRpcMessage) -> None: ...


def explicit(node: Any, **definitions: Any) -> Tool:
    schema = {"type": "object", "properties": {"node": node}, "$defs": definitions}
    return tool_from_function(take_message, input_schema=schema)


def ref(name: str) -> dict[str, str]:
    return {"$ref": f"#/$defs/{name}"}


def tree(more: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"type": "object", "properties": {"a": ref("N"), **(more or {})}, "required": ["a"]}


# The check of the format is a function of ours, and so is counted.
LEAF = {"type": "string", "format": "time"}
ANY_OF = {"anyOf": [tree(), tree({"b": {}}), LEAF]}
ONE_OF = {"oneOf": [tree(), tree({"b": {}}), LEAF]}
ALL_OF = {"allOf": [{"properties": {"a": ref("N")}}, {"properties": {"a": ref("N")}}], "format": "time"}
PATTERNS = {"properties": {"a": ref("N")}, "patternProperties": {"a": ref("N"), "^.$": ref("N")}, "format": "time"}
CONDITION = {
    "if": {"properties": {"a": ref("N")}},
    "then": {"properties": {"a": ref("N")}},
    "else": {"properties": {"a": ref("N")}},
    "format": "time",
}
LISTS = {"anyOf": [{"type": "array", "items": ref("N")}, {"items": ref("N"), "minItems": 1}, LEAF]}
# Types that all have the field `a`, each with the others in an order of its own.
KINDS = 9
MANY = {
    f"M{kind}": {"type": "object", "properties": {"a": {"anyOf": [*(ref(f"M{(kind + other) % KINDS}") for other in range(KINDS)), LEAF]}}}
    for kind in range(KINDS)
}  # fmt: skip


def nested(depth: int, leaf: Any, wrap: Callable[[Any], Any]) -> Any:
    for _ in range(depth):
        leaf = wrap(leaf)
    return leaf


def parsing(tool: Tool, leaf: Any, wrap: Callable[[Any], Any] = lambda inner: {"a": inner}) -> Make:
    """The arguments of a call, nested so and so deep."""

    def make(depth: int) -> Callable[[], Any]:
        raw = json.dumps({"node": nested(depth, leaf, wrap)}).encode()
        return lambda: tool.parse(raw)

    return make


def wide(tool: Tool, value: Callable[[int], Any]) -> Make:
    """The arguments of a call, of so and so many parts."""

    def make(size: int) -> Callable[[], Any]:
        raw = json.dumps({"node": value(size)}).encode()
        return lambda: tool.parse(raw)

    return make


def declaring(schema: Callable[[int], dict[str, Any]], value: Any) -> Make:
    """A schema of so and so many definitions, and one call; from some size on it is refused."""

    def make(size: int) -> Callable[[], Any]:
        written, raw = schema(size), json.dumps({"node": value}).encode()

        def declare() -> None:
            try:
                tool_from_function(take_message, input_schema=written).parse(raw)
            except DeclarationError:
                pass

        return declare

    return make


def chain(link: Callable[[dict[str, str]], Any]) -> Callable[[int], dict[str, Any]]:
    def schema(size: int) -> dict[str, Any]:
        links = {f"D{number}": link(ref(f"D{number + 1}")) for number in range(size)}
        return {"type": "object", "properties": {"node": ref("D0")}, "$defs": {**links, f"D{size}": LEAF}}

    return schema


def knot(link: Callable[[list[Any]], Any]) -> Callable[[int], dict[str, Any]]:
    """So and so many definitions that all refer to each other."""

    def schema(size: int) -> dict[str, Any]:
        around = max(2, int(size**0.5))
        every = [ref(f"D{number}") for number in range(around)]
        return {
            "type": "object",
            "properties": {"node": ref("D0")},
            "$defs": {f"D{number}": link(every[number:] + every[:number]) for number in range(around)},
        }

    return schema


def naming(name: Callable[[int], str], names: Callable[[int], list[str]], choose: Callable[..., Any]) -> Make:
    def make(size: int) -> Callable[[], Any]:
        sought, known = name(size), names(size)
        return lambda: choose(sought, known)

    return make


def unknown_tool(size: int) -> Callable[[], Any]:
    catalog = ToolCatalog()
    for number in range(size):
        catalog.add(tool_from_function(take_message, f"{'read_the_file_of_a_project_' * 4}{number}"))

    def find() -> None:
        with pytest.raises(UnknownTool):
            catalog.find(f"{'raed_the_file_of_a_project_' * 4}0")

    return find


MAP = explicit({"type": "object", "additionalProperties": {"type": "integer"}})
LIST = explicit({"type": "array", "items": {"type": "integer"}})
UNIQUE = explicit({"type": "array", "items": {"type": "integer"}, "uniqueItems": True})
CLOSED = explicit(
    {"type": "object", "properties": {f"name_{n}": {} for n in range(500)}, "additionalProperties": False}
)
CHOICE = explicit({"type": "array", "items": {"enum": [f"choice_{n}" for n in range(2_000)]}})
OBJECT = explicit({"type": "object", "properties": {"a": {"type": "array", "items": {"type": "integer"}}}})
NUMBER = explicit({"type": ["number", "boolean", "null"]})

INPUTS: dict[str, tuple[Make, tuple[list[int], ...]]] = {
    **{
        f"union of {name}, {kind} leaf": (parsing(tool_from_function(take), leaf), depths)
        for name, take, depths in (
            ("dataclasses", take_dataclass, DEPTHS),
            ("dicts", take_dict, DEPTHS),
            ("models", take_model, MODEL_DEPTHS),
        )
        for kind, leaf in (("fitting", 1), ("repaired", "7"), ("wrong", "x"))
    },
    **{
        f"recursive {name}, {kind} leaf": (parsing(explicit(ref("N"), N=node), leaf), depths)
        for name, node, depths in (
            ("anyOf", ANY_OF, DEPTHS),
            ("oneOf", ONE_OF, DEPTHS),
            ("allOf", ALL_OF, PLAIN_DEPTHS),
            ("patterns", PATTERNS, PLAIN_DEPTHS),
            ("condition", CONDITION, DEPTHS),
        )
        for kind, leaf in (("fitting", "12:00:00"), ("wrong", "x"), ("odd", 1))
    },
    "recursive lists": (parsing(explicit(ref("N"), N=LISTS), "x", lambda inner: [inner]), DEPTHS),
    "many types, wrong leaf": (parsing(explicit(ref("M0"), **MANY), "x"), DEPTHS),
    "many types, fitting leaf": (parsing(explicit(ref("M0"), **MANY), "12:00:00"), DEPTHS),
    "alternatives that their authors refuse": (parsing(tool_from_function(take_refused), 1), DEPTHS),
    "doubling allOf": (declaring(chain(lambda below: {"allOf": [below, below]}), "12:00:00"), LINKS),
    "doubling anyOf": (declaring(chain(lambda below: {"anyOf": [below, below]}), "x"), LINKS),
    "doubling oneOf": (declaring(chain(lambda below: {"oneOf": [below, below]}), "x"), LINKS),
    "doubling conditions": (declaring(chain(lambda below: {"if": below, "then": below}), "12:00:00"), LINKS),
    "doubling properties": (
        declaring(chain(lambda below: {"allOf": [{"properties": {"a": below}}] * 2}), nested(40, 1, lambda inner: {"a": inner})),
        LINKS,
    ),
    "a plain chain": (declaring(chain(lambda below: {"properties": {"a": below}}), {}), ([16, 32, 64, 128, 256, 512],)),
    "a knot of parts": (
        declaring(knot(lambda every: {"properties": {"a": {"anyOf": every}}}), nested(30, 1, lambda inner: {"a": inner})),
        ([16, 32, 64, 128, 256, 512],),
    ),
    "a knot at one place": (declaring(knot(lambda every: {"allOf": every[1:]}), 1), ([16, 32, 64, 128, 256, 512],)),
    "a list of numbers as text": (wide(LIST, lambda size: ["1"] * size), SIZES),
    "a list of wrong items": (wide(LIST, lambda size: ["x"] * size), SIZES),
    "a list of the same": (wide(UNIQUE, lambda size: ["1", *range(size), *range(size)]), SIZES),
    "a map of numbers as text": (wide(MAP, lambda size: {f"n{number}": "1" for number in range(size)}), SIZES),
    "a map of nulls": (wide(MAP, lambda size: {f"n{number}": None for number in range(size)}), SIZES),
    "names that are not known": (wide(CLOSED, lambda size: {f"nmae_{number}": 1 for number in range(size)}), SIZES),
    "choices that are find_misspelt": (wide(CHOICE, lambda size: ["Choice-7"] * size), SIZES),
    "choices that are none": (wide(CHOICE, lambda size: ["choise_7"] * size), SIZES),
    "JSON in text": (wide(OBJECT, lambda size: json.dumps({"a": ["1"] * size})), SIZES),
    "commas and comments in text": (wide(OBJECT, lambda size: '{"a": [' + "1, /* one */" * size + "]}"), SIZES),
    "brackets in text": (wide(OBJECT, lambda size: "[{" * size), SIZES),
    "a number in text": (wide(NUMBER, lambda size: "1" * size), SIZES),
    "texts of the longest": (wide(explicit({"type": "array", "items": OBJECT.input_schema["properties"]["node"]}), lambda size: ['{"a": ["1",]}' + " " * 60_000] * size), ([1, 2, 4, 8], [16, 32, 64])),
    "an unknown tool among many": (unknown_tool, SIZES),
    "a name among long ones": (naming(lambda size: "ab" * size, lambda size: ["ba" * size] * 20, suggest), SIZES),
    "a name among many": (naming(lambda _: "ab" * 40, lambda size: [f"{'ab' * 39}{n}" for n in range(size)], suggest), SIZES),
    "a slip among many": (naming(lambda _: "ab" * 40, lambda size: [f"{'ab' * 39}{n}" for n in range(size)], find_misspelt), SIZES),
}  # fmt: skip


@deeper
@pytest.mark.parametrize("name", INPUTS)
def test_twice_the_input_takes_at_most_three_times_the_work(name: str) -> None:
    make, ranges = INPUTS[name]
    for sizes in ranges:
        assert_linear(make, sizes)
