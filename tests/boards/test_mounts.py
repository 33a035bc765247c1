"""Boards in boards: what is mounted is served under a prefix and follows the board that it comes from."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Literal

import pytest

from pegboard import Board, Client, Context, InvalidParams, Link, Middleware, Tool, ToolExecutionContext, ToolResult
from pegboard.errors import AccessDenied, DeclarationError, SetupError
from pegboard.middleware import Call
from pegboard.testing import fixed_tokens
from tests.waiting import SOON


class Pool:
    """A service of the inner board."""

    def __init__(self, name: str) -> None:
        self.name = name


class Noting(Middleware):
    """Notes the calls that it sees."""

    def __init__(self, name: str, events: list[str]) -> None:
        self._name = name
        self._events = events

    async def before(self, call: Call) -> None:
        self._events.append(f"{self._name}: {call.name}")


def notes() -> Board:
    board = Board("notes")
    texts = {"milk": "buy milk"}
    board.services.value(Pool, Pool("of notes"))

    @board.tool
    async def which(pool: Pool) -> str:
        """Names the pool."""
        return pool.name

    @board.tool
    async def find(name: str) -> Link:
        return Link(f"notes://{name}", name=name)

    @board.tool
    async def sure(ctx: Context) -> str:
        return str(await ctx.elicit("Sure?", bool))

    @board.tool
    async def change(name: str, ctx: Context) -> None:
        await ctx.resource_changed(f"notes://{name}")

    @board.resource("notes://{name}")
    async def note(name: str) -> str | None:
        return texts.get(name)

    @board.resource("notes://all")
    async def everything() -> str:
        return ", ".join(texts)

    @board.prompt
    async def review(tone: Literal["kind", "strict"]) -> str:
        return f"Review in a {tone} tone."

    @board.complete("notes://{name}", "name")
    def names(typed: str) -> list[str]:
        return [name for name in texts if name.startswith(typed)]

    return board


def office(prefix: str = "notes") -> tuple[Board, Board]:
    inner, outer = notes(), Board("office")

    @outer.tool
    async def add(a: int, b: int) -> int:
        return a + b

    outer.mount(inner, prefix)
    return inner, outer


async def test_everything_appears_under_the_prefix_and_works() -> None:
    _, outer = office()
    async with Client(outer, elicit=lambda _: {"value": True}) as client:
        names = [tool["name"] for tool in await client.list_tools()]
        assert names == ["add", "notes.which", "notes.find", "notes.sure", "notes.change"]
        assert (await client.call("notes.which")).text == "of notes"
        assert (await client.call("add", {"a": 1, "b": "2"})).text == "3"
        assert "True" in (await client.call("notes.sure")).text
        assert [resource["uri"] for resource in await client.list_resources()] == ["notes://notes/all"]
        assert [made["uriTemplate"] for made in await client.list_templates()] == ["notes://notes/{name}"]
        (read,) = await client.read("notes://notes/milk")
        assert (read["uri"], read["text"]) == ("notes://notes/milk", "buy milk")
        (prompt,) = await client.list_prompts()
        assert prompt["name"] == "notes.review"
        got = await client.prompt("notes.review", {"tone": "kind"})
        assert got[0]["content"]["text"] == "Review in a kind tone."
        with pytest.raises(InvalidParams, match="Unknown prompt: 'review'"):
            await client.prompt("review", {"tone": "kind"})


async def test_links_in_results_lead_to_the_outer_resource() -> None:
    _, outer = office()
    async with Client(outer) as client:
        (link,) = (await client.call("notes.find", {"name": "milk"})).content
        assert link["uri"] == "notes://notes/milk"
        assert (await client.read(link["uri"]))[0]["text"] == "buy milk"


async def test_completions_are_those_of_the_inner_board() -> None:
    _, outer = office()
    async with Client(outer) as client:
        ref: dict[str, Any] = {"type": "ref/resource", "uri": "notes://notes/{name}"}
        found = await client.request("completion/complete", {"ref": ref, "argument": {"name": "name", "value": "m"}})
        assert found["completion"]["values"] == ["milk"]
        ref = {"type": "ref/prompt", "name": "notes.review"}
        found = await client.request("completion/complete", {"ref": ref, "argument": {"name": "tone", "value": "k"}})
        assert found["completion"]["values"] == ["kind"]


async def test_names_stay_as_they_are_without_a_prefix() -> None:
    _, outer = office("")
    async with Client(outer) as client:
        assert (await client.call("which")).text == "of notes"
        assert (await client.read("notes://milk"))[0]["uri"] == "notes://milk"


async def test_later_changes_are_followed_and_told() -> None:
    inner, outer = office()
    async with Client(outer) as client:
        seen = outer.changes.last
        inner.add(lambda: "late", name="late")
        assert (await client.call("notes.late")).text == "late"
        inner.remove("which")
        with pytest.raises(InvalidParams, match=r"Unknown tool: 'notes\.which'"):
            await client.call("notes.which")
        inner.prompts.remove("review")
        inner.resources.remove("notes://all")
        assert await client.list_prompts() == []
        assert await client.list_resources() == []
        kinds = {change.kind for _, change in outer.changes.read(seen)}
        assert kinds == {"tools", "prompts", "resources"}


async def test_a_changed_resource_is_told_under_its_outer_uri() -> None:
    _, outer = office()
    async with Client(outer) as client:
        seen = outer.changes.last
        await client.call("notes.change", {"name": "milk"})
        assert [(change.kind, change.uri) for _, change in outer.changes.read(seen)] == [
            ("updated", "notes://notes/milk")
        ]


async def test_middleware_of_both_boards_applies_the_outer_one_outside() -> None:
    inner, outer = office()
    events: list[str] = []
    inner.use(Noting("inner", events), tool="which")
    outer.use(Noting("outer", events), group="notes")
    async with Client(outer) as client:
        await client.call("notes.which")
        assert events == ["outer: notes.which", "inner: notes.which"]
        events.clear()
        # Added while it runs.
        inner.use(Noting("late", events))
        await client.call("notes.which")
        await client.prompt("notes.review", {"tone": "kind"})
        await client.call("add", {"a": 1, "b": 1})
    assert events == [
        "outer: notes.which",
        "late: notes.which",
        "inner: notes.which",
        "outer: notes.review",
        "late: review",
    ]


async def test_lifespans_and_tools_of_mounted_boards_start_once_and_stop_in_reverse() -> None:
    events: list[str] = []

    def recording(name: str) -> Board:
        board = Board(name)

        @board.lifespan
        async def open_it() -> AsyncIterator[dict[str, str]]:
            events.append(f"{name} opened")
            yield {"name": name}
            events.append(f"{name} closed")

        @board.tool
        async def opened(ctx: Context) -> str:
            return str(ctx.lifespan["name"])

        return board

    class Started(Tool):
        name, description = "started", "Starts."

        async def start(self) -> None:
            events.append("tool started")

        def execute(self, _context: ToolExecutionContext) -> ToolResult:
            return ToolResult("started")

    outer, middle, inner = recording("outer"), recording("middle"), recording("inner")
    inner.add(Started())
    middle.mount(inner, "in")
    outer.mount(middle, "mid")
    async with Client(outer) as client:
        assert events == ["outer opened", "middle opened", "inner opened", "tool started"]
        assert (await client.call("mid.in.opened")).text == "inner"
        assert (await client.call("mid.opened")).text == "middle"
        assert (await client.call("mid.in.started")).text == "started"
    assert events[4:] == ["inner closed", "middle closed", "outer closed"]


async def test_a_mounted_board_that_cannot_start_closes_the_others() -> None:
    events: list[str] = []
    outer, good, bad = Board("outer"), Board("good"), Board("bad")

    @good.lifespan
    async def open_it() -> AsyncIterator[None]:
        yield
        events.append("closed")

    @bad.lifespan
    async def fail() -> AsyncIterator[None]:
        raise OSError("no disk")
        yield

    outer.mount(good, "good")
    outer.mount(bad, "bad")
    with pytest.raises(SetupError, match="the lifespan fail failed: OSError: no disk"):
        async with Client(outer):
            pass
    assert events == ["closed"]


async def test_files_of_a_mounted_board_are_listed_and_read(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("alpha")
    inner, outer = Board("files"), Board("outer")
    inner.files("docs://", tmp_path)
    outer.mount(inner, "lib")
    async with Client(outer) as client:
        assert [resource["uri"] for resource in await client.list_resources()] == ["docs://lib/a.txt"]
        assert (await client.read("docs://lib/a.txt"))[0]["text"] == "alpha"


async def test_the_rules_of_the_outer_board_know_outer_names() -> None:
    rules = [
        {"who": "*", "deny": ["notes.which", "notes://notes/*", "notes.review"]},
        {"who": "*", "allow": ["*"]},
    ]
    outer = Board("office", rules=rules)
    outer.mount(notes(), "notes")
    async with Client(outer) as client:
        assert "denied" in (await client.call("notes.which")).text
        assert not (await client.call("notes.find", {"name": "milk"})).is_error
        with pytest.raises(AccessDenied):
            await client.read("notes://notes/milk")
        with pytest.raises(AccessDenied):
            await client.prompt("notes.review", {"tone": "kind"})


def test_collisions_and_cycles_say_what_to_do() -> None:
    inner, outer = office("")
    with pytest.raises(DeclarationError, match=r"'office' already has the tool 'which', .*; mount it with a prefix"):
        outer.mount(notes())
    with pytest.raises(DeclarationError, match="mount it with a prefix, or rename one of them"):
        inner.add(lambda: 1, name="add")
    assert inner.tools.get("add") is None
    with pytest.raises(DeclarationError, match="'notes' cannot contain itself, which 'office' would lead to"):
        inner.mount(outer, "x")
    with pytest.raises(DeclarationError, match="cannot contain itself"):
        outer.mount(outer, "x")
    with pytest.raises(DeclarationError, match="contains ' '"):
        outer.mount(Board("b"), "a b")


def test_a_board_with_rules_or_auth_of_its_own_is_rejected() -> None:
    outer = Board("outer")
    with pytest.raises(DeclarationError, match="'ruled' has rules, which would not apply here; give them to 'outer'"):
        outer.mount(Board("ruled", rules=[{"who": "*", "deny": ["*"]}]))
    with pytest.raises(DeclarationError, match="has auth"):
        outer.mount(Board("closed", auth=fixed_tokens({})))


async def test_a_running_board_rejects_a_mount() -> None:
    outer = Board("outer")
    async with asyncio.timeout(SOON), Client(outer):
        with pytest.raises(DeclarationError, match="mount boards before it starts"):
            outer.mount(notes(), "late")


def test_something_else_than_a_board_cannot_be_mounted() -> None:
    with pytest.raises(DeclarationError, match=r"mount: expected a Board, got 'tools'; use board\.mount\(other"):
        Board("main").mount("tools")  # type: ignore[arg-type]  # the mistake
