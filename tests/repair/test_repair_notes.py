"""Where a result reports the repairs of its arguments: in a block for the model, in `_meta`, or nowhere."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
import pytest

from pegboard import Board, Client, Image, Link, ToolResult
from pegboard.config.config_keys import ToolOverride
from pegboard.config.gateway_config import GatewayConfig, ServerConfig, ToolboxConfig
from pegboard.errors import DeclarationError
from pegboard.gateway import Gateway
from pegboard.middleware import TokenBudget

WARNINGS = "dev.pegboard/parseWarnings"
TAG = {"annotations": {"audience": ["assistant"]}, "_meta": {"dev.pegboard/note": "repairs"}}

Notes = Literal["text", "meta", "off"]


def sample(**options: Any) -> Board:
    board = Board("sample", **options)

    @board.tool
    def repeat(word: str, count: int) -> str:
        return word * count

    @board.tool
    def add(a: float, b: float) -> float:
        return a + b

    return board


async def call(board: Board | Gateway, tool: str, **arguments: Any) -> dict[str, Any]:
    async with Client(board) as client:
        return dict(
            await client.request("tools/call", name=tool, arguments=msgspec.Raw(msgspec.json.encode(arguments)))
        )


async def test_a_repair_of_a_tool_without_structured_output_is_a_text_block_of_its_own() -> None:
    result = await call(sample(), "repeat", word="ab", count="2")
    note = {"type": "text", "text": '[repaired] count: string "2" read as integer 2', **TAG}
    assert result["content"] == [{"type": "text", "text": "abab"}, note]
    assert [warning["path"] for warning in result["_meta"][WARNINGS]] == ["count"]


async def test_beside_structured_content_the_note_is_an_embedded_resource() -> None:
    result = await call(sample(), "add", a=2, b="3")
    text = '[repaired] b: string "3" read as number 3'
    resource = {"uri": "pegboard:repairs", "mimeType": "text/plain", "text": text}
    assert result["content"] == [{"type": "text", "text": "5"}, {"type": "resource", "resource": resource, **TAG}]
    assert result["structuredContent"] == 5


async def test_a_call_without_repairs_has_no_note() -> None:
    result = await call(sample(), "repeat", word="ab", count=2)
    assert result["content"] == [{"type": "text", "text": "abab"}]
    assert WARNINGS not in result.get("_meta", {})


async def test_with_meta_only_programs_are_given_the_repairs() -> None:
    result = await call(sample(repair_notes="meta"), "repeat", word="ab", count="2")
    assert result["content"] == [{"type": "text", "text": "abab"}]
    assert result["_meta"][WARNINGS]


async def test_with_off_a_result_says_nothing_of_repairs() -> None:
    result = await call(sample(repair_notes="off"), "repeat", word="ab", count="2")
    assert result["content"] == [{"type": "text", "text": "abab"}]
    assert WARNINGS not in result.get("_meta", {})


async def test_a_tool_replaces_the_setting_of_its_board() -> None:
    board = Board(repair_notes="off")

    @board.tool(repair_notes="text")
    def double(number: int) -> str:
        return str(2 * number)

    assert len((await call(board, "double", number="4"))["content"]) == 2


@pytest.mark.parametrize("setting", ["Text", "", None])
def test_another_setting_is_rejected(setting: Any) -> None:
    with pytest.raises(DeclarationError, match=r"repair_notes=.*'text'.*'meta'.*'off'"):
        Board(repair_notes=setting)


def test_another_setting_of_a_tool_is_rejected() -> None:
    board = Board()
    with pytest.raises(DeclarationError, match=r"repair_notes='loud'; use 'text' or 'meta' or 'off'"):

        @board.tool(repair_notes="loud")  # type: ignore[call-overload]  # what is tested
        def say() -> str:
            return ""


async def test_blocks_of_the_author_stay_as_they_are() -> None:
    board = Board()

    @board.tool
    def mixed(count: int) -> list[str | Image | Link]:
        return ["two", Image(b"\x89PNG\r\n\x1a\n", mime_type="image/png"), Link("https://example.com/a")]

    repaired = await call(board, "mixed", count="1")
    plain = await call(board, "mixed", count=1)
    assert repaired["content"][:-1] == plain["content"]
    assert repaired["content"][-1]["type"] == "text"


async def test_structured_content_without_a_schema_has_the_note_beside_it_too() -> None:
    board = Board()

    @board.tool
    def free(count: int) -> ToolResult:
        return ToolResult("one", structured={"one": 1})

    result = await call(board, "free", count="1")
    assert [block["type"] for block in result["content"]] == ["text", "resource"]
    assert result["structuredContent"] == {"one": 1}


async def test_many_repairs_make_a_short_note() -> None:
    board = Board()

    @board.tool
    def total(numbers: list[int]) -> str:
        return str(sum(numbers))

    result = await call(board, "total", numbers=[str(number) for number in range(100)])
    lines = result["content"][-1]["text"].splitlines()
    assert lines[0] == '[repaired] numbers[0]: string "0" read as integer 0'
    assert lines[5:] == ["[repaired] and 95 more"]
    assert len(result["_meta"][WARNINGS]) == 100


async def test_the_text_of_a_result_is_what_the_tool_returned() -> None:
    async with Client(sample()) as client:
        assert (await client.call("repeat", {"word": "ab", "count": "2"})).text == "abab"


async def test_a_token_budget_neither_counts_nor_cuts_the_note() -> None:
    board = sample()
    board.use(TokenBudget(100))
    result = await call(board, "repeat", word="word ", count="1000")
    text, note = result["content"]
    assert "left out" in text["text"]
    assert note["text"] == '[repaired] count: string "1000" read as integer 1000'


# Tools of other servers.


def gateway(toolbox: Notes | None = None, server: Notes | None = None, tool: Notes | None = None) -> Gateway:
    entry = ServerConfig(
        name="calc",
        kind="board",
        board="calc",
        repair_notes=server,
        tools={"repeat": ToolOverride(repair_notes=tool)},
    )
    box = ToolboxConfig(name="dev", description="Tools", servers={"calc": entry}, repair_notes=toolbox)
    config = GatewayConfig(path="gateway.json", lock="off", toolboxes={"dev": box})
    return Gateway(config, boards={"calc": sample()})


@pytest.mark.parametrize(
    ("settings", "blocks", "in_meta"),
    [
        ({}, 2, True),
        ({"toolbox": "meta"}, 1, True),
        ({"toolbox": "off", "server": "text"}, 2, True),
        ({"toolbox": "text", "server": "text", "tool": "off"}, 1, False),
    ],
)
async def test_a_gateway_reports_its_repairs_alike(settings: dict[str, Notes], blocks: int, in_meta: bool) -> None:
    result = await call(gateway(**settings), "dev__calc__repeat", word="ab", count="2")
    assert len(result["content"]) == blocks
    assert (WARNINGS in result.get("_meta", {})) is in_meta
