"""Methods find their handlers, and tools their chains."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest
from msgspec import structs

from pegboard import Board, Client
from pegboard.call import Call, Handler, Reply
from pegboard.errors import AccessDenied, InvalidParams, MethodNotFound, ToolError, UnknownTool
from pegboard.testing import make_call


def hello() -> str:
    return "hello"


async def test_discovery_says_what_is_spoken_and_can_be_done() -> None:
    board = Board("named", version="3", instructions="Use wisely.")
    async with Client(board) as client:
        found = await client.discover()
    assert found["supportedVersions"][0] == "2026-07-28"
    assert set(found["supportedVersions"]) >= {"2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"}
    assert "tools" in found["capabilities"]
    assert found["instructions"] == "Use wisely."


async def test_an_unknown_method_is_refused() -> None:
    async with Client(Board()) as client:
        with pytest.raises(MethodNotFound, match="'tools/dance'"):
            await client.request("tools/dance")


async def test_an_unknown_tool_is_refused_with_the_closest_names() -> None:
    board = Board()
    board.add(hello)
    async with Client(board) as client:
        with pytest.raises(UnknownTool, match="did you mean 'hello'") as refused:
            await client.call("helo")
        assert (refused.value.code, refused.value.data) == (-32602, {"suggestions": ["hello"]})
        with pytest.raises(UnknownTool) as refused:
            await client.call("x" * 10_000_000)
    assert len(refused.value.message) < 300


async def test_a_tool_added_or_removed_while_serving_takes_effect_immediately() -> None:
    board = Board()
    async with Client(board) as client:
        with pytest.raises(UnknownTool):
            await client.call("hello")
        board.add(hello)
        assert (await client.call("hello")).text == "hello"
        board.remove("hello")
        with pytest.raises(UnknownTool):
            await client.call("hello")
        board.add(lambda: "another", name="hello")
        assert (await client.call("hello")).text == "another"


async def test_a_call_that_runs_is_not_disturbed_when_its_tool_is_taken_down() -> None:
    board, begun, go = Board(), asyncio.Event(), asyncio.Event()

    @board.tool
    async def wait() -> str:
        begun.set()
        await go.wait()
        return "to the end"

    async with Client(board) as client:
        calling = asyncio.ensure_future(client.call("wait"))
        await begun.wait()
        board.remove("wait")
        go.set()
        assert (await calling).text == "to the end"


async def test_a_cursor_we_did_not_give_is_refused() -> None:
    from msgspec import Raw

    from pegboard.call import Call, Caller, Notification

    class Nowhere:
        async def emit(self, notice: Notification) -> None: ...

    board = Board()
    asked = Call(
        method="tools/list",
        caller=Caller(version="2026-07-28", transport="test"),
        channel=Nowhere(),
        params=Raw(b'{"cursor":"page-2"}'),
    )
    with pytest.raises(InvalidParams, match="cursor"):
        await board.handler(asked)


async def test_a_call_names_the_rule_that_allowed_or_denied_it() -> None:
    rules = [{"who": {"principal": "ann"}, "allow": ["read", "notes://*"], "deny": ["delete", "secret://*"]}]
    board, seen = Board(rules=rules), []

    async def watch(call: Call, proceed: Handler) -> Reply:
        try:
            return await proceed(call)
        finally:
            seen.append(call.notes.facts.get("rule") or call.rule)

    board.use(watch)
    board.add(hello, name="read")
    board.add(hello, name="delete")
    board.resource("notes://list")(hello)
    board.resource("secret://list")(hello)
    asked = (("tools/call", "read"), ("tools/call", "delete"), ("resources/read", "notes://list"))
    for method, name in (*asked, ("resources/read", "secret://list")):
        call = structs.replace(make_call(principal="ann"), method=method, name=name)
        with suppress(AccessDenied, ToolError):
            await board.handler(call)
    assert seen == [
        "rules[0]: allow read",
        "rules[0]: deny delete",
        "rules[0]: allow notes://*",
        "rules[0]: deny secret://*",
    ]
