"""The raw message: of explicit tools, and as the answer of declared ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec
import pydantic
import pytest

from pegboard import Board, Client, Parameter, Tool, ToolExecutionContext
from pegboard.errors import InvalidArguments, InvalidParams
from pegboard.tools.message import JsonRpcMessage, ToolResponse


@dataclass
class Numbers:
    number1: float
    number2: float


class NumbersModel(pydantic.BaseModel):
    number1: float
    number2: float


def test_params_are_read_as_the_type_the_author_names() -> None:
    message = JsonRpcMessage(id=1, method="tools/call", params={"number1": 1, "number2": 2})
    assert message.params_as(Numbers) == Numbers(1.0, 2.0)
    assert message.params_as(NumbersModel) == NumbersModel(number1=1, number2=2)
    assert message.get("number1") == 1
    assert message.get("number3", 3) == 3


@pytest.mark.parametrize("wanted", [Numbers, NumbersModel])
def test_invalid_params_are_reported_to_the_model(wanted: type) -> None:
    with pytest.raises(
        InvalidArguments, match=r"^The arguments do not fit: number2: (is required|Field required)$"
    ) as refused:
        JsonRpcMessage(id=1, params={"number1": 1}).params_as(wanted)
    assert [error.path for error in refused.value.errors] == ["number2"]


def test_answers_carry_a_result_or_an_error() -> None:
    assert ToolResponse.success(1, {"result": 8}) == JsonRpcMessage(id=1, result={"result": 8})
    assert ToolResponse.success(1).result is None
    assert ToolResponse.error("a", -32602, "No", {"x": 1}).error == {"code": -32602, "message": "No", "data": {"x": 1}}
    assert ToolResponse.error("a", -32602, "No").error == {"code": -32602, "message": "No"}


def test_a_message_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        JsonRpcMessage(id=1).id = 2  # type: ignore[misc]


def test_absent_and_null_are_distinguished() -> None:
    assert JsonRpcMessage(id=1).result is msgspec.UNSET
    assert JsonRpcMessage(id=1).params is msgspec.UNSET


class Echo(Tool):
    """A declared tool that answers with a whole message."""

    name = "echo"
    parameters = (Parameter("how"), Parameter("id", required=False))

    async def execute(self, context: ToolExecutionContext) -> JsonRpcMessage:
        sent = context.request.arguments
        answer = sent.get("id", context.request.tool_call_id)
        match sent["how"]:
            case "value":
                return ToolResponse.success(answer, {"said": "hello"})
            case "content":
                return ToolResponse.success(answer, {"content": [{"type": "text", "text": "hello"}]})
            case "nothing":
                return ToolResponse.success(answer)
            case _:
                return ToolResponse.error(answer, -32602, "not today", {"until": "tomorrow"})


@pytest.mark.parametrize(
    ("how", "content"),
    [
        ("value", [{"type": "text", "text": '{"said":"hello"}'}]),
        ("content", [{"type": "text", "text": "hello"}]),
        ("nothing", []),
    ],
)
async def test_a_declared_tool_may_answer_with_a_message(how: str, content: list[Any]) -> None:
    board = Board("declared")
    board.add(Echo())
    async with Client(board) as client:
        for _ in range(2):
            result = await client.call("echo", {"how": how})
            assert (result.content, result.is_error) == (content, False)


async def test_the_error_in_a_declared_tools_message_is_the_answer_of_the_protocol() -> None:
    board = Board("declared")
    board.add(Echo())
    async with Client(board) as client:
        with pytest.raises(InvalidParams, match="not today") as refused:
            await client.call("echo", {"how": "error"})
    assert refused.value.data == {"until": "tomorrow"}


async def test_a_declared_tools_message_for_another_call_is_never_sent() -> None:
    board = Board("declared")
    board.add(Echo())
    async with Client(board) as client:
        result = await client.call("echo", {"how": "content", "id": "another"})
    assert result.is_error
    assert "hello" not in result.text


async def test_a_repair_is_reported_alongside_the_message_of_a_declared_tool() -> None:
    board = Board("declared")
    board.add(Echo())
    async with Client(board) as client:
        result = await client.call("echo", {"How": "content"})
    assert result.text == "hello"
    assert [note["code"] for note in result.meta["dev.pegboard/parseWarnings"]] == ["property_name_matched"]
