"""What a server lists: every page of it, what is wrong left out by name, and the same digest for the same things."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from pegboard.errors import InvalidParams, MalformedMessage, MethodNotFound, Refusal
from pegboard.gateway.servers import server_catalog as module
from pegboard.gateway.servers.server_catalog import ServerCatalog, list_server_catalog

pytestmark = pytest.mark.process

ALL = {"tools": {"listChanged": True}, "prompts": {}, "resources": {"subscribe": True}}


class Server:
    """Answers from a table: a list is its pages, or what is raised."""

    def __init__(self, capabilities: Any = ALL, **lists: Any) -> None:
        self.capabilities = capabilities
        self.lists = lists
        self.asked: list[str] = []

    async def ask(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        self.asked.append(method)
        if method == "server/discover":
            meta = {"io.modelcontextprotocol/serverInfo": {"name": "fake"}}
            return {"capabilities": self.capabilities, "instructions": "Be kind.", "_meta": meta}
        member = {"resources/templates/list": "resourceTemplates"}.get(method, method.partition("/")[0])
        pages = self.lists.get(member, [[]])
        if isinstance(pages, Exception):
            raise pages
        number = int(params.get("cursor", "0"))
        if number >= len(pages):
            raise InvalidParams("no such cursor")
        page = pages[number]
        told = page if isinstance(page, dict) else {member: page}
        if number + 1 < len(pages):
            told = {**told, "nextCursor": str(number + 1)}
        return {name: Raw(msgspec.json.encode(value)) for name, value in told.items()}

    async def listed(self, *, mirrors: bool = False) -> ServerCatalog:
        return await list_server_catalog(self.ask, lambda: "2026-07-28", mirrors=lambda: mirrors, name="fake")


def tool(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "inputSchema": {"type": "object"}, **more}


async def test_every_page_is_read_and_definitions_stay_as_they_came() -> None:
    first = tool("a", _meta={"x/y": 1}, unknown=[1, {"deep": None}])
    server = Server(
        tools=[[first], [tool("b")], [tool("c")]],
        prompts=[[{"name": "p", "arguments": [{"name": "code"}]}]],
        resources=[[{"uri": "memo://1", "name": "one"}]],
        resourceTemplates=[[{"uriTemplate": "memo://{x}", "name": "any"}]],
    )
    found = await server.listed()
    assert [one["name"] for one in found.tools] == ["a", "b", "c"]
    assert found.tools[0] == first
    assert [len(kind) for kind in (found.prompts, found.resources, found.templates)] == [1, 1, 1]
    assert (found.info, found.version, found.instructions) == ({"name": "fake"}, "2026-07-28", "Be kind.")
    assert found.dropped == ()
    assert found.announces_changes("tools")
    assert not found.announces_changes("prompts")
    assert found.announces_updates()


async def test_what_a_server_does_not_say_it_has_is_not_asked_for() -> None:
    server = Server({"tools": {}})
    await server.listed()
    assert server.asked == ["server/discover", "tools/list"]


@pytest.mark.parametrize("capabilities", [None, [], "tools"])
async def test_capabilities_that_are_none_are_none(capabilities: Any) -> None:
    server = Server(capabilities)
    assert (await server.listed()).tools == ()


async def test_listing_restarts_only_once_after_an_invalid_cursor() -> None:
    server = Server({"tools": {}}, tools=[{"tools": [tool("a")], "nextCursor": "9"}])
    with pytest.raises(InvalidParams):
        await server.listed()
    assert server.asked.count("tools/list") == 4


async def test_a_list_that_its_server_does_not_know_is_empty_but_for_tools() -> None:
    found = await Server(prompts=MethodNotFound("no"), resourceTemplates=MethodNotFound("no")).listed()
    assert len(found.dropped) == 2
    for problem in (MethodNotFound("no"), Refusal("locked")):
        with pytest.raises(type(problem)):
            await Server(tools=problem).listed()


@pytest.mark.parametrize("page", [{"tools": None}, {"tools": {"a": 1}}, {}])
async def test_an_answer_with_no_list_is_garbled(page: Any) -> None:
    with pytest.raises(MalformedMessage, match="no list of tools"):
        await Server({"tools": {}}, tools=[page]).listed()


@pytest.mark.parametrize(
    ("member", "item"),
    [
        ("tools", tool("")),
        ("tools", tool("a\x00b")),
        ("tools", {"name": "x"}),
        ("tools", {"name": "x", "inputSchema": {"type": "string"}}),
        ("tools", tool("x", outputSchema="any")),
        ("tools", tool("x", annotations=[])),
        ("tools", tool("x", _meta=7)),
        ("prompts", {"name": "x", "arguments": [{"description": "no name"}]}),
        ("prompts", {"title": "no name"}),
        ("resources", {"name": "no uri"}),
        ("resources", {"uri": "memo://a\nb"}),
        ("resourceTemplates", {"uriTemplate": 7}),
        ("tools", 7),
    ],
)
async def test_what_is_malformed_is_left_out_and_named_and_its_siblings_stay(member: str, item: Any) -> None:
    good = {
        "tools": tool("good"),
        "prompts": {"name": "good"},
        "resources": {"uri": "good:1"},
        "resourceTemplates": {"uriTemplate": "good:{x}"},
    }
    found = await Server(**{member: [[item, good[member], item]]}).listed()
    kept = {"tools": found.tools, "prompts": found.prompts, "resources": found.resources}.get(member, found.templates)
    assert kept == (good[member],)
    assert len(found.dropped) == 2
    assert found.dropped[0].startswith(member)


async def test_a_tool_whose_headers_cannot_be_read_is_left_out_where_headers_matter() -> None:
    wrong = tool("wrong")
    wrong["inputSchema"] = {"type": "object", "properties": {"a": {"type": "string", "x-mcp-header": "bad name"}}}
    server = Server({"tools": {}}, tools=[[wrong, tool("right")]])
    assert [one["name"] for one in (await server.listed()).tools] == ["wrong", "right"]
    found = await server.listed(mirrors=True)
    assert [one["name"] for one in found.tools] == ["right"]
    assert "'wrong'" in found.dropped[0]


async def test_too_much_is_cut_and_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_ITEMS", 5)
    many = Server({"tools": {}}, tools=[[tool(f"t{page}{n}") for n in range(3)] for page in range(9)])
    found = await many.listed()
    assert len(found.tools) == 5
    assert many.asked.count("tools/list") == 2
    assert len(found.dropped) == 2
    monkeypatch.setattr(module, "MAX_ITEM_BYTES", 100)
    large = await Server({"tools": {}}, tools=[[tool("large", description="x" * 200), tool("small")]]).listed()
    assert [one["name"] for one in large.tools] == ["small"]
    monkeypatch.setattr(module, "MAX_BYTES", 100)
    assert len((await Server({"tools": {}}, tools=[[tool(f"t{n}") for n in range(5)]]).listed()).tools) == 2


async def test_a_server_that_turns_pages_without_end_is_left_at_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_PAGES", 3)
    endless = Server({"tools": {}}, tools=[[tool(str(n))] for n in range(9)])
    found = await endless.listed()
    assert len(found.tools) == 3
    same = Server({"tools": {}}, tools=[{"tools": [tool("a")], "nextCursor": "0"}])
    assert len((await same.listed()).tools) == 1
    assert same.asked.count("tools/list") == 2


async def test_what_is_left_out_is_named_up_to_a_point() -> None:
    found = await Server({"tools": {}}, tools=[[{"name": f"x{n}"} for n in range(500)]]).listed()
    assert len(found.dropped) == module.MAX_DROPPED + 1
    assert found.dropped[-1] == "and more"


async def test_the_shortest_time_counts_and_one_private_list_makes_all_private() -> None:
    told = [{"tools": [], "ttlMs": 9000, "cacheScope": "public"}]
    found = await Server({"tools": {}}, tools=told).listed()
    assert (found.ttl_ms, found.private) == (9000, False)
    found = await Server(tools=told, prompts=[{"prompts": [], "ttlMs": 500, "cacheScope": "private"}]).listed()
    assert (found.ttl_ms, found.private) == (500, True)
    assert (await Server().listed()).ttl_ms is None


names = st.lists(st.text("abc", min_size=1, max_size=6), min_size=1, max_size=8, unique=True)


@given(names, st.randoms(use_true_random=False))
async def test_the_digest_is_the_same_in_any_order_and_another_for_any_other_thing(
    listed: list[str], dice: random.Random
) -> None:
    tools = [tool(name, description=name) for name in listed]
    shuffled = [dict(reversed(one.items())) for one in dice.sample(tools, len(tools))]
    first = await Server({"tools": {}}, tools=[tools]).listed()
    assert (await Server({"tools": {}}, tools=[shuffled]).listed()).digest == first.digest
    changed = [*tools[:-1], {**tools[-1], "description": tools[-1]["description"] + "!"}]
    assert (await Server({"tools": {}}, tools=[changed]).listed()).digest != first.digest
    assert (await Server({"tools": {}}, tools=[tools[:-1]]).listed()).digest != first.digest
