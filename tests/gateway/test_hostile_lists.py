"""Lists of a server that are made to harm the other servers of a gateway, or whoever lists them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from pegboard import Client, Gateway
from pegboard.config.config_keys import ToolOverride as Override
from pegboard.config.gateway_config import ServerConfig
from pegboard.gateway.offers import MAX_NOTES
from pegboard.tools.argument_mapping import ArgumentOverride
from tests.client.fakes import script
from tests.client.process_leftovers import nothing_left
from tests.gateway.test_gateway import calculator, configured, server
from tests.stalls import no_stalls, sending  # noqa: F401 — it is on for every test here

pytestmark = pytest.mark.process

LISTS = """
shake_hands_with({'tools': {'listChanged': True}})
generation = 0
while True:
    asked = read()
    if asked.get('method') == 'tools/list':
        generation += 1
        result(asked, {'tools': tools(generation)})
    elif asked.get('method') == 'tools/call':
        text(asked, asked['params']['name'])
    elif 'id' in asked:
        result(asked, {})
"""

SHAKE = """
def shake_hands_with(capabilities):
    asked = read()
    while asked['method'] != 'initialize':
        refuse(asked); asked = read()
    result(asked, {'protocolVersion': '2025-11-25', 'capabilities': capabilities, 'serverInfo': {'name': 'f', 'version': '1'}})
    read()
"""


def listing(definitions: str, **options: Any) -> ServerConfig:
    """A server whose tools these lines of Python define: a function `tools(generation)`."""
    command = tuple(script(SHAKE + definitions + LISTS))
    return ServerConfig(**{"name": "bad", "kind": "stdio", "command": command, **options})


def fixed(*tools: dict[str, Any]) -> str:
    return f"def tools(generation): return {list(tools)!r}\n"


@asynccontextmanager
async def beside(*servers: ServerConfig, **options: Any) -> AsyncIterator[tuple[Gateway, Client]]:
    """A gateway over these servers and a good one, which connects last, and a client of it."""
    made = Gateway(configured(*servers, server("calc", lazy=True), **options), boards={"calc": calculator()})
    async with nothing_left(), Client(made) as client:
        await made.wait_connected()
        yield made, client


async def names(client: Client) -> Sequence[str]:
    return [tool["name"] for tool in await client.list_tools()]


@pytest.mark.parametrize("required", [5, "a", {"a": 1}, None, [[]]])
async def test_a_schema_with_an_invalid_required_does_not_hide_the_tools_of_other_servers(required: Any) -> None:
    definition = {"name": "t", "inputSchema": {"type": "object", "properties": {"a": {}}, "required": required}}
    override = Override(arguments={"a": ArgumentOverride(hidden=True, value=1)})
    async with beside(listing(fixed(definition), tools={"t": override})) as (_, client):
        assert "dev__calc__add" in await names(client)
        assert (await client.call("dev__calc__add", {"a": 1, "b": 1})).text == "2"


@pytest.mark.parametrize("order", [("erase", "safe"), ("safe", "erase")])
async def test_a_tool_named_as_an_operator_renamed_another_is_left_out(
    order: tuple[str, ...], caplog: pytest.LogCaptureFixture
) -> None:
    definitions = [{"name": name, "inputSchema": {"type": "object"}} for name in order]
    config = listing(fixed(*definitions), tools={"erase": Override(name="safe")})
    async with beside(config) as (_, client):
        assert (await names(client)).count("dev__bad__safe") == 1
        assert (await client.call("dev__bad__safe")).text == "erase"
    assert "'safe'" in caplog.text


MANY = """
def tools(generation):
    return [{'name': f't{number}', 'inputSchema': {'type': 'object', 'properties': {'a': {'type': %s}}}}
            for number in range(2000)]
"""


@sending(200_000)
@pytest.mark.parametrize("kind", ["'string'", "f'none{number}'"], ids=["good", "bad"])
async def test_thousands_of_tools_do_not_hold_the_event_loop(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    async with beside(listing(MANY % kind)) as (_, client):
        shown = await names(client)
        assert len(shown) == (2002 if kind == "'string'" else 2)
    assert len([one for one in caplog.records if "left out" in one.getMessage()]) <= MAX_NOTES
