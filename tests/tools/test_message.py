"""The raw message of explicit tools."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
import pydantic
import pytest

from pegboard.errors import InvalidArguments
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
def test_params_that_do_not_fit_are_told_to_the_model(wanted: type) -> None:
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


def test_absent_and_null_are_told_apart() -> None:
    assert JsonRpcMessage(id=1).result is msgspec.UNSET
    assert JsonRpcMessage(id=1).params is msgspec.UNSET
