"""Tools made of other tools: other names, texts and arguments; and tools that are enabled and disabled at run time."""

from __future__ import annotations

from typing import Any

import pytest

from pegboard import Board, Client, Context, InvalidParams, Tool
from pegboard.errors import DeclarationError
from pegboard.middleware import Call, Handler, Reply


def make_board() -> Board:
    board = Board("transforms")

    @board.tool(tags={"maps"}, annotations={"readOnlyHint": True})
    async def distance(start: str, end: str, unit: str, limit: int = 10) -> dict[str, Any]:
        """Measures a distance."""
        return {"start": start, "end": end, "unit": unit, "limit": limit}

    @board.tool(category="danger", tags={"admin"})
    def erase() -> str:
        return "erased"

    return board


def tool_of(board: Board, name: str) -> Tool:
    found = board.tools.get(name)
    assert found is not None
    return found


async def test_a_tool_is_offered_again_with_other_names_texts_and_arguments() -> None:
    board = make_board()
    arguments: dict[str, dict[str, Any]] = {
        "start": {"name": "origin", "description": "Where it begins."},
        "unit": {"value": "km"},
        "limit": {"default": 3},
        "end": {"schema": {"enum": ["Rome", "Oslo"]}},
    }
    original = tool_of(board, "distance")
    board.add(
        original.transformed(
            name="kilometres", title="Kilometres", description="In km.", tags={"metric"}, arguments=arguments
        )
    )
    async with Client(board) as client:
        shown = {tool["name"]: tool for tool in await client.list_tools()}
        assert (shown["kilometres"]["title"], shown["kilometres"]["description"]) == ("Kilometres", "In km.")
        properties = shown["kilometres"]["inputSchema"]["properties"]
        assert list(properties) == ["origin", "end", "limit"]
        assert properties["origin"]["description"] == "Where it begins."
        assert properties["limit"]["default"] == 3
        assert shown["kilometres"]["annotations"] == {"readOnlyHint": True}
        assert list(shown["distance"]["inputSchema"]["properties"]) == ["start", "end", "unit", "limit"]
        made = await client.call("kilometres", {"origin": "Bonn", "end": "Rome"})
        assert made.structured == {"start": "Bonn", "end": "Rome", "unit": "km", "limit": 3}
        for wrong in ({"unit": "mi"}, {"start": "Kiel"}):
            refused = await client.call("kilometres", {"origin": "Bonn", "end": "Rome", **wrong})
            assert refused.is_error
        assert (await client.call("kilometres", {"origin": "Bonn", "end": "Paris"})).is_error


async def test_a_tool_can_be_replaced_and_transformed_twice() -> None:
    board = make_board()
    board.add(board.remove("distance").transformed(description="New.", arguments={"unit": {"value": "km"}}))
    board.add(tool_of(board, "distance").transformed(name="to_rome", arguments={"end": {"value": "Rome"}}))
    async with Client(board) as client:
        assert [tool["name"] for tool in await client.list_tools()] == ["erase", "distance", "to_rome"]
        made = await client.call("to_rome", {"start": "Bonn"})
        assert made.structured == {"start": "Bonn", "end": "Rome", "unit": "km", "limit": 10}


async def test_calls_can_be_wrapped_and_hooks_see_the_arguments_of_the_caller() -> None:
    board = make_board()
    seen: list[Any] = []

    async def around(call: Call, following: Handler) -> Reply:
        reply = await following(call)
        assert call.parsed is not None
        seen.append((call.name, dict(call.parsed.arguments)))
        return reply

    transformed = tool_of(board, "distance").transformed(
        name="wrapped", around=around, arguments={"unit": {"value": "secret"}, "start": {"name": "origin"}}
    )
    board.add(transformed)
    async with Client(board) as client:
        await client.call("wrapped", {"origin": "Bonn", "end": "Rome"})
        await client.call("distance", {"start": "a", "end": "b", "unit": "c"})
    assert seen == [("wrapped", {"origin": "Bonn", "end": "Rome"})]


async def test_a_mounted_tool_can_be_transformed() -> None:
    outer = Board("outer")
    outer.mount(make_board(), "geo")
    outer.add(tool_of(outer, "geo.distance").transformed(name="far", arguments={"unit": {"value": "km"}}))
    async with Client(outer) as client:
        made = await client.call("far", {"start": "a", "end": "b"})
        assert made.structured == {"start": "a", "end": "b", "unit": "km", "limit": 10}


async def test_a_transformed_tool_asks_its_caller() -> None:
    board = Board("asking")

    @board.tool
    async def sure(what: str, ctx: Context) -> str:
        return f"{what} {await ctx.elicit('Sure?', bool)}"

    board.add(tool_of(board, "sure").transformed(name="fixed", arguments={"what": {"value": "it"}}))
    async with Client(board, elicit=lambda _: {"value": True}) as client:
        assert (await client.call("fixed")).text.startswith("it Accepted")


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"strat": {"value": 1}}, "has no argument 'strat'; did you mean 'start'?"),
        ({"start": {"vale": 1}}, r"arguments\['start'\] has no key 'vale'; did you mean 'value'?"),
        ({"start": {"fixed": 1}}, "has no key 'fixed'; use name, description, hidden, value, default, schema"),
        ({"start": {"hidden": True}}, "requires 'start', which would be hidden; give it a value or a default"),
        ({"start": {"name": "end"}}, "two arguments of one name"),
        ({"start": {"schema": {"type": "nothing"}}}, "schema"),
    ],
)
def test_wrong_changes_are_rejected(arguments: Any, problem: str) -> None:
    with pytest.raises(DeclarationError, match=problem.replace("?", r"\?")):
        tool_of(make_board(), "distance").transformed(name="x", arguments=arguments)


async def test_tools_are_disabled_and_enabled_by_name_tag_and_category() -> None:
    board = make_board()
    async with Client(board) as client:
        seen = board.changes.last
        board.disable(tags={"admin"})
        assert [tool["name"] for tool in await client.list_tools()] == ["distance"]
        assert [change.kind for _, change in board.changes.read(seen)] == ["tools"]
        with pytest.raises(InvalidParams, match="Unknown tool: 'erase'"):
            await client.call("erase")
        # Those that are added later, too.
        board.add(lambda: 1, name="grant", tags={"admin"})
        assert len(await client.list_tools()) == 1
        board.enable("grant")
        assert [tool["name"] for tool in await client.list_tools()] == ["distance", "grant"]
        board.enable(category="danger")
        assert (await client.call("erase")).text == "erased"
        assert [tool["name"] for tool in await client.list_tools()] == ["distance", "erase", "grant"]


async def test_a_disabled_tool_keeps_its_name_and_its_scopes() -> None:
    board = make_board()
    board.disable(tags={"secret"})

    @board.tool(tags={"secret"}, scopes={"vault.read"})
    def vault() -> str:
        return "gold"

    with pytest.raises(DeclarationError, match="the tool name 'vault' is taken"):
        board.add(lambda: 1, name="vault")
    board.enable("vault")
    async with Client(board) as client:
        assert "vault" not in (await client.call("erase")).text
    assert board._access.restricted
    assert board.remove("vault").name == "vault"


async def test_disabling_in_a_mounted_board_or_of_a_mounted_tool_holds_outside() -> None:
    inner, outer = make_board(), Board("outer")
    outer.mount(inner, "geo")
    inner.disable("erase")
    async with Client(outer) as client:
        assert [tool["name"] for tool in await client.list_tools()] == ["geo.distance"]
        outer.disable(tags={"maps"})
        assert await client.list_tools() == []
        inner.enable("erase")
        assert [tool["name"] for tool in await client.list_tools()] == ["geo.erase"]


def test_wrong_selections_are_rejected() -> None:
    board = make_board()
    with pytest.raises(InvalidParams, match="Unknown tool: 'erse', did you mean 'erase'"):
        board.disable("erse")
    with pytest.raises(DeclarationError, match="name what to switch"):
        board.disable()
    with pytest.raises(DeclarationError, match="use a set of texts"):
        board.enable(tags="admin")
