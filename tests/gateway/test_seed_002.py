"""The contract of tool names (seeds/002) with its own examples and texts, and what MCP Workbench does, row by row.

Where the documents disagree DESIGN §3 decides. It differs from the seed in these:
- "exactly 2 double underscores": a name is split at the first two, as the seed's own unit test wants it;
- the longer text of an invalid format (with the note) is the one everywhere, with up to three suggestions behind it;
- `tools/call` answers an unknown name by the error -32602 with the sentence bare; a meta-tool answers by an `isError`
  result with "Error: " before it;
- calls are routed by what is listed, not by what the name says: a name is parsed only to tell what is wrong with it.

Inventory W-1 … W-28, and where each is tried (`here`: the test of that number below):
W-1   WORKBENCH_CONFIG          here, tests/cli/commands/serving/test_up_command.py; a failure is exit 2 and `pegboard up: …`
W-2   toolboxes                 here; a client's own file (`mcpServers`) is taken as one toolbox, `main`
W-3   description               here
W-4   mcpServers                here
W-5   command                   here; or `url`, or `board`
W-6   args                      here
W-7   env                       here; only what is named is inherited: test_config.py, test_downstream.py
W-8   toolFilters               here; globs and "!x", and filters that fit no tool are told: test_config.py
W-9   transport                 here; http, sse and websocket work
W-10  url                       here; used
W-11  toolMode                  here; all, dynamic, proxy, auto: both of Workbench's, dynamic is back
W-12  JSON errors               here, with line and column
W-13  variables                 here, test_variables.py; words in small letters are left with a warning
W-14  lazy connection           here; `lazy` by server, otherwise connected at the start; one failure fails no other
W-15  idempotent open           here
W-16  a server in two toolboxes here: two of it
W-17  instructions              here; the example works as it stands: test_modes.py, test_served_modes.py
W-18  open_toolbox              here
W-19  use_tool                  here
W-20  errors of open_toolbox    here
W-21  parameters of use_tool    here
W-22  errors of use_tool        here
W-23  shutdown                  tests/cli/commands/serving/test_up_command.py: SIGINT and SIGTERM, and the end of stdin too
W-24  list_toolboxes            here; `tool_count` is what there is, no estimate
W-25  close_toolbox             here; servers stay connected, as other sessions use them
W-26  dynamic mode              here, test_served_modes.py
W-27  proxy mode                here
W-28  connection log            here; what the operator needs and no value of a secret: test_discretion.py
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from pegboard import Board, Client, Gateway
from pegboard.config.gateway_config import GatewayConfig, Mode, ServerConfig, ToolboxConfig, find_config, read_config
from pegboard.errors import InvalidParams, SetupError
from pegboard.tools.qualified_names import ToolName, invalid_format, join_name, parse_name
from tests.server.stream_client import serve
from tests.waiting import until

LEGACY = "2025-11-25"

# -- the core functions: every example and every unit test of the seed ---------------------------------------------------


@pytest.mark.parametrize(
    ("parts", "name"),
    [
        (("dev", "filesystem", "read_file"), "dev__filesystem__read_file"),
        (("prod", "memory", "store_value_async"), "prod__memory__store_value_async"),
        (("test", "server", "my__special__tool"), "test__server__my__special__tool"),
        # generates correct format with multiple underscores in tool name
        (("dev", "filesystem", "read_file_async_v2"), "dev__filesystem__read_file_async_v2"),
        # generates correct format with double underscores in tool name
        (("dev", "server", "my__special__tool"), "dev__server__my__special__tool"),
    ],
)
def test_generate_tool_name(parts: tuple[str, str, str], name: str) -> None:
    assert join_name(*parts) == name


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("dev__filesystem__read_file", ("dev", "filesystem", "read_file")),
        ("prod__memory__store_value_async", ("prod", "memory", "store_value_async")),
        # handles tool names with double underscores
        ("dev__server__tool__with__extras", ("dev", "server", "tool__with__extras")),
        # old format, missing components
        ("dev__filesystem_read_file", None),
        ("invalid", None),
        ("dev__only_two_parts", None),
        # three parts, none of them empty
        ("__server__tool", None),
        ("dev____tool", None),
        ("dev__server__", None),
        ("", None),
    ],
)
def test_parse_tool_name(name: str, parts: tuple[str, str, str] | None) -> None:
    assert parse_name(name) == (None if parts is None else ToolName(*parts))


def test_get_invalid_format_error() -> None:
    assert invalid_format("x") == (
        "Invalid tool name format 'x'. Expected format: {toolbox}__{server}__{tool} "
        "(note: double underscores between all components)"
    )


# -- a gateway for the rest ----------------------------------------------------------------------------------------------


def filesystem() -> Board:
    board = Board("filesystem")

    @board.tool(title="Read a file", annotations={"readOnlyHint": True}, meta={"own": 1})
    async def read_file(path: str) -> str:
        """Reads a file."""
        return f"what is in {path}"

    @board.tool("my__special__tool")
    async def special() -> str:
        return "special"

    return board


def server(name: str = "filesystem", **options: Any) -> ServerConfig:
    return ServerConfig(**{"name": name, "kind": "board", "board": "filesystem", **options})


def down(name: str = "broken") -> ServerConfig:
    return ServerConfig(name=name, kind="stdio", command=(sys.executable, "-c", "raise SystemExit(3)"))


def gateway(mode: Mode = "proxy", *servers: ServerConfig) -> Gateway:
    def toolbox(name: str, *entries: ServerConfig) -> ToolboxConfig:
        return ToolboxConfig(name=name, description=f"For {name}", servers={one.name: one for one in entries})

    toolboxes = {"dev": toolbox("dev", *(servers or (server(),))), "prod": toolbox("prod", server("memory"))}
    config = GatewayConfig(path="gateway.json", lock="off", mode=mode, toolboxes=toolboxes)
    return Gateway(config, boards={"filesystem": filesystem()})


@asynccontextmanager
async def session(served: Gateway) -> AsyncIterator[Client]:
    """A client of the older era, for which opening a toolbox changes the list."""
    await served.start()
    try:
        async with await serve(served) as house:
            url = f"http://127.0.0.1:{house.server.port}/mcp"
            async with Client(url, version=LEGACY) as client:
                yield client
    finally:
        await served.stop()


async def told(client: Client, name: str, arguments: dict[str, Any], *, wrong: bool = False) -> Any:
    """What a meta-tool answers: the value of its JSON, or its words where it failed."""
    result = await client.call(name, arguments)
    assert result.is_error is wrong, result.text
    return result.text if wrong else json.loads(result.text)


READ = {"path": "a.txt"}
INVALID = (
    "Invalid tool name format 'dev__filesystem_read_file'. Expected format: {toolbox}__{server}__{tool} "
    "(note: double underscores between all components). Did you mean 'dev__filesystem__read_file'?"
)


# -- integration scenarios -----------------------------------------------------------------------------------------------


async def test_scenario_1_tools_registered_in_dynamic_mode_can_be_called() -> None:
    async with session(gateway("dynamic")) as client:
        await told(client, "workbench_open_toolbox", {"toolbox_name": "dev"})
        names = [tool["name"] for tool in await client.list_tools()]
        assert "dev__filesystem__read_file" in names
        assert (await client.call("dev__filesystem__read_file", READ)).text == "what is in a.txt"
        assert (await client.call("dev__filesystem__my__special__tool")).text == "special"


async def test_scenario_2_names_that_proxy_mode_tells_are_of_the_format() -> None:
    async with Client(gateway("proxy")) as client:
        opened = await told(client, "workbench_open_toolbox", {"toolbox_name": "dev"})
        assert [tool["name"] for tool in opened["tools"]] == [
            "dev__filesystem__read_file",
            "dev__filesystem__my__special__tool",
        ]


async def test_scenario_3_the_old_format_is_rejected_with_help() -> None:
    async with Client(gateway("all")) as client:
        with pytest.raises(InvalidParams) as refused:
            await client.call("dev__filesystem_read_file", READ)
        assert (refused.value.code, refused.value.message) == (-32602, INVALID)
        use = {"toolbox_name": "dev", "tool_name": "dev__filesystem_read_file", "arguments": READ}
        assert await told(client, "workbench_use_tool", use, wrong=True) == f"Error: {INVALID}"


async def test_scenario_4_all_modes_yield_the_same_names() -> None:
    async with Client(gateway("all")) as client:
        everything = [tool["name"] for tool in await client.list_tools()]
    async with Client(gateway("proxy")) as client:
        proxied = [
            tool["name"]
            for toolbox in ("dev", "prod")
            for tool in (await told(client, "workbench_open_toolbox", {"toolbox_name": toolbox}))["tools"]
        ]
    async with session(gateway("dynamic")) as client:
        meta = {tool["name"] for tool in await client.list_tools()}
        for toolbox in ("dev", "prod"):
            await told(client, "workbench_open_toolbox", {"toolbox_name": toolbox})
        registered = [tool["name"] for tool in await client.list_tools() if tool["name"] not in meta]
    assert everything == proxied == registered
    assert len(everything) == 4


# -- error handling ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("dev__filesystem_read_file", INVALID),
        ("nowhere__filesystem__read_file", "Toolbox 'nowhere' not found"),
        ("dev__nothing__read_file", "Server 'nothing' not found in toolbox 'dev'"),
        ("dev__filesystem__dance", "Tool 'dance' not found in server 'filesystem' (toolbox 'dev')"),
    ],
)
@pytest.mark.parametrize("mode", ["all", "dynamic", "proxy"])
async def test_error_handling_says_which_part_of_a_name_is_wrong(mode: Mode, name: str, sentence: str) -> None:
    async with Client(gateway(mode)) as client:
        await told(client, "workbench_open_toolbox", {"toolbox_name": "dev"})
        with pytest.raises(InvalidParams) as refused:
            await client.call(name, {})
        assert refused.value.message == sentence
        assert await told(client, "workbench_use_tool", {"tool_name": name}, wrong=True) == f"Error: {sentence}"


async def test_a_delegation_error_names_toolbox_server_and_tool() -> None:
    script = Path(__file__).with_name("bad_server.py")
    bad = ServerConfig(name="bad", kind="stdio", command=(sys.executable, "-S", str(script)))
    async with Client(gateway("all", bad)) as client:
        direct = await client.call("dev__bad__die", {})
        assert direct.is_error
        assert direct.text.startswith("[dev/bad/die] Error: ")
        assert str(script) not in direct.text
        used = await told(client, "use_tool", {"tool": {"toolbox": "dev", "server": "bad", "name": "die"}}, wrong=True)
        assert "[dev/bad/die] Error: " in used


# -- ToolInfo ------------------------------------------------------------------------------------------------------------


async def test_tool_info_has_its_members_where_the_seed_has_them() -> None:
    async with Client(gateway("all")) as client:
        tool = (await client.list_tools())[0]
        assert tool["_meta"] == {
            "own": 1,
            "source_server": "filesystem",
            "toolbox_name": "dev",
            "original_name": "read_file",
        }
        assert (tool["title"], tool["description"]) == ("Read a file", "[dev/filesystem] Reads a file.")
        opened = (await told(client, "workbench_open_toolbox", {"toolbox_name": "dev"}))["tools"][0]
        assert (opened["name"], opened["source_server"], opened["toolbox_name"]) == (tool["name"], "filesystem", "dev")


# -- W-1 … W-13: the configuration -----------------------------------------------------------------------------------------


def write(folder: Path, value: Any) -> Path:
    path = folder / "workbench-config.json"
    path.write_text(value if isinstance(value, str) else json.dumps(value))
    return path


def one(entry: Any = None, **more: Any) -> dict[str, Any]:
    servers = {"s": {"command": "true"} if entry is None else entry}
    return {"toolboxes": {"t": {"description": "d", "mcpServers": servers}}, **more}


def test_w1_the_file_is_found_by_its_variable_or_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path, one())
    assert find_config({"WORKBENCH_CONFIG": str(path)}) == path
    monkeypatch.chdir(tmp_path)
    assert find_config({}) == Path("workbench-config.json")


@pytest.mark.parametrize(
    ("row", "value", "text"),
    [
        ("W-2", {}, "Configuration must have a 'toolboxes' object"),
        ("W-2", {"toolboxes": []}, "toolboxes"),
        ("W-3", {"toolboxes": {"t": {"mcpServers": {"s": {"command": "x"}}}}}, "Toolbox 't' must have a description"),
        ("W-4", {"toolboxes": {"t": {"description": "d"}}}, "Toolbox 't' must have an 'mcpServers' object"),
        (
            "W-4",
            {"toolboxes": {"t": {"description": "d", "mcpServers": {}}}},
            "Toolbox 't' must have at least one MCP server",
        ),
        ("W-5", one({}), "Server 's' in toolbox 't' must have a 'command' field"),
        ("W-6", one({"command": "x", "args": "y"}), "args"),
        ("W-7", one({"command": "x", "env": []}), "env"),
        ("W-9", one({"command": "x", "transport": "pigeon"}), "transport"),
        ("W-11", one(toolMode="both"), "toolMode"),
        ("W-12", '{"toolboxes": ', "Invalid JSON in config file: "),
        ("W-13", one(toolMode="${NOT_SET}"), "NOT_SET"),
        ("W-13", one({"command": "${OPEN"}), "unclosed brace"),
    ],
)
def test_w2_to_w13_mistakes_are_reported_in_the_wording_of_workbench(
    tmp_path: Path, row: str, value: Any, text: str
) -> None:
    with pytest.raises(SetupError) as refused:
        read_config(write(tmp_path, value), {})
    assert text in str(refused.value), row


def test_w5_to_w13_what_workbench_takes_is_taken(tmp_path: Path) -> None:
    entry = {
        "command": "run",
        "args": ["--key", "${KEY}"],
        "env": {"A": "${WITH_DEFAULT:-b}", "EMPTY": "${EMPTY:-not this}"},
        "toolFilters": ["read_file"],
        "transport": "stdio",
    }
    far = {"transport": "http", "url": "http://127.0.0.1:1/mcp"}
    value = one(entry, toolMode="dynamic")
    value["toolboxes"]["t"]["mcpServers"]["far"] = far
    config = read_config(write(tmp_path, value), {"KEY": "k1234567", "EMPTY": ""})
    near = config.toolboxes["t"].servers["s"]
    assert near.command[1:] == ("--key", "k1234567")
    assert near.env == {"A": "b", "EMPTY": ""}
    assert near.tool_filters == ("read_file",)
    assert (config.toolboxes["t"].servers["far"].kind, config.toolboxes["t"].servers["far"].url) == ("http", far["url"])
    assert config.mode == "dynamic"
    assert read_config(write(tmp_path, one(toolMode="proxy")), {}).mode == "proxy"


async def test_w8_a_filter_keeps_to_its_tools() -> None:
    async with Client(gateway("all", server(tool_filters=("read_file",)))) as client:
        assert [tool["name"] for tool in await client.list_tools()][0:2] == [
            "dev__filesystem__read_file",
            "prod__memory__read_file",
        ]


# -- W-14 … W-28: what it does -----------------------------------------------------------------------------------------------


async def test_w14_lazy_servers_are_connected_together_when_their_toolbox_is_opened_and_one_may_fail() -> None:
    made = gateway("proxy", server(lazy=True), server("second", lazy=True), down())
    async with Client(made) as client:
        states = {one.name: one.state for one in made.downstreams}
        assert (states["filesystem"], states["second"]) == ("idle", "idle")
        opened = await told(client, "open_toolbox", {"toolbox": "dev"})
        assert opened["servers_connected"] == 2
        assert {tool["server"] for tool in opened["tools"]} == {"filesystem", "second"}
        assert {one.state for one in made.downstreams if one.name in ("filesystem", "second")} == {"ready"}


async def test_w15_opening_twice_is_opening_once() -> None:
    made = gateway()
    async with Client(made) as client:
        first = await told(client, "open_toolbox", {"toolbox": "dev"})
        assert await told(client, "open_toolbox", {"toolbox": "dev"}) == first


async def test_w16_a_server_in_two_toolboxes_is_two_servers() -> None:
    made = gateway()
    async with Client(made) as client:
        for toolbox in ("dev", "prod"):
            assert (await told(client, "open_toolbox", {"toolbox": toolbox}))["servers_connected"] == 1
        assert [(one.toolbox, one.name) for one in made.downstreams] == [("dev", "filesystem"), ("prod", "memory")]
        assert (await client.call("prod__memory__read_file", READ)).text == "what is in a.txt"


async def test_w17_instructions_list_the_toolboxes() -> None:
    async with Client(gateway()) as client:
        said = (await client.discover())["instructions"]
    assert said.startswith(
        "Available Toolboxes:\n\ndev (1 server)\n  Description: For dev\n\nprod (1 server)\n  Description: For prod\n\n"
    )
    assert "\n\nExample tool invocation:\n" in said


async def test_w18_opening_answers_with_definitions_and_says_that_it_does_no_harm() -> None:
    async with Client(gateway()) as client:
        opened = await told(client, "open_toolbox", {"toolbox": "dev"})
        assert (opened["toolbox"], opened["description"], opened["servers_connected"]) == ("dev", "For dev", 1)
        tool = opened["tools"][0]
        assert (tool["server"], tool["toolbox"], tool["name"]) == ("filesystem", "dev", "dev__filesystem__read_file")
        assert tool["inputSchema"]["required"] == ["path"]
        listed = {tool["name"]: tool for tool in await client.list_tools()}
        assert listed["workbench_open_toolbox"]["annotations"] == {
            "readOnlyHint": False,
            "destructiveHint": False,
            "idempotentHint": True,
            "openWorldHint": True,
        }


async def test_w19_a_tool_is_used_by_its_parts_and_its_result_is_unchanged() -> None:
    async with Client(gateway()) as client:
        place = {"toolbox": "dev", "server": "filesystem", "name": "read_file"}
        used = await client.call("use_tool", {"tool": place, "arguments": READ})
        assert used.text == "what is in a.txt"
        assert used == await client.call("dev__filesystem__read_file", READ)


async def test_w20_an_unknown_toolbox_or_one_without_reachable_servers_is_reported() -> None:
    async with Client(gateway("proxy", down())) as client:
        assert (
            await told(client, "open_toolbox", {"toolbox": "x"}, wrong=True)
            == "Error: Toolbox 'x' not found. Available toolboxes: dev, prod"
        )
        failed = await told(client, "open_toolbox", {"toolbox": "dev"}, wrong=True)
        assert failed.startswith("Error opening toolbox 'dev': Failed to connect to MCP server 'broken': ")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (
            {"tool": {"toolbox": "dev", "server": "filesystem", "name": ""}},
            "Invalid tool invocation parameters: tool.name: Tool name cannot be empty",
        ),
        ({}, "Invalid tool invocation parameters: tool_name: Tool name cannot be empty"),
    ],
)
async def test_w21_parameters_that_name_no_tool_are_reported(arguments: dict[str, Any], text: str) -> None:
    async with Client(gateway()) as client:
        assert await told(client, "use_tool", arguments, wrong=True) == text


@pytest.mark.parametrize(
    ("place", "why"),
    [
        (("t", "s", "n"), "Toolbox 't' not found"),
        (("dev", "s", "n"), "Server 's' not found in toolbox 'dev'"),
        (("dev", "filesystem", "n"), "Tool 'n' not found in server 'filesystem' (toolbox 'dev')"),
    ],
)
async def test_w22_a_location_without_the_tool_is_reported(place: tuple[str, str, str], why: str) -> None:
    toolbox, at, name = place
    async with Client(gateway()) as client:
        await told(client, "open_toolbox", {"toolbox": "dev"})
        wanted = {"tool": {"toolbox": toolbox, "server": at, "name": name}}
        assert (
            await told(client, "use_tool", wanted, wrong=True)
            == f"Error executing tool '{name}' in server '{at}' (toolbox '{toolbox}'): {why}"
        )


async def test_w24_toolboxes_are_listed_with_what_they_have() -> None:
    async with session(gateway("dynamic")) as client:
        await told(client, "workbench_open_toolbox", {"toolbox_name": "dev"})
        listed = await told(client, "workbench_list_toolboxes", {})
    assert (listed["total_count"], listed["open_count"]) == (2, 1)
    first = {key: listed["toolboxes"][0][key] for key in ("name", "description", "tool_count", "is_open")}
    assert first == {"name": "dev", "description": "For dev", "tool_count": 2, "is_open": True}


async def test_w25_closing_takes_the_tools_off_the_list_and_no_server_from_others() -> None:
    made = gateway("dynamic")
    async with session(made) as client:
        before = [tool["name"] for tool in await client.list_tools()]
        wanted = {"toolbox_name": "dev"}
        assert (
            await told(client, "workbench_close_toolbox", wanted, wrong=True) == "Toolbox 'dev' is not currently open"
        )
        await told(client, "workbench_open_toolbox", wanted)
        closed = await client.call("workbench_close_toolbox", wanted)
        assert closed.text.startswith("Successfully closed toolbox 'dev'")
        assert [tool["name"] for tool in await client.list_tools()] == before
        assert made.downstreams[0].state == "ready"


async def test_w26_the_tools_of_an_opened_toolbox_are_registered_and_clients_are_notified() -> None:
    async with session(gateway("dynamic")) as client:
        await client.list_tools()
        changes = client.listen(tools=True)
        hearing = asyncio.ensure_future(anext(changes))
        await told(client, "workbench_open_toolbox", {"toolbox_name": "dev"})
        assert (await hearing).kind == "tools"
        tools = {tool["name"]: tool for tool in await client.list_tools()}
    read, special = tools["dev__filesystem__read_file"], tools["dev__filesystem__my__special__tool"]
    assert (read["title"], read["description"]) == ("Read a file", "[dev/filesystem] Reads a file.")
    assert special["description"] == "Tool from dev/filesystem"
    assert read["annotations"] == {"readOnlyHint": True}
    assert read["_meta"]["own"] == 1
    assert special["_meta"]["original_name"] == "my__special__tool"


async def test_w27_in_proxy_mode_a_tool_is_used_by_its_whole_name() -> None:
    async with Client(gateway()) as client:
        use = {"toolbox_name": "dev", "tool_name": "dev__filesystem__read_file", "arguments": READ}
        assert (await client.call("workbench_use_tool", use)).text == "what is in a.txt"
        wrong = await told(client, "workbench_use_tool", {**use, "toolbox_name": "prod"}, wrong=True)
        assert "prod" in wrong


async def test_w28_a_server_that_does_not_come_up_is_logged_with_its_name(caplog: pytest.LogCaptureFixture) -> None:
    made = gateway("proxy", down())
    with caplog.at_level(logging.INFO, "pegboard"):
        async with Client(made):
            await until(lambda: made.downstreams[0].state == "failed")
    assert "broken: " in caplog.text
