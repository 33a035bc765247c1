"""Decimal parameters: a schema that strict readers understand, and messages without a regular expression."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, Any

import pytest
from msgspec import Raw

from pegboard import Board, Client, Range


def board() -> Board:
    made = Board()

    @made.tool
    def pay(
        amount: Annotated[Decimal, Range(1, 100)], tip: Decimal | None = None, fee: Decimal = Decimal("0.50")
    ) -> str:
        return f"{amount} {tip} {fee}"

    return made


async def test_a_decimal_is_a_number_or_a_text_as_two_alternatives() -> None:
    async with Client(board()) as client:
        (tool,) = await client.list_tools()
    properties = tool["inputSchema"]["properties"]
    assert [part["type"] for part in properties["amount"]["anyOf"]] == ["number", "string"]
    assert properties["amount"]["anyOf"][0] == {"type": "number", "minimum": 1, "maximum": 100}
    assert [part["type"] for part in properties["tip"]["anyOf"]] == ["number", "string"]
    assert not any(isinstance(part.get("type"), list) for part in properties.values())


@pytest.mark.parametrize(
    ("sent", "became"),
    [('{"amount": 1.10}', "1.10 None 0.50"), ('{"amount": "12.50", "tip": 2}', "12.50 2 0.50")],
)
async def test_a_decimal_keeps_its_digits(sent: str, became: str) -> None:
    async with Client(board()) as client:
        result: Any = await client.request("tools/call", name="pay", arguments=Raw(sent.encode()))
    assert result["content"][0]["text"] == became


@pytest.mark.parametrize("sent", ['{"amount": "a lot"}', '{"amount": true}', '{"amount": 5, "fee": "x"}', "{}"])
async def test_a_problem_with_a_decimal_is_reported_without_a_regular_expression(sent: str) -> None:
    async with Client(board()) as client:
        result: Any = await client.request("tools/call", name="pay", arguments=Raw(sent.encode()))
    text = result["content"][0]["text"]
    assert result["isError"]
    assert "[0-9]" not in text
    assert "decimal" in text
