"""Numbers that are sent in another form than the tool takes behave alike in every style."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from pegboard import Board, Client, JsonRpcMessage, Tool, ToolExecutionContext
from tests.depth import deeper, pairs
from tests.server_processes import ROOT
from tests.styles.connections import ROADS, Door, codes_of, text_of
from tests.styles.kinds import STYLES, show

BOARD = ROOT / "tests" / "styles" / "kinds.py"
BEHIND = list(ROADS)

KEPT = "non_string_literal_retained"
TO_INTEGER = "string_literal_converted_to_integer"

# The kind of parameter, the JSON that is sent, what the tool gets, and the codes of the warnings.
ROWS = [
    ("integer", "3.0", "int 3", []),
    ("integer", "3e2", "int 300", []),
    ("integer", "-0.0", "int 0", []),
    ("integer", "3.5", "int 3", ["fractional_number_truncated_to_integer"]),
    ("integer", '"3.0"', "int 3", [TO_INTEGER]),
    ("integers", "[1.0, 2]", "list [1,2]", []),
    ("integers", '[1.0, "2"]', "list [1,2]", [TO_INTEGER]),
    ("integers", "3.0", "list [3]", ["scalar_coerced_to_list"]),
    ("map", '{"a": 1.0}', 'dict {"a":1}', []),
    ("optional", "3.0", "int 3", []),
    ("defaulted", "3.0", "int 3", []),
    ("number", "3.0", "float 3.0", []),
    ("boolean", "1.0", "bool true", ["number_coerced_to_boolean"]),
    ("string", "1.10", 'str "1.10"', [KEPT]),
    ("string", "3.0", 'str "3.0"', [KEPT]),
    ("string", "1E5", 'str "1E5"', [KEPT]),
    ("string", "0.12345678901234567890", 'str "0.12345678901234567890"', [KEPT]),
    ("string", "12345678901234567890123", 'str "12345678901234567890123"', [KEPT]),
    ("string", '{"version": [1.10]}', 'str "{\\"version\\":[1.10]}"', [KEPT]),
    ("list", "[1.10]", 'list ["1.10"]', [KEPT]),
    ("list", '"[1.10]"', 'list ["1.10"]', ["string_literal_converted_to_array", KEPT]),
    ("optional_text", "1.10", 'str "1.10"', [KEPT]),
    ("attachment", "1.10", 'str "1.10"', [KEPT]),
]  # fmt: skip


async def call(served: Board, name: str, arguments: str) -> dict[str, Any]:
    async with Client(served) as client:
        return dict(await client.request("tools/call", name=name, arguments=Raw(arguments.encode())))


@deeper
@pytest.mark.parametrize(
    ("door", "style", "kind", "sent", "shown", "codes"), pairs(BEHIND, STYLES, ROWS), indirect=["door"]
)
def test_a_number_is_read_alike_in_every_style(
    door: Door, style: str, kind: str, sent: str, shown: str, codes: list[str]
) -> None:
    result = door.call(f"{style}.{kind}", Raw(f'{{"value": {sent}}}'.encode()))
    assert text_of(result) == shown
    assert codes_of(result) == codes


SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "page": {
            "type": "object",
            "properties": {
                "size": {"type": "integer"},
                "ratio": {"type": "number"},
                "either": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
                "pair": {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "number"}]},
            },
        }
    },
}


@dataclass
class Page:
    size: int
    ratio: float
    either: int | None
    pair: tuple[int, float]


class Declared(Tool):
    name = "declared"
    input_schema = SCHEMA

    async def execute(self, context: ToolExecutionContext) -> str:
        return show(context.request.arguments["page"])


def nested_board() -> Board:
    nested = Board()

    @nested.tool
    def magic(page: Page) -> str:
        return show(msgspec.to_builtins(page))

    @nested.tool(input_schema=SCHEMA)
    def explicit(message: JsonRpcMessage) -> str:
        return show(message.get("page"))

    @nested.tool(input_schema=SCHEMA)
    def hybrid(page: dict[str, Any]) -> str:
        return show(page)

    nested.add(Declared())
    return nested


@pytest.mark.parametrize("style", STYLES)
async def test_whole_numbers_are_integers_at_any_depth(style: str) -> None:
    sent = '{"page": {"size": 3.0, "ratio": 1.0, "either": 2.0, "pair": [1.0, 2.0]}}'
    result = await call(nested_board(), style, sent)
    assert text_of(result) == 'dict {"size":3,"ratio":1.0,"either":2,"pair":[1,2.0]}'
    assert not codes_of(result)
