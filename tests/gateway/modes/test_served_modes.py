"""Modes and meta-tools as clients of a gateway meet them, in both eras and over real doors."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from pegboard import Accepted, Board, Client, Context
from pegboard.call import Caller
from pegboard.config.gateway_config import GatewayConfig, ServerConfig, ToolboxConfig
from pegboard.gateway.gateway import Gateway
from pegboard.gateway.modes.meta_tool_definitions import CLOSE, LIST, OPEN, SEARCH, USE
from pegboard.gateway.modes.meta_tool_host import Mode
from pegboard.gateway.modes.opened_toolboxes import OpenedToolboxes
from pegboard.testing import Recorder
from tests.server.stream_client import serve
from tests.waiting import until

LEGACY = "2025-11-25"
META = [LIST, OPEN, SEARCH, USE]
SUM = {"tool_name": "dev__calc__add", "arguments": {"a": 2, "b": 3}}


def boards() -> dict[str, Board]:
    calc, ops = Board("calc"), Board("ops")

    @calc.tool(annotations={"readOnlyHint": True})
    async def add(a: int, b: int) -> int:
        """Adds two numbers."""
        return a + b

    @ops.tool
    async def roll_out(service: str, ctx: Context) -> str:
        """Rolls out a service, after asking."""
        answer = await ctx.elicit(f"Roll out {service}?", bool, key="sure")
        return f"rolled out {service}" if isinstance(answer, Accepted) and answer.content else "left alone"

    return {"calc": calc, "ops": ops}


def gateway(mode: Mode = "proxy", *, lazy: bool = False, made: dict[str, Board] | None = None) -> Gateway:
    def toolbox(name: str, server: str, about: str) -> ToolboxConfig:
        entry = ServerConfig(name=server, kind="board", board=server, lazy=lazy)
        return ToolboxConfig(name=name, description=about, servers={server: entry})

    config = GatewayConfig(
        path="gateway.json",
        mode=mode,
        lock="off",
        toolboxes={"dev": toolbox("dev", "calc", "Sums"), "live": toolbox("live", "ops", "Deployments")},
    )
    return Gateway(config, boards=made or boards())


@asynccontextmanager
async def legacy(served: Gateway, **options: Any) -> AsyncIterator[Client]:
    """A client with a session, over HTTP."""
    await served.start()
    try:
        async with await serve(served) as house:
            url = f"http://127.0.0.1:{house.server.port}/mcp"
            async with Client(url, version=LEGACY, **options) as client:
                yield client
    finally:
        await served.stop()


async def names(client: Client) -> list[str]:
    return [tool["name"] for tool in (await client.request("tools/list"))["tools"]]


@pytest.mark.parametrize(
    ("mode", "listed"), [("all", ["dev__calc__add", "live__ops__roll_out"]), ("proxy", META), ("dynamic", META)]
)
async def test_a_modern_client_is_listed_by_the_mode_and_can_use_everything(mode: Mode, listed: list[str]) -> None:
    async with Client(gateway(mode)) as client:
        assert await names(client) == listed
        assert (await client.call(USE, SUM)).text == "5"
        assert (await client.call("dev__calc__add", {"a": 2, "b": 3})).text == "5"


@pytest.mark.parametrize("mode", ["all", "proxy", "dynamic"])
async def test_a_misspelt_plain_name_is_corrected_also_while_its_server_connects(mode: Mode) -> None:
    entry = ServerConfig(name="calc", kind="board", board="calc")
    toolbox = ToolboxConfig(name="dev", description="Sums", names="plain", servers={"calc": entry})
    config = GatewayConfig(path="gateway.json", mode=mode, lock="off", toolboxes={"dev": toolbox})
    async with Client(Gateway(config, boards=boards())) as client:
        failed = await client.call(USE, {"tool_name": "ad", "arguments": {}})
        assert failed.text == "Error: Unknown tool: 'ad', did you mean 'add'?"


async def test_opening_a_toolbox_does_not_repeat_the_definitions_that_the_session_is_listed_then() -> None:
    async with legacy(gateway("dynamic")) as client:
        (opened,) = msgspec.json.decode((await client.call(OPEN, {"toolbox_name": "dev"})).text)["tools"]
        assert (opened["name"], opened["description"]) == ("dev__calc__add", "Adds two numbers.")
        assert "inputSchema" not in opened
        listed = {tool["name"]: tool for tool in (await client.request("tools/list"))["tools"]}
        assert "inputSchema" in listed["dev__calc__add"]


async def test_a_lost_server_whose_tools_are_found_is_unavailable_and_not_unsearched() -> None:
    made = gateway()
    async with Client(made) as client:
        await client.call(SEARCH, {"query": "sum"})
        await until(lambda: all(one.state == "ready" for one in made.downstreams))
        await made.downstreams[0].stop()
        made.endpoints[0].refresh()
        found = msgspec.json.decode((await client.call(SEARCH, {"query": "add numbers"})).text)
        assert found["servers"][0]["server"] == "calc"
        assert found["unavailable"] == {"dev/calc": "is stopped"}
        assert "not_searched" not in found


async def test_opened_and_found_tools_are_listed_under_the_name_they_are_called_by() -> None:
    async with Client(gateway()) as client:
        opened = msgspec.json.decode((await client.call(OPEN, {"toolbox_name": "dev"})).text)
        found = msgspec.json.decode((await client.call(SEARCH, {"query": "sum of numbers"})).text)
        toolboxes = msgspec.json.decode((await client.call(LIST)).text)

    assert (opened["toolbox"], opened["servers_connected"]) == ("dev", 1)
    assert [tool["name"] for tool in opened["tools"]] == ["dev__calc__add"]
    assert opened["tools"][0]["inputSchema"]["required"] == ["a", "b"]
    assert found["servers"][0]["tools"][0]["name"] == "dev__calc__add"
    assert [(one["name"], one["tool_count"]) for one in toolboxes["toolboxes"]] == [("dev", 1), ("live", 1)]


async def test_arguments_are_repaired_and_middleware_sees_the_tool_that_is_used() -> None:
    served, recorder = gateway(), Recorder()
    served.use(recorder)
    async with Client(served) as client:
        result = await client.call("use_tool", {**SUM, "arguments": '{"a": "2", "b": 3}'})

    assert result.text == "5"
    assert [(step.hook, step.tool) for step in recorder.steps] == [
        ("before", "dev__calc__add"),
        ("after", "dev__calc__add"),
    ]


@pytest.mark.parametrize("version", [None, LEGACY])
async def test_a_question_from_a_downstream_server_reaches_the_caller_of_its_tool(version: str | None) -> None:
    asked = {"tool_name": "live__ops__roll_out", "arguments": {"service": "api"}}

    def sure(_asked: Any) -> dict[str, bool]:
        return {"value": True}

    if version is None:
        async with Client(gateway(), elicit=sure) as client:
            assert (await client.call(USE, asked)).text == "rolled out api"
    else:
        async with legacy(gateway(), elicit=sure) as client:
            assert (await client.call(USE, asked)).text == "rolled out api"


async def test_a_session_opens_a_toolbox_and_is_listed_its_tools() -> None:
    async with legacy(gateway("dynamic")) as client:
        before = await names(client)
        await client.call(OPEN, {"toolbox_name": "dev"})
        opened = await names(client)
        direct = await client.call("dev__calc__add", {"a": 1, "b": 1})
        closed = await client.call(CLOSE, {"toolbox_name": "dev"})
        after = await names(client)

    assert before == after == [LIST, OPEN, CLOSE, SEARCH, USE]
    assert opened == [*before, "dev__calc__add"]
    assert (direct.text, closed.is_error) == ("2", False)


@pytest.mark.parametrize(("mode", "looks"), [("all", False), ("proxy", False), ("auto", False), ("dynamic", True)])
async def test_a_list_looks_up_what_its_session_opened_only_where_that_matters(
    mode: Mode, looks: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[str] = []

    async def recall(_opened: OpenedToolboxes, caller: Caller) -> None:
        looked.append(caller.session)

    monkeypatch.setattr(OpenedToolboxes, "recall", recall)
    async with legacy(gateway(mode)) as client:
        await names(client)
    assert bool(looked) is looks


async def test_only_the_session_whose_list_changed_is_notified() -> None:
    served = gateway("dynamic")
    async with legacy(served) as client:
        await client.call(LIST)
        changes = client.listen(tools=True)
        told = asyncio.ensure_future(anext(changes))
        last = served.endpoints[0].board.changes.last
        await client.call(OPEN, {"toolbox_name": "dev"})
        change = await told

    assert change.kind == "tools"
    assert served.endpoints[0].board.changes.last == last


async def test_a_session_is_notified_of_changes_in_a_toolbox_it_opened() -> None:
    made = boards()
    served = gateway("dynamic", made=made)
    async with legacy(served) as client:
        await client.call(OPEN, {"toolbox_name": "dev"})
        changes = client.listen(tools=True)
        told = asyncio.ensure_future(anext(changes))
        await until(lambda: len(served.endpoints[0].board.changes._watches) > 0)
        made["calc"].tool("subtract")(lambda a, b: a - b)
        assert (await told).kind == "tools"
        assert "dev__calc__subtract" in await names(client)


async def test_lazy_servers_are_connected_when_their_toolbox_is_opened_or_their_tool_used() -> None:
    served = gateway(lazy=True)
    async with Client(served) as client:
        listed = msgspec.json.decode((await client.call(LIST)).text)
        states = [one.state for one in served.downstreams]
        opened = msgspec.json.decode((await client.call(OPEN, {"toolbox_name": "live"})).text)
        used = await client.call(USE, SUM)

    assert states == ["idle", "idle"]
    assert [one["servers"] for one in listed["toolboxes"]] == [{"calc": "idle"}, {"ops": "idle"}]
    assert [tool["name"] for tool in opened["tools"]] == ["live__ops__roll_out"]
    assert used.text == "5"


async def test_the_example_of_the_instructions_works_as_it_stands() -> None:
    async with Client(gateway()) as client:
        await names(client)
        await client.call(LIST)
        told = (await client.request("server/discover"))["instructions"]
        example = msgspec.json.decode(told.rpartition("\n")[2])
        result = await client.call(example["name"], example["arguments"])

    assert told.startswith("Available Toolboxes:\n\ndev (1 server)\n  Description: Sums")
    assert not result.is_error


async def test_proxy_mode_sends_no_list_change_notifications() -> None:
    made = boards()
    served = gateway(made=made)
    async with Client(served) as client:
        await client.call(OPEN, {"toolbox_name": "dev"})
        before, last = await client.request("tools/list"), served.endpoints[0].board.changes.last

        @made["calc"].tool
        async def multiply(a: int, b: int) -> int:
            """Multiplies two numbers."""
            return a * b

        await until(lambda: served.endpoints[0].directory.find("dev__calc__multiply") is not None)
        found = (await client.call(SEARCH, {"query": "multiplies", "detail": "name"})).text
        after = await client.request("tools/list")
        tools_told = [change for _, change in served.endpoints[0].board.changes.read(last) if change.kind == "tools"]

    assert "dev__calc__multiply" in found
    assert msgspec.json.encode(after["tools"]) == msgspec.json.encode(before["tools"])
    assert tools_told == []


@pytest.mark.parametrize(
    ("wanted", "sentence"),
    [
        ("dev__calc_add", "Error: Invalid tool name format 'dev__calc_add'. Expected format: "),
        ("x__calc__add", "Error: Toolbox 'x' not found"),
        ("dev__x__add", "Error: Server 'x' not found in toolbox 'dev'"),
        ("dev__calc__x", "Error: Tool 'x' not found in server 'calc' (toolbox 'dev')"),
    ],
)
async def test_an_unknown_tool_name_is_reported_with_the_unknown_part(wanted: str, sentence: str) -> None:
    async with Client(gateway()) as client:
        result = await client.call(USE, {"tool_name": wanted})

    assert result.is_error
    assert result.text.startswith(sentence)
