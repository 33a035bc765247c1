"""Lists are remembered for as long as their server says, and no longer than nothing has changed."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pegboard import Client
from pegboard.client.list_cache import ListCache
from tests.client.fakes import Asked, discovered, faking, initialized, reply, result, stream
from tests.waiting import SOON


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_result_holds_until_its_time_is_over() -> None:
    clock = Clock()
    lists = ListCache(clock)
    lists.keep("tools/list", {}, {"tools": [1], "ttlMs": 1500})
    found = lists.find("tools/list", {})
    assert found == {"tools": [1], "ttlMs": 1500}
    clock.now = 1.49
    assert lists.find("tools/list", {}) is not None
    clock.now = 1.5
    assert lists.find("tools/list", {}) is None


@pytest.mark.parametrize("ttl", [0, -5, None, "60000", True])
def test_what_does_not_say_how_long_it_holds_is_not_kept(ttl: Any) -> None:
    lists = ListCache(Clock())
    lists.keep("tools/list", {}, {"tools": [], "ttlMs": ttl} if ttl is not None else {"tools": []})
    assert lists.find("tools/list", {}) is None


def test_only_cacheable_requests_with_the_same_params_are_found() -> None:
    lists = ListCache(Clock())
    lists.keep("tools/call", {"name": "x"}, {"content": [], "ttlMs": 1000})
    lists.keep("resources/read", {"uri": "a"}, {"contents": [], "ttlMs": 1000})
    assert lists.find("tools/call", {"name": "x"}) is None
    assert lists.find("resources/read", {"uri": "b"}) is None
    assert lists.find("resources/read", {"uri": "a"}) is not None


def test_the_finder_gets_a_copy() -> None:
    lists = ListCache(Clock())
    lists.keep("tools/list", {}, {"tools": [{"name": "a"}], "ttlMs": 1000})
    found: Any = lists.find("tools/list", {})
    found["tools"].clear()
    again: Any = lists.find("tools/list", {})
    assert again["tools"] == [{"name": "a"}]


def test_a_change_makes_stale_what_it_is_about() -> None:
    lists = ListCache(Clock())
    for method in ("tools/list", "prompts/list", "resources/list", "resources/templates/list"):
        lists.keep(method, {}, {"ttlMs": 1000})
        lists.keep(method, {"cursor": "2"}, {"ttlMs": 1000})
    for uri in ("memo://a", "memo://b"):
        lists.keep("resources/read", {"uri": uri}, {"ttlMs": 1000})
    lists.drop("notifications/tools/list_changed")
    assert lists.find("tools/list", {}) is None
    assert lists.find("tools/list", {"cursor": "2"}) is None
    assert lists.find("prompts/list", {}) is not None
    lists.drop("notifications/resources/list_changed")
    assert lists.find("resources/list", {}) is None
    assert lists.find("resources/templates/list", {}) is None
    lists.drop("notifications/resources/updated", "memo://a")
    assert lists.find("resources/read", {"uri": "memo://a"}) is None
    assert lists.find("resources/read", {"uri": "memo://b"}) is not None


def test_what_is_not_public_is_for_those_credentials_alone() -> None:
    lists = ListCache(Clock())
    for scope, method in (("public", "tools/list"), ("private", "prompts/list"), (None, "resources/list")):
        lists.keep(method, {}, {"ttlMs": 1000, "cacheScope": scope}, "ada")
    assert lists.find("tools/list", {}, "bob") is not None
    assert lists.find("prompts/list", {}, "ada") is not None
    assert lists.find("prompts/list", {}, "bob") is None
    assert lists.find("prompts/list", {}, "ada") is None, "what has become somebody else's is not kept for the first"
    assert lists.find("resources/list", {}, "bob") is None


def test_no_more_is_kept_than_there_is_room_for() -> None:
    lists = ListCache(Clock())
    for number in range(1000):
        lists.keep("resources/read", {"uri": str(number)}, {"ttlMs": 1000})
    assert len(lists._kept) == 256
    assert lists.find("resources/read", {"uri": "999"}) is not None


# -- through a client ----------------------------------------------------------------------------------------------


async def test_pages_are_followed_and_kept_each_for_its_time() -> None:
    def answer(asked: Asked, writer: asyncio.StreamWriter) -> None:
        match asked.message["method"], asked.message["params"].get("cursor"):
            case "server/discover", _:
                reply(writer, discovered(asked))
            case _, None:
                reply(writer, result(asked, {"tools": [{"name": "a"}], "nextCursor": "2", "ttlMs": 60_000}))
            case _:
                reply(writer, result(asked, {"tools": [{"name": "b"}], "ttlMs": 0}))

    async with faking(answer) as fake, Client(fake.url) as client:
        for _ in range(3):
            assert [tool["name"] for tool in await client.list_tools()] == ["a", "b"]
        assert fake.methods.count("tools/list") == 4


async def test_an_invalid_cursor_restarts_the_list() -> None:
    asked_for: list[Any] = []

    def answer(asked: Asked, writer: asyncio.StreamWriter) -> None:
        if asked.message["method"] == "server/discover":
            reply(writer, discovered(asked))
            return
        cursor = asked.message["params"].get("cursor")
        asked_for.append(cursor)
        if cursor is None:
            more = {"nextCursor": "old"} if len(asked_for) == 1 else {}
            reply(writer, result(asked, {"tools": [{"name": "a"}], "ttlMs": 60_000, **more}))
        else:
            told = {"jsonrpc": "2.0", "id": asked.message["id"], "error": {"code": -32602, "message": "cursor"}}
            reply(writer, told)

    async with faking(answer) as fake, Client(fake.url) as client:
        assert [tool["name"] for tool in await client.list_tools()] == ["a"]
        assert asked_for == [None, "old", None]


async def test_a_legacy_servers_notice_makes_a_list_stale() -> None:
    told = asyncio.Event()
    listed: list[int] = []

    async def answer(asked: Asked, writer: asyncio.StreamWriter) -> None:
        match asked.method, asked.message.get("method"):
            case "POST", "initialize":
                reply(writer, initialized(asked))
            case "POST", "tools/list":
                listed.append(1)
                reply(writer, result(asked, {"tools": [{"name": str(len(listed))}], "ttlMs": 60_000}))
            case "GET", _:
                stream(writer)
                await told.wait()
                writer.write(b'data: {"jsonrpc":"2.0","method":"notifications/tools/list_changed"}\n\n')
                await writer.drain()
                await asyncio.sleep(30)
            case _:
                reply(writer, b"", "202 Accepted")

    async with faking(answer) as fake, Client(fake.url, version="2025-11-25") as client:
        assert await client.list_tools() == await client.list_tools()
        assert len(listed) == 1
        told.set()
        async with asyncio.timeout(SOON):
            while (await client.list_tools())[0]["name"] == "1":  # noqa: ASYNC110 — nobody tells when it was heard
                await asyncio.sleep(0.01)
        assert len(listed) == 2


@pytest.mark.parametrize("bad", [{}, {"tools": None}, {"tools": {}}, {"tools": [1]}])
async def test_a_list_that_is_none_is_a_clear_error(bad: dict[str, Any]) -> None:
    def answer(asked: Asked, writer: asyncio.StreamWriter) -> None:
        reply(writer, discovered(asked) if asked.message["method"] == "server/discover" else result(asked, bad))

    async with faking(answer) as fake, Client(fake.url) as client:
        with pytest.raises(Exception, match="no list of tools"):
            await client.list_tools()
