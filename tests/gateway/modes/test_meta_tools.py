"""The meta-tools: found, opened and used through them, every tool is what it is by itself."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from pegboard import Client, Context, Header, Middleware
from pegboard.call import Call, Done, InputRequired, Json, TaskStarted
from pegboard.errors import HeaderMismatch, InvalidParams, UnknownTool
from pegboard.gateway.modes.meta_tool_definitions import CLOSE, LIST, OPEN, SEARCH, USE
from pegboard.gateway.modes.meta_tool_host import ServerStatus, Toolbox, Visibility
from pegboard.gateway.modes.meta_tools import META_NAMES, MetaTools
from pegboard.middleware.observability.token_count import tokens_of
from pegboard.testing import Recorder
from pegboard.tools.tool_result import PARSE_WARNINGS as WARNINGS
from tests.depth import examples
from tests.gateway.meta_tool_board import TOOLBOXES, Ear, Workbench, said, send

TASKS = {"extensions": {"io.modelcontextprotocol/tasks": {}}}


async def told(host: Workbench, name: str, arguments: Any = None, **about: Any) -> Any:
    return msgspec.json.decode(said(await send(host, name, arguments, **about)))


# -- using ---------------------------------------------------------------------------------------------------------------

SUM = {"a": 2, "b": 3}
SPELLINGS = [
    {"tool_name": "dev__calc__add"},
    {"toolbox_name": "dev", "tool_name": "dev__calc__add"},
    {"tool": "dev__calc__add"},
    {"name": "dev__calc__add"},
    {"tool": {"toolbox": "dev", "server": "calc", "name": "add"}},
    {"tool_name": {"toolbox": "dev", "server": "calc", "name": "add"}},
    {"name": {"toolbox": "dev", "server": "calc", "name": "add"}},
    {"toolbox": "dev", "server": "calc", "name": "add"},
    {"toolbox_name": "dev", "server": "calc", "tool_name": "add"},
    {"tool": {"toolbox": "dev", "server": "calc", "name": "dev__calc__add"}},
    {"tool": '{"toolbox": "dev", "server": "calc", "name": "add"}'},
]


@pytest.mark.parametrize("meta_tool", [USE, "use_tool", "call_tool"])
@pytest.mark.parametrize("spelling", SPELLINGS, ids=str)
async def test_a_tool_is_called_by_any_of_its_names(meta_tool: str, spelling: dict[str, Any]) -> None:
    reply = await send(Workbench(), meta_tool, {**spelling, "arguments": SUM})

    assert said(reply) == "5"


async def test_the_reply_is_that_of_the_tool_itself() -> None:
    host = Workbench()

    for name, arguments in (
        ("dev__calc__add", SUM),
        ("dev__calc__add", {"a": "2", "b": 3}),
        ("dev__calc__add", {"a": "two"}),
        ("dev__files__fail", {}),
        ("dev__calc__pi", {}),
    ):
        direct = await send(host, name, arguments)
        through = await send(host, USE, {"tool_name": name, "arguments": arguments})
        assert through == direct


async def test_arguments_go_on_as_the_bytes_that_came() -> None:
    sent = b'{"tool_name":"dev__files__echo","arguments":{"n": 1.10, "big": 123456789012345678901234567890, "u": "\\u00e9"}}'

    assert said(await send(Workbench(), USE, sent)) == (
        '{"n": 1.10, "big": 123456789012345678901234567890, "u": "\\u00e9"}'
    )


@pytest.mark.parametrize("arguments", ['{"a": 2, "b": 3}', '```json\n{"a": 2, "b": 3}\n```'])
async def test_arguments_that_came_as_text_are_read(arguments: str) -> None:
    reply = await send(Workbench(), USE, {"tool_name": "dev__calc__add", "arguments": arguments})

    assert said(reply) == "5"


@pytest.mark.parametrize("without", [{}, {"arguments": None}, {"arguments": {}}])
async def test_a_tool_without_arguments_needs_none(without: dict[str, Json]) -> None:
    assert said(await send(Workbench(), USE, {"tool_name": "dev__calc__pi", **without})) == "3.14"


@pytest.mark.parametrize(
    "flat",
    [
        {"tool_name": "dev__calc__add", **SUM},
        {"tool_name": "dev__calc__add", "arguments": {}, **SUM},
        {"tool_name": "dev__calc__add", "arguments": None, **SUM},
        {"toolbox": "dev", "server": "calc", "name": "add", **SUM},
        {"tool_name": "dev__calc__add", "tool": "dev__calc__add", **SUM},
        {"tool_name": "dev__calc__add", "parameters": SUM},
    ],
    ids=str,
)
@pytest.mark.parametrize("meta_tool", [USE, "use_tool", "call_tool"])
async def test_arguments_beside_the_name_are_gathered_and_that_is_said(meta_tool: str, flat: dict[str, Any]) -> None:
    reply = await send(Workbench(), meta_tool, flat)

    assert said(reply) == "5"
    assert isinstance(reply, Done)
    warning = reply.result["_meta"][WARNINGS][-1]  # type: ignore[index]  # it is what was told
    assert warning["code"] == "fields_gathered_into_object"
    assert warning["message"] == 'arguments: fields sent beside it moved into it: {"a":2,"b":3}'


async def test_an_argument_called_name_is_gathered_beside_the_tool_s_name() -> None:
    reply = await send(Workbench(), USE, {"tool_name": "dev__files__echo", "name": "Ada"})

    assert said(reply) == '{"name":"Ada"}'


async def test_repairs_by_the_tool_are_reported_with_those_by_the_meta_tool() -> None:
    reply = await send(Workbench(), USE, {"tool_name": "dev__calc__add", "a": "2", "b": 3})

    assert isinstance(reply, Done)
    codes = [one["code"] for one in reply.result["_meta"][WARNINGS]]  # type: ignore[index]  # it is what was told
    assert codes == ["fields_gathered_into_object", "string_literal_converted_to_integer"]


async def test_arguments_both_in_their_place_and_beside_it_are_refused_with_what_to_do() -> None:
    reply = await send(Workbench(), USE, {"tool_name": "dev__calc__add", "arguments": {"a": 2}, "b": 3})

    assert said(reply) == (
        "isError: workbench_use_tool: 1 problem with the arguments; nothing was run. Fix and call again:\n"
        "- b: unknown argument; put it into `arguments`"
    )


async def test_what_surrounds_every_call_sees_the_tool_that_is_used_and_sees_it_once() -> None:
    host, recorder = Workbench(), Recorder()
    host.board.use(recorder)

    await send(host, USE, {"tool_name": "dev__calc__add", "arguments": SUM})

    assert [(step.hook, step.tool, step.arguments) for step in recorder.steps] == [
        ("before", "dev__calc__add", SUM),
        ("after", "dev__calc__add", SUM),
    ]


async def test_middleware_of_the_tool_runs_and_a_hook_may_stop_it() -> None:
    class Stop(Middleware):
        async def before(self, call: Call) -> None:
            call.cancel()
            await asyncio.sleep(0)

    host = Workbench()
    host.board.use(Stop(), tool="dev__calc__add")

    assert "stopped" in said(await send(host, USE, {"tool_name": "dev__calc__add", "arguments": SUM}))
    assert said(await send(host, USE, {"tool_name": "dev__calc__pi"})) == "3.14"


async def test_a_question_comes_back_through_the_meta_tool_and_so_does_its_ticket() -> None:
    host = Workbench()
    asked = {"tool_name": "ops__deploy__roll_out", "arguments": {"service": "api"}}
    can_ask = {"elicitation": {"form": {}}}
    first = await send(host, USE, asked, capabilities=can_ask)
    assert isinstance(first, InputRequired)
    assert first.ticket is not None

    answers = msgspec.Raw(b'{"sure":{"action":"accept","content":{"value":true}}}')
    second = await send(host, USE, asked, capabilities=can_ask, answers=answers, ticket=first.ticket)

    assert said(second) == "rolled out api"


async def test_a_ticket_is_good_for_the_same_tool_and_arguments_alone() -> None:
    host = Workbench()
    can_ask = {"elicitation": {"form": {}}}
    first = await send(
        host, USE, {"tool_name": "ops__deploy__roll_out", "arguments": {"service": "api"}}, capabilities=can_ask
    )
    assert isinstance(first, InputRequired)

    with pytest.raises(InvalidParams, match="requestState"):
        await send(
            host,
            USE,
            {"tool_name": "ops__deploy__roll_out", "arguments": {"service": "db"}},
            capabilities=can_ask,
            ticket=first.ticket,
        )


async def test_a_ticket_serves_the_tool_by_whichever_way_it_is_called() -> None:
    host = Workbench()
    can_ask = {"elicitation": {"form": {}}}
    first = await send(host, "ops__deploy__roll_out", {"service": "api"}, capabilities=can_ask)
    assert isinstance(first, InputRequired)

    second = await send(
        host,
        "use_tool",
        {"tool": {"toolbox": "ops", "server": "deploy", "name": "roll_out"}, "arguments": {"service": "api"}},
        capabilities=can_ask,
        answers=msgspec.Raw(b'{"sure":{"action":"decline"}}'),
        ticket=first.ticket,
    )

    assert said(second) == "left alone"


async def test_a_tool_that_runs_as_a_task_is_started_through_the_meta_tool() -> None:
    host = Workbench()
    reply = await send(host, USE, {"tool_name": "ops__deploy__build"}, capabilities=TASKS)

    assert isinstance(reply, TaskStarted)
    await host.board.stop()


async def test_headers_that_repeat_arguments_are_not_asked_of_who_knows_the_meta_tool_alone() -> None:
    host = Workbench()

    @host.board.tool("dev__files__locate")
    async def locate(region: Annotated[str, Header("Region")]) -> str:
        """Finds a place."""
        return region

    host.refresh()
    with pytest.raises(HeaderMismatch):
        await send(host, "dev__files__locate", {"region": "eu"}, headers={})
    through = await send(host, USE, {"tool_name": "dev__files__locate", "arguments": {"region": "eu"}}, headers={})

    assert said(through) == "eu"


async def test_progress_of_the_tool_reaches_the_caller_of_the_meta_tool() -> None:
    host = Workbench()

    @host.board.tool("dev__files__copy")
    async def copy(ctx: Context) -> str:
        """Copies."""
        await ctx.progress(1, 2)
        return "copied"

    host.refresh()
    steps = []
    async with Client(host.board) as client:
        result = await client.call(
            USE, {"tool_name": "dev__files__copy"}, progress=lambda *step: steps.append(step[:2])
        )

    assert (result.text, steps) == ("copied", [(1, 2)])


async def test_a_client_answers_a_tool_s_question_through_the_meta_tool() -> None:
    async with Client(Workbench().board, elicit=lambda _asked: {"value": True}) as client:
        result = await client.call(USE, {"tool_name": "ops__deploy__roll_out", "arguments": {"service": "api"}})

    assert result.text == "rolled out api"


# -- names that nobody answers to ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wanted", "sentence"),
    [
        (
            "dev__calc_add",
            (
                "Error: Invalid tool name format 'dev__calc_add'. Expected format: {toolbox}__{server}__{tool} "
                "(note: double underscores between all components). Did you mean 'dev__calc__add' or 'dev__calc__pi'?"
            ),
        ),
        ("prod__calc__add", "Error: Toolbox 'prod' not found"),
        ("dev__clac__add", "Error: Server 'clac' not found in toolbox 'dev'. Did you mean 'calc'?"),
        (
            "dev__calc__ad",
            "Error: Tool 'ad' not found in server 'calc' (toolbox 'dev'). Did you mean 'dev__calc__add'?",
        ),
    ],
)
@pytest.mark.parametrize("rules", [[], [{"who": "*", "allow": ["dev/*", "ops/*"]}]])
async def test_an_unknown_name_is_explained_in_a_result(wanted: str, sentence: str, rules: list[Any]) -> None:
    host = Workbench()
    if rules:
        host.restrict(*rules)

    assert said(await send(host, USE, {"tool_name": wanted})) == f"isError: {sentence}"
    assert said(await send(host, "get_tool_details", {"tool_name": wanted})) == f"isError: {sentence}"


async def test_a_tool_withheld_by_the_endpoint_is_reported_with_the_message_of_the_endpoint() -> None:
    host = Workbench()
    host.board.tools.explain_unknown = lambda name, view: UnknownTool(f"Tool '{name}' is withheld: it changed")

    reply = await send(host, USE, {"tool_name": "dev__calc__new"})

    assert said(reply) == "isError: Error: Tool 'dev__calc__new' is withheld: it changed"


@pytest.mark.parametrize(
    ("place", "why"),
    [
        (("prod", "calc", "add"), "Toolbox 'prod' not found"),
        (("dev", "clac", "add"), "Server 'clac' not found in toolbox 'dev'. Did you mean 'calc'?"),
        (("dev", "calc", "ad"), "Tool 'ad' not found in server 'calc' (toolbox 'dev'). Did you mean 'add'?"),
        (("dev", "calc", "dev__files__echo"), "Tool 'dev__files__echo' not found in server 'calc' (toolbox 'dev')"),
    ],
)
async def test_an_unknown_place_is_explained_in_a_result(place: tuple[str, str, str], why: str) -> None:
    toolbox, server, name = place
    reply = await send(Workbench(), "use_tool", {"tool": {"toolbox": toolbox, "server": server, "name": name}})

    assert said(reply) == f"isError: Error executing tool '{name}' in server '{server}' (toolbox '{toolbox}'): {why}"


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({}, "tool_name: Tool name cannot be empty"),
        ({"tool_name": ""}, "tool_name: Tool name cannot be empty"),
        (
            {"tool": {"toolbox": "dev"}},
            "tool.server: Server name cannot be empty; tool.name: Tool name cannot be empty",
        ),
        ({"tool": {"toolbox": "dev", "server": 3, "name": "a"}}, "tool.server: Server name must be a string"),
        ({"tool_name": 5}, "tool_name: Expected a name or {toolbox, server, name}"),
    ],
)
async def test_a_call_that_names_no_tool_says_what_is_missing(arguments: dict[str, Any], problem: str) -> None:
    assert said(await send(Workbench(), USE, arguments)) == f"isError: Invalid tool invocation parameters: {problem}"


async def test_a_toolbox_that_contradicts_the_tool_name_is_reported() -> None:
    host = Workbench()
    wrong = await send(host, USE, {"toolbox_name": "ops", "tool_name": "dev__calc__add", "arguments": SUM})
    unknown = await send(host, USE, {"toolbox_name": "opps", "tool_name": "dev__calc__add", "arguments": SUM})

    assert said(wrong) == "isError: Error: Tool 'dev__calc__add' is in toolbox 'dev', not in 'ops'"
    assert said(unknown) == "isError: Error: Toolbox 'opps' not found. Available toolboxes: dev, ops"


@pytest.mark.parametrize("name", sorted(META_NAMES))
async def test_a_meta_tool_is_not_used_through_another(name: str) -> None:
    nested: dict[str, Any] = {"tool_name": name, "arguments": {"tool_name": USE}}

    assert f"call '{name}' directly" in said(await send(Workbench(), USE, nested))


async def test_a_call_of_an_unknown_tool_name_passes_through_middleware() -> None:
    host, recorder = Workbench(), Recorder()
    host.board.use(recorder)

    await send(host, USE, {"tool_name": "dev__calc__ad"})

    assert [(step.hook, step.tool) for step in recorder.steps] == [
        ("before", "dev__calc__ad"),
        ("error", "dev__calc__ad"),
    ]


async def test_what_a_caller_may_not_see_is_not_there() -> None:
    host = Workbench()
    host.restrict({"who": "*", "allow": ["ops/*"], "hide": ["dev/*"]})

    hidden = said(await send(host, USE, {"tool_name": "dev__calc__add", "arguments": SUM}))
    listed = await told(host, LIST)
    found = await told(host, SEARCH, {"query": "adds two numbers", "detail": "name"})

    assert hidden == "isError: Error: Toolbox 'dev' not found"
    assert [one["name"] for one in listed["toolboxes"]] == ["ops"]
    assert listed["total_count"] == 1
    assert "dev" not in str(found)
    assert said(await send(host, OPEN, {"toolbox_name": "dev"})).endswith("not found. Available toolboxes: ops")
    assert "dev" not in host.meta.instructions(host.allowed)


async def test_tools_withheld_from_a_caller_are_not_counted() -> None:
    host = Workbench()
    host.restrict({"who": "*", "allow": ["dev/calc/add"]})

    listed = await told(host, LIST)
    opened = await told(host, OPEN, {"toolbox_name": "dev"})
    found = await told(host, SEARCH, {"query": "circle numbers files"})

    assert [(one["name"], one["tool_count"]) for one in listed["toolboxes"]] == [("dev", 1)]
    assert [one["name"] for one in opened["tools"]] == ["dev__calc__add"]
    assert found["found"] == 1


@settings(max_examples=examples(15), deadline=None)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: (
            st.lists(inner)
            | st.dictionaries(
                st.sampled_from(["tool", "name", "tool_name", "server", "toolbox", "toolbox_name", "arguments"])
                | st.text(),
                inner,
            )
        ),
    )
)
async def test_whatever_a_meta_tool_is_sent_it_answers(value: Json) -> None:
    host = _ANY
    for name in (USE, OPEN, SEARCH, LIST, CLOSE, "get_tool_details"):
        said(await send(host, name, msgspec.json.encode(value)))


_ANY = Workbench()


# -- toolboxes -------------------------------------------------------------------------------------------------------------


async def test_toolboxes_are_listed_with_the_tools_that_they_really_have() -> None:
    assert await told(Workbench(), LIST) == {
        "toolboxes": [
            {"name": "dev", "description": "Files and\n  sums", "tool_count": 4, "is_open": False},
            {"name": "ops", "description": "Deployments", "tool_count": 2, "is_open": False},
        ],
        "total_count": 2,
        "open_count": 0,
    }


@pytest.mark.parametrize("spelling", ["toolbox_name", "toolbox", "name"])
@pytest.mark.parametrize("meta_tool", [OPEN, "open_toolbox"])
async def test_opening_a_toolbox_answers_with_the_definitions_of_its_tools(meta_tool: str, spelling: str) -> None:
    host = Workbench()
    opened = await told(host, meta_tool, {spelling: "dev"})
    tools = {one["name"]: one for one in opened.pop("tools")}

    assert opened == {"toolbox": "dev", "description": "Files and\n  sums", "servers_connected": 2}
    assert list(tools) == ["dev__calc__add", "dev__calc__pi", "dev__files__echo", "dev__files__fail"]
    add = host.board.tools.find("dev__calc__add").definition()
    where = {"server": "calc", "toolbox": "dev", "source_server": "calc", "toolbox_name": "dev"}
    assert tools["dev__calc__add"] == {**add, **where}
    assert "icons" not in tools["dev__calc__pi"]
    assert host.settled == ["dev"]


async def test_every_name_that_opening_tells_can_be_called() -> None:
    host = Workbench()
    opened = await told(host, OPEN, {"toolbox_name": "dev"})

    for tool in opened["tools"]:
        by_name = await send(host, USE, {"tool_name": tool["name"], "arguments": SUM})
        place = {"toolbox": tool["toolbox"], "server": tool["server"], "name": tool["name"]}
        assert await send(host, USE, {"tool": place, "arguments": SUM}) == by_name
        assert "not found" not in said(by_name)


async def test_an_unknown_toolbox_is_answered_with_those_there_are() -> None:
    assert said(await send(Workbench(), OPEN, {"toolbox_name": "x"})) == (
        "isError: Error: Toolbox 'x' not found. Available toolboxes: dev, ops"
    )


async def test_a_server_that_is_down_does_not_keep_the_others_from_being_opened() -> None:
    down = structs.replace(
        TOOLBOXES[0], servers=(ServerStatus("calc"), ServerStatus("git", "failed", "cannot be reached"))
    )
    host = Workbench(toolboxes=(down,))

    opened = await told(host, OPEN, {"toolbox_name": "dev"})
    listed = await told(host, LIST)
    found = await told(host, SEARCH, {"query": "add"})

    assert opened["servers_connected"] == 1
    assert opened["servers"] == listed["toolboxes"][0]["servers"] == {"git": "cannot be reached"}
    assert found["not_searched"] == {"dev/git": "cannot be reached"}


async def test_a_toolbox_none_of_whose_servers_answers_cannot_be_opened() -> None:
    host = Workbench(toolboxes=(Toolbox("empty", "", (ServerStatus("git", "failed", "cannot be reached"),)),))

    assert said(await send(host, OPEN, {"toolbox_name": "empty"})) == (
        "isError: Error opening toolbox 'empty': Failed to connect to MCP server 'git': cannot be reached"
    )


async def test_a_call_of_a_tool_on_an_idle_server_connects_that_server() -> None:
    idle = structs.replace(TOOLBOXES[0], servers=(ServerStatus("calc", "idle"), ServerStatus("files")))
    host = Workbench(toolboxes=(idle,))
    directory, host.directory = host.directory, type(host.directory)()

    async def settle(toolbox: str) -> None:
        host.settled.append(toolbox)
        host.directory = directory

    host.wait_connected = settle  # type: ignore[method-assign]  # a server that has its tools once it is asked

    assert said(await send(host, USE, {"tool_name": "dev__calc__add", "arguments": SUM})) == "5"
    assert host.settled == ["dev"]


async def test_opening_tells_what_the_servers_say_of_themselves() -> None:
    servers = (ServerStatus("calc", instructions="Add first. " * 1_000),)
    host = Workbench(toolboxes=(Toolbox("dev", "", servers),))

    opened = await told(host, OPEN, {"toolbox_name": "dev"})

    assert opened["instructions"]["calc"].startswith("Add first.")
    assert len(opened["instructions"]["calc"]) <= 2_000


async def test_a_session_opens_and_closes_what_it_is_listed() -> None:
    host = Workbench("dynamic")
    host.remembered = {}
    ear = Ear()
    before = host.names("s1")

    await send(host, OPEN, {"toolbox_name": "ops"}, session="s1", channel=ear)
    await send(host, OPEN, {"toolbox_name": "ops"}, session="s1", channel=ear)
    opened = host.names("s1")
    listed = await told(host, LIST, session="s1")
    closed = said(await send(host, CLOSE, {"toolbox_name": "ops"}, session="s1", channel=ear))
    again = said(await send(host, CLOSE, {"toolbox_name": "ops"}, session="s1", channel=ear))

    assert before == [LIST, OPEN, CLOSE, SEARCH, USE]
    assert opened == [*before, "ops__deploy__roll_out", "ops__deploy__build"]
    assert host.names("s2") == host.names("s1") == before
    assert (listed["open_count"], [one["is_open"] for one in listed["toolboxes"]]) == (1, [False, True])
    assert ear.heard == ["notifications/tools/list_changed"] * 2
    assert closed == "Successfully closed toolbox 'ops' and unregistered tools."
    assert again == "isError: Toolbox 'ops' is not currently open"


async def test_opening_changes_no_list_where_nothing_is_remembered_or_nothing_need_be() -> None:
    ear = Ear()
    modern, proxy = Workbench("dynamic"), Workbench("proxy")
    proxy.remembered = {}
    for host in (modern, proxy):
        await send(host, OPEN, {"toolbox_name": "ops"}, session="s1", channel=ear)
        assert host.names("s1") == [LIST, OPEN, SEARCH, USE]

    assert ear.heard == []
    assert proxy.remembered == {}


# -- search ----------------------------------------------------------------------------------------------------------------


async def test_search_answers_in_three_degrees_of_detail_by_server() -> None:
    host = Workbench()
    name = await told(host, SEARCH, {"query": "add numbers", "detail": "name", "limit": 1})
    brief = await told(host, SEARCH, {"query": "add numbers", "detail": "brief", "limit": 1})
    full = await told(host, SEARCH, {"query": "add numbers", "limit": 1})

    def tools(answer: Any) -> Any:
        assert [(group["toolbox"], group["server"]) for group in answer["servers"]] == [("dev", "calc")]
        return answer["servers"][0]["tools"]

    assert tools(name) == ["dev__calc__add"]
    assert tools(brief) == [{"name": "dev__calc__add", "description": "Adds two numbers."}]
    assert tools(full) == [host.board.tools.find("dev__calc__add").definition()]


async def test_search_keeps_to_a_toolbox_and_to_its_limit() -> None:
    host = Workbench()
    everywhere = await told(host, SEARCH, {"query": "a service or numbers", "detail": "name"})
    within = await told(host, SEARCH, {"query": "a service or numbers", "toolbox": "ops", "detail": "name", "limit": 1})
    unknown = said(await send(host, SEARCH, {"query": "x", "toolbox_name": "nope"}))

    assert {group["toolbox"] for group in everywhere["servers"]} == {"dev", "ops"}
    assert [group["toolbox"] for group in within["servers"]] == ["ops"]
    assert unknown == "isError: Error: Toolbox 'nope' not found. Available toolboxes: dev, ops"


async def test_search_that_finds_nothing_says_what_to_do() -> None:
    found = await told(Workbench(), SEARCH, {"query": "zzzz"})

    assert (found["found"], found["servers"]) == (0, [])
    assert "workbench_list_toolboxes" in found["hint"]


async def test_a_tool_s_details_are_its_definition_and_where_it_is() -> None:
    details = await told(Workbench(), "get_tool_details", {"tool": {"toolbox": "dev", "server": "calc", "name": "pi"}})

    assert (details["name"], details["source_server"], details["toolbox_name"]) == ("dev__calc__pi", "calc", "dev")


# -- as they are shown -----------------------------------------------------------------------------------------------------


async def test_a_client_is_listed_them_and_can_call_each() -> None:
    host = Workbench()
    async with Client(host.board) as client:
        for name, arguments in (
            (LIST, {}),
            (OPEN, {"toolbox_name": "dev"}),
            (SEARCH, {"query": "add"}),
            (USE, {"tool_name": "dev__calc__add", "arguments": SUM}),
        ):
            assert not (await client.call(name, arguments)).is_error


def test_they_cost_a_model_little() -> None:
    shown = Workbench().meta.listed(Visibility(), None)
    costs = {one["name"]: tokens_of(one) for one in shown}
    print(costs, sum(costs.values()))

    assert sum(costs.values()) < 500


def test_names_are_those_that_people_know() -> None:
    known = {
        "workbench_list_toolboxes",
        "workbench_open_toolbox",
        "workbench_close_toolbox",
        "workbench_use_tool",
        "search_tools",
        "open_toolbox",
        "use_tool",
        "get_tool_details",
        "call_tool",
    }
    assert known == META_NAMES
    assert {tool.name for tool in MetaTools(Workbench()).tools} == META_NAMES
