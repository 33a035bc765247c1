"""The catalog of tools: exact lookup, suggestions, changes at run time, export."""

from __future__ import annotations

from typing import Any

import pytest
from examples.styles import board as styles
from pydantic import TypeAdapter

from pegboard import Board, Context, Parameter, Tool, ToolCatalog, ToolExecutionContext
from pegboard.errors import DeclarationError, UnknownTool
from pegboard.providers import FORMATS


class Search(Tool):
    name, description = "memory.search", "Finds notes."
    parameters = (Parameter("query"),)

    async def execute(self, context: ToolExecutionContext, ctx: Context) -> str:
        return "found"


def add(a: int, b: int) -> int:
    """Adds."""
    return a + b


def catalog() -> ToolCatalog:
    return ToolCatalog([Search(), add])


def test_tools_are_found_by_exact_name_and_iterated_in_registration_order() -> None:
    tools = catalog()
    assert [tool.name for tool in tools] == ["memory.search", "add"]
    assert len(tools) == 2
    assert "add" in tools
    assert "Add" not in tools
    assert tools.get("Add") is None
    assert tools.find("add").title == "Add"


def test_a_name_that_is_not_there_is_refused_with_what_was_probably_meant() -> None:
    with pytest.raises(UnknownTool, match=r"Unknown tool: 'Memory\.Serch', did you mean 'memory\.search'\?") as refused:
        catalog().find("Memory.Serch")
    assert refused.value.data == {"suggestions": ["memory.search"]}


@pytest.mark.parametrize("name", ["add", "Add", "ADD"])
def test_a_name_that_is_taken_or_nearly_so_is_refused_with_both_places(name: str) -> None:
    tools = catalog()
    other = Search()
    other.name = name
    with pytest.raises(DeclarationError, match=r"test_tool_catalog\.py:\d+.*test_tool_catalog\.py:\d+"):
        tools.add(other)


def test_what_is_taken_down_is_gone_and_its_name_free() -> None:
    tools = catalog()
    tools.remove("add")
    assert "add" not in tools
    tools.add(add)
    with pytest.raises(UnknownTool):
        tools.remove("nothing")


def test_every_change_is_notified_and_rebuilds_the_list() -> None:
    tools, told = catalog(), list[int]()
    tools._watch(lambda: told.append(len(tools)))
    before = tools.listing()
    assert tools.listing() is before
    tools.remove("add")
    tools.add(add)
    assert told == [1, 2]
    assert tools.listing() is not before


@pytest.mark.parametrize("form", sorted(FORMATS))
def test_a_catalog_and_a_board_export_the_same(form: str) -> None:
    board = Board()
    board.add(Search())
    board.add(add)
    assert board.export(form) == catalog().export(form)


def test_markdown_is_text_and_names_every_tool() -> None:
    text = catalog().export("markdown")
    assert isinstance(text, str)
    assert "memory.search" in text
    assert "query" in text


def test_a_format_that_is_not_there_names_those_that_are() -> None:
    with pytest.raises(LookupError, match="unknown format 'openia'; use one of openai, "):
        catalog().export("openia")


def test_descriptions_are_cut_to_a_budget_on_request() -> None:
    tool = Search()
    tool.description = "Finds notes. " * 40
    [definition] = ToolCatalog([tool]).export("anthropic", description_tokens=20)
    assert isinstance(definition, dict)
    assert len(definition["description"]) <= 71


@pytest.mark.peer
@pytest.mark.parametrize("strict", [True, False])
def test_openai_takes_what_a_board_exports(strict: bool) -> None:
    import openai.types.chat
    import openai.types.responses

    for form, judge in (
        ("openai", TypeAdapter(list[openai.types.chat.ChatCompletionToolParam])),
        ("openai-responses", TypeAdapter(list[openai.types.responses.FunctionToolParam])),
    ):
        exported: Any = styles.export(form, strict=strict)
        assert len(exported) == len(styles.tools)
        assert judge.validate_python(exported, strict=True) == exported


@pytest.mark.peer
def test_anthropic_takes_what_a_board_exports() -> None:
    import anthropic.types

    exported: Any = styles.export("anthropic")
    assert TypeAdapter(list[anthropic.types.ToolParam]).validate_python(exported, strict=True) == exported
