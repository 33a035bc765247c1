"""Names that a nested object does not declare: matched by spelling, rejected or reported, in every style."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NotRequired, TypedDict

import attrs
import msgspec
import pytest
from msgspec import Struct
from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic.dataclasses import dataclass as pydantic_dataclass

from pegboard import Board, Client, JsonRpcMessage, Tool, ToolExecutionContext
from tests.styles.connections import ERRORS, codes_of, text_of


@dataclass
class Plain:
    field: str
    page_size: int


@dataclass
class Defaulted:
    field: str
    page_size: int = 10


@dataclass
class Named:
    name: str
    size: int = 3


class Typed(TypedDict):
    field: str
    page_size: NotRequired[int]


class Structured(Struct):
    field: str
    page_size: int = 10


class Tagged(Struct, tag="tagged"):
    field: str
    page_size: int = 10


@attrs.define
class Attributed:
    field: str
    page_size: int = 10


class Modelled(BaseModel):
    field: str
    page_size: int = 10


@pydantic_dataclass
class Validated:
    field: str
    page_size: int = 10


@dataclass
class Node:
    field: str
    page_size: int
    inner: Node | None


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")
    field: str
    page_size: int = 10


CLOSED = [Plain, Defaulted, Typed, Structured, Attributed, Modelled, Validated, Strict]

OPEN_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "where": {
            "type": "object",
            "properties": {"field": {"type": "string"}, "page_size": {"type": "integer"}},
            "required": ["field"],
        }
    },
    "required": ["where"],
}


def show(value: Any) -> str:
    return msgspec.json.encode(value, enc_hook=lambda model: model.model_dump()).decode()


def take_message(message: JsonRpcMessage) -> str:
    return show(message.params)


class Declared(Tool):
    name = "declared"
    input_schema = OPEN_SCHEMA

    async def execute(self, context: ToolExecutionContext) -> str:
        return show(context.request.arguments)


def inferred(annotation: Any) -> Board:
    def take(where: Any) -> str:
        return show({"where": where})

    take.__annotations__ = {"where": annotation, "return": str}
    board = Board()
    board.add(take, name="take")
    return board


def with_own_schema(style: str, schema: dict[str, Any] = OPEN_SCHEMA) -> Board:
    board = Board()
    if style == "explicit":
        board.add(take_message, name="take", input_schema=schema)
    elif style == "declared":
        declared = Declared()
        declared.name, declared.input_schema = "take", schema
        board.add(declared)
    else:

        def take(where: dict[str, Any]) -> str:
            return show({"where": where})

        board.add(take, input_schema=schema)
    return board


async def call(board: Board, arguments: Any) -> dict[str, Any]:
    async with Client(board) as client:
        return dict(
            await client.request("tools/call", name="take", arguments=msgspec.Raw(msgspec.json.encode(arguments)))
        )


@pytest.mark.parametrize("annotation", CLOSED)
async def test_a_type_without_the_name_rejects_it_and_suggests_one(annotation: Any) -> None:
    result = await call(inferred(annotation), {"where": {"field": "a", "page_sise": 5}})
    assert "unknown_property" in codes_of(result, ERRORS)
    assert 'where.page_sise: unknown property, did you mean "page_size"?' in text_of(result)


@pytest.mark.parametrize("annotation", CLOSED)
async def test_a_type_takes_another_spelling_of_its_name(annotation: Any) -> None:
    result = await call(inferred(annotation), {"where": {"field": "a", "pageSize": 5}})
    assert codes_of(result) == ["property_name_matched"]
    assert msgspec.json.decode(text_of(result)) == {"where": {"field": "a", "page_size": 5}}


@pytest.mark.parametrize(
    ("annotation", "around"),
    [
        (list[Plain], lambda where: [{"field": "b", "page_size": 1}, where]),
        (dict[str, Plain], lambda where: {"first": where}),
        (Plain | None, lambda where: where),
        (list[Structured], lambda where: [where]),
        (tuple[Plain, int], lambda where: [where, 1]),
        (Plain | int, lambda where: where),
        (Tagged | int, lambda where: {"type": "tagged", **where}),
        (Plain | Named, lambda where: where),
        (list[Plain | Named | None], lambda where: [None, {"name": "b"}, where]),
        (Node, lambda where: {"field": "x", "page_size": 1, "inner": {**where, "inner": None}}),
    ],
)
async def test_undeclared_names_are_rejected_at_any_depth(annotation: Any, around: Any) -> None:
    board = inferred(annotation)
    fine = await call(board, {"where": around({"field": "a", "page_size": 5})})
    assert not fine.get("isError"), text_of(fine)
    assert not codes_of(fine)
    result = await call(board, {"where": around({"field": "a", "page_size": 5, "limt": 5})})
    assert result["isError"]
    assert "limt: unknown property" in text_of(result)


async def test_the_schema_of_a_nested_type_says_that_other_names_are_rejected() -> None:
    async with Client(inferred(Plain)) as client:
        (tool,) = await client.list_tools()
    assert tool["inputSchema"]["properties"]["where"]["additionalProperties"] is False


async def test_a_model_that_takes_other_names_gets_them() -> None:
    class Loose(BaseModel):
        model_config = ConfigDict(extra="allow")
        field: str

    result = await call(inferred(Loose), {"where": {"field": "a", "limt": 5}})
    assert not codes_of(result)
    assert msgspec.json.decode(text_of(result)) == {"where": {"field": "a", "limt": 5}}


async def test_a_model_that_reads_other_names_itself_gets_them_with_a_warning() -> None:
    class Renaming(BaseModel):
        field: str
        limit: int = 10

        @model_validator(mode="before")
        @classmethod
        def rename(cls, given: dict[str, Any]) -> dict[str, Any]:
            return {"limit" if name == "most" else name: value for name, value in given.items()}

    result = await call(inferred(Renaming), {"where": {"field": "a", "most": 5}})
    assert codes_of(result) == ["unknown_property"]
    assert msgspec.json.decode(text_of(result)) == {"where": {"field": "a", "limit": 5}}


async def test_a_model_that_ignores_other_names_on_purpose_gets_a_warning() -> None:
    class Ignoring(BaseModel):
        model_config = ConfigDict(extra="ignore")
        field: str = Field(alias="Field")

    result = await call(inferred(Ignoring), {"where": {"Field": "a", "most": 5}})
    assert codes_of(result) == ["unknown_property"]


@pytest.mark.parametrize("style", ["explicit", "declared", "hybrid"])
async def test_an_open_schema_passes_an_undeclared_name_on_with_a_warning(style: str) -> None:
    result = await call(with_own_schema(style), {"where": {"field": "a", "page_sise": 5}})
    assert codes_of(result) == ["unknown_property"]
    assert msgspec.json.decode(text_of(result)) == {"where": {"field": "a", "page_sise": 5}}
    (warning,) = result["_meta"]["dev.pegboard/parseWarnings"]
    assert warning["path"] == "where.page_sise"
    assert warning["message"] == 'where.page_sise: unknown property, passed on, did you mean "page_size"?'


@pytest.mark.parametrize("style", ["explicit", "declared", "hybrid"])
async def test_an_open_schema_takes_another_spelling_of_a_nested_name(style: str) -> None:
    result = await call(with_own_schema(style), {"where": {"field": "a", "pageSize": 5}})
    assert codes_of(result) == ["property_name_matched"]
    assert msgspec.json.decode(text_of(result)) == {"where": {"field": "a", "page_size": 5}}


@pytest.mark.parametrize("style", ["explicit", "declared", "hybrid"])
async def test_a_nested_object_with_another_name_for_a_required_one_is_rejected(style: str) -> None:
    result = await call(with_own_schema(style), {"where": {"feild": "a"}})
    assert sorted(codes_of(result, ERRORS)) == ["missing_required", "unknown_property"]
    assert 'did you mean "field"?' in text_of(result)


WHERE = OPEN_SCHEMA["properties"]["where"]


@pytest.mark.parametrize(
    ("schema", "around"),
    [
        ({"type": "array", "items": WHERE}, lambda where: [{"field": "b"}, where]),
        ({"type": "object", "additionalProperties": WHERE}, lambda where: {"first": where}),
        ({"anyOf": [WHERE, {"type": "null"}]}, lambda where: where),
        ({"allOf": [WHERE, {"properties": {"other": {}}}]}, lambda where: {**where, "other": 1}),
        ({"$ref": "#/$defs/where"}, lambda where: where),
        ({"type": "array", "prefixItems": [{"type": "integer"}, WHERE]}, lambda where: [1, where]),
    ],
)
async def test_an_open_schema_reports_undeclared_names_at_any_depth(schema: Any, around: Any) -> None:
    whole = {"type": "object", "properties": {"where": schema}, "$defs": {"where": WHERE}}
    board = with_own_schema("explicit", whole)
    assert not codes_of(await call(board, {"where": around({"field": "a", "page_size": 5})}))
    result = await call(board, {"where": around({"field": "a", "limt": 5})})
    assert codes_of(result) == ["unknown_property"]
    spelt = await call(board, {"where": around({"field": "a", "PageSize": 5})})
    assert codes_of(spelt) == ["property_name_matched"]


async def test_an_object_without_declared_names_takes_any_without_a_warning() -> None:
    schema = {"type": "object", "properties": {"where": {"type": "object"}}}
    assert not codes_of(await call(with_own_schema("explicit", schema), {"where": {"anything": 1}}))


async def test_a_name_of_another_branch_is_not_reported() -> None:
    other = {"type": "object", "properties": {"kind": {"const": "b"}, "size": {}}}
    schema = {"type": "object", "properties": {"where": {"anyOf": [WHERE, other]}}}
    assert not codes_of(await call(with_own_schema("explicit", schema), {"where": {"field": "a", "size": 1}}))
