"""`Request[T]`: a message with typed arguments, for tools, prompts and resources."""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal
from typing import Annotated, Any, TypedDict

import attrs
import msgspec
import pytest
from pydantic import BaseModel, field_validator

from pegboard import Board, Client, Context, JsonRpcMessage, Range, Request, ToolResponse
from pegboard.errors import DeclarationError


@dataclass
class Numbers:
    """Two numbers."""

    number1: Annotated[float, "First number"]
    number2: float = 1.5
    tags: list[str] = field(default_factory=list)


class TypedNumbers(TypedDict, total=False):
    number1: float
    number2: float


class StructNumbers(msgspec.Struct):
    number1: float
    number2: float = 1.5


@attrs.define
class AttrsNumbers:
    number1: float
    number2: float = 1.5


class ModelNumbers(BaseModel):
    number1: float
    number2: float = 1.5


class ValidatedNumbers(BaseModel):
    number1: float
    number2: float = 1.5

    @field_validator("number2")
    @classmethod
    def check(cls, value: float) -> float:
        if value == 13:
            raise ValueError("13 is not a lucky number")
        return value


TYPES = [Numbers, TypedNumbers, StructNumbers, AttrsNumbers, ModelNumbers, ValidatedNumbers]


def member(value: Any, name: str) -> Any:
    return value[name] if isinstance(value, dict) else getattr(value, name)


@pytest.mark.parametrize("kind", TYPES)
async def test_the_type_is_the_schema_and_the_arguments_are_an_object_of_it(kind: Any) -> None:
    board, got = Board(), []

    def add(request: Request[Any]) -> JsonRpcMessage:
        got.append(request.args)
        result = member(request.args, "number1") + member(request.args, "number2")
        return ToolResponse.success(request.id, {"result": result, "method": request.method})

    add.__annotations__["request"] = Request[kind]
    board.tool(add)
    async with Client(board) as client:
        (tool,) = await client.list_tools()
        schema = tool["inputSchema"]
        assert schema["properties"]["number1"]["type"] == "number"
        assert schema["additionalProperties"] is False
        called = await client.call("add", {"number1": "2", "Number2": 3})
        assert called.text == '{"result":5.0,"method":"add"}'
        assert [one["path"] for one in called.meta["dev.pegboard/parseWarnings"]] == ["number2", "number1"]
        refused = await client.call("add", {"number1": "two", "nmber2": 3})
        assert refused.is_error
        assert {one["path"] for one in refused.meta["dev.pegboard/parseErrors"]} >= {"number1"}
    if kind is not TypedNumbers:
        assert isinstance(got[0], kind)


async def test_defaults_of_the_type_apply_and_are_not_shared() -> None:
    board = Board()

    @board.tool
    async def collect(request: Request[Numbers], ctx: Context) -> str:
        request.args.tags.append("x")
        return f"{request.args.number2} {request.args.tags} {request.params}"

    async with Client(board) as client:
        for _ in range(2):
            assert (await client.call("collect", {"number1": 1})).text == "1.5 ['x'] {'number1': 1}"


async def test_a_validator_of_the_type_answers_the_model() -> None:
    board = Board()

    @board.tool
    def add(request: Request[ValidatedNumbers]) -> float:
        return request.args.number2

    async with Client(board) as client:
        refused = await client.call("add", {"number1": 1, "number2": 13})
    assert refused.is_error
    assert "13 is not a lucky number" in refused.text


class Price(msgspec.Struct):
    amount: Decimal
    parts: list[Price] = []


async def test_decimals_and_recursive_types_work_as_in_functions() -> None:
    board = Board()

    @board.tool
    def show(request: Request[Price]) -> str:
        return f"{request.args.amount} {[part.amount for part in request.args.parts]}"

    async with Client(board) as client:
        (tool,) = await client.list_tools()
        assert tool["inputSchema"]["type"] == "object"
        sent = msgspec.Raw(b'{"amount": 1.10, "parts": [{"amount": "2.50"}]}')
        result = await client.request("tools/call", name="show", arguments=sent)
    assert result["content"][0]["text"] == "1.10 [Decimal('2.50')]"


async def test_prompts_and_resources_take_typed_requests() -> None:
    @dataclass
    class Which:
        folder: str
        number: Annotated[int, "Its number", Range(1, 9)]

    board = Board()

    def note(request: Request[Which]) -> str:
        return f"{request.method} {request.args.folder} {request.args.number + 1}"

    note.__annotations__["request"] = Request[Which]
    board.prompt(note)
    board.resource("notes://{folder}/{number}")(note)
    async with Client(board) as client:
        (prompt,) = await client.list_prompts()
        assert prompt["arguments"] == [
            {"name": "folder", "required": True},
            {"name": "number", "description": "Its number", "required": True},
        ]
        (message,) = await client.prompt("note", {"folder": "a", "number": "1"})
        assert message["content"]["text"] == "note a 2"
        (part,) = await client.read("notes://a/2")
        assert part["text"] == "notes://a/2 a 3"


async def test_a_schema_of_your_own_takes_precedence() -> None:
    board = Board()
    schema = {"type": "object", "properties": {"number1": {"type": "number", "minimum": 5}}, "required": ["number1"]}

    @board.tool(input_schema=schema)
    def add(request: Request[Numbers]) -> float:
        return request.args.number1

    async with Client(board) as client:
        assert (await client.list_tools())[0]["inputSchema"] == schema
        assert (await client.call("add", {"number1": 4})).is_error
        assert (await client.call("add", {"number1": 6})).text == "6"


@pytest.mark.parametrize(
    ("annotation", "says"),
    [
        (Request, r"Request needs the type of its arguments, as in Request\[Numbers\]"),
        (Request[int], "a type with fields"),
    ],
)
def test_a_request_without_a_usable_type_is_rejected(annotation: Any, says: str) -> None:
    def wrong(request: Any) -> None: ...

    wrong.__annotations__["request"] = annotation
    with pytest.raises(DeclarationError, match=says):
        Board().tool(wrong)


def test_other_arguments_belong_into_the_type() -> None:
    def wrong(request: Request[Numbers], more: int) -> None: ...

    with pytest.raises(DeclarationError, match=r"parameter 'more' is beside a Request\[T\]"):
        Board().tool(wrong)
