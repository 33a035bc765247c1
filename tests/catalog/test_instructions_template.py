"""Instructions with tags, of a board and of a gateway."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pegboard import Board, Client, Gateway
from pegboard.catalog.instructions_template import InstructionsTemplate
from pegboard.errors import DeclarationError, SetupError
from pegboard.testing import FakeServer, MemoryServer, fake_gateway

TEXT = """This is {{name}} {{version}}.
{{tools}}
{{if search_*}}Search first:
{{tools search_*}}
{{end}}{{if delete}}Be careful.{{end}}A brace: \\{{name}}"""


def make_board(instructions: Any = TEXT) -> Board:
    board = Board("shop", version="1.2", instructions=instructions)

    @board.tool
    async def search_articles(text: str) -> str:
        """Finds articles. Takes a text."""
        return text

    @board.tool
    async def order() -> str:
        return "done"

    return board


async def instructions_of(target: Any, **options: Any) -> Any:
    async with Client(target, **options) as client:
        return (await client.discover()).get("instructions")


@pytest.mark.parametrize("version", ["2026-07-28", "2025-11-25"])
async def test_tags_are_replaced_by_what_the_board_has(version: str) -> None:
    assert await instructions_of(MemoryServer(make_board()), version=version) == (
        "This is shop 1.2.\n- search_articles: Finds articles.\n- order: Order\n"
        "Search first:\n- search_articles: Finds articles.\nA brace: {{name}}"
    )


async def test_a_tool_that_is_added_or_removed_changes_the_text() -> None:
    board = make_board("{{if delete}}Be careful.{{end}}{{if order}}Order.{{end}}")
    assert await instructions_of(board) == "Order."
    board.add(lambda: "gone", name="delete")
    board.remove("order")
    assert await instructions_of(board) == "Be careful."


async def test_a_caller_reads_only_of_tools_that_it_sees() -> None:
    board = Board("shop", instructions="{{tools}}", rules=[{"who": "*", "allow": ["*"], "hide": ["delete"]}])
    board.add(lambda: "gone", name="delete")
    board.add(lambda: "here", name="read")
    assert await instructions_of(board) == "- read: Read"


async def test_a_text_without_tags_stays_as_it_is_and_a_file_is_read(tmp_path: Path) -> None:
    assert await instructions_of(make_board("Plain {text}.")) == "Plain {text}."
    assert await instructions_of(make_board(None)) is None
    file = tmp_path / "instructions.md"
    file.write_text("From {{name}}.")
    board = make_board(file)
    assert await instructions_of(board) == "From shop."
    board.set_instructions("Changed.")
    assert await instructions_of(board) == "Changed."


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{{nam}}", "instructions: unknown tag {{nam}}; did you mean {{name}}?"),
        ("{{name x}}", "instructions: unknown tag {{name x}}"),
        ("{{}}", "instructions: unknown tag {{}}; use name, version, tools, if, end"),
        ("{{if}}a{{end}}", "instructions: {{if}} needs the name of a tool, as in {{if search}}"),
        ("{{if a}}", "instructions: an {{if}} has no {{end}}"),
        ("{{end}}", "instructions: {{end}} is out of place: {{if}} and {{end}} alternate"),
        ("{{if a}}{{if b}}{{end}}", "instructions: {{if b}} is out of place"),
        (Path("missing.md"), "instructions: missing.md cannot be read: No such file or directory"),
    ],
)
def test_a_wrong_tag_or_file_is_rejected_when_the_board_is_made(text: Any, problem: str) -> None:
    with pytest.raises(DeclarationError) as caught:
        Board(instructions=text)
    assert str(caught.value).startswith(problem)


def test_a_long_list_and_a_long_sentence_are_shortened() -> None:
    tools = [{"name": f"tool{number}", "description": "word " * 100} for number in range(250)]
    lines = InstructionsTemplate("{{tools}}", ()).render(tools, {}).splitlines()
    assert len(lines) == 201
    assert lines[-1] == "- and 50 more"
    assert max(map(len, lines)) < 200


# A gateway.


def write(folder: Path, instructions: Any) -> Path:
    servers = {"shop": {"command": "not-started"}}
    tree = {"instructions": instructions, "toolboxes": {"main": {"description": "A shop", "mcpServers": servers}}}
    (folder / "pegboard.json").write_text(json.dumps(tree))
    return folder / "pegboard.json"


async def test_a_gateway_file_has_instructions_with_the_toolboxes_and_tools(tmp_path: Path) -> None:
    (tmp_path / "instructions.md").write_text(
        "Hello.\n{{toolboxes}}\n{{if main__shop__*}}Shop:\n{{tools *__order}}{{end}}"
    )
    fake = FakeServer("shop", {"order": "done", "search": "found"})
    gateway = fake_gateway(write(tmp_path, {"file": "instructions.md"}), {"shop": fake}, environ={})
    async with Client(gateway) as client:
        await client.list_tools()
        text = (await client.discover())["instructions"]
    assert text == (
        "Hello.\nAvailable Toolboxes:\n\nmain (1 server)\n  Description: A shop\nShop:\n"
        "- main__shop__order: [main/shop] A fake of order."
    )


@pytest.mark.parametrize(
    ("instructions", "problem"),
    [
        ("{{toolbox}}", "instructions (line 1): unknown tag {{toolbox}}; did you mean {{toolboxes}}?"),
        ({"file": "missing.md"}, "missing.md cannot be read: No such file or directory"),
        ({"text": "a", "file": "b"}, "instructions (line 1): got an object, expected either 'text' or 'file'"),
        (5, "instructions (line 1): got 5, expected a string or an object that describes instructions"),
    ],
)
def test_wrong_instructions_of_a_gateway_are_reported_with_their_place(
    tmp_path: Path, instructions: Any, problem: str
) -> None:
    with pytest.raises(SetupError) as caught:
        Gateway(write(tmp_path, instructions))
    assert problem in str(caught.value)


async def test_the_type_of_an_argument_can_be_overridden(tmp_path: Path) -> None:
    fake = FakeServer("shop")
    schema = {"type": "object", "properties": {"count": {"description": "How many"}, "size": {"type": "string"}}}
    fake.answer("order", lambda arguments: arguments, {"inputSchema": schema})
    overrides = {
        "count": {"schema": {"type": "integer", "maximum": 9}},
        "size": {"schema": {"enum": ["s", "l"]}, "name": "fit"},
    }
    servers = {"shop": {"command": "not-started", "tools": {"order": {"arguments": overrides}}}}
    file = tmp_path / "pegboard.json"
    file.write_text(json.dumps({"toolboxes": {"main": {"description": "x", "mcpServers": servers}}}))
    async with Client(fake_gateway(file, {"shop": fake}, environ={})) as client:
        (tool,) = await client.list_tools()
        assert tool["inputSchema"]["properties"] == {
            "count": {"description": "How many", "type": "integer", "maximum": 9},
            "fit": {"type": "string", "enum": ["s", "l"]},
        }
        await client.call("main__shop__order", {"count": "5", "fit": "s"})
        refused = await client.call("main__shop__order", {"count": 10})
    assert fake.calls[0].arguments == {"count": 5, "size": "s"}
    assert refused.is_error
    assert len(fake.calls) == 1
