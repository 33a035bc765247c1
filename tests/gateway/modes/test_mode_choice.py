"""Modes: which tools whom is listed, by whose word, and what that costs."""

from __future__ import annotations

import itertools
from typing import get_args

import msgspec
import pytest
from msgspec import structs

from pegboard import Client
from pegboard.auth.principal import ANONYMOUS
from pegboard.call_target import CalledItem
from pegboard.config.rule_keys import read_rules
from pegboard.gateway.modes.meta_tool_definitions import CLOSE, LIST, OPEN, SEARCH, USE
from pegboard.gateway.modes.meta_tool_host import Mode, Toolbox, Visibility
from pegboard.gateway.modes.mode_choice import ModeChoice, TokenCounts, choose_modes, count_costs
from pegboard.gateway.modes.tool_directory import Directory, DirectoryEntry
from pegboard.middleware.observability.token_count import tokens_of
from pegboard.rules.verdicts import Rules
from pegboard.tools.qualified_names import ToolName
from tests.gateway.meta_tool_board import TOOLBOXES, Workbench, said, send
from tests.gateway.sample_tools import directory

EVERYONE = Visibility()
META = [LIST, OPEN, SEARCH, USE]
DEV = ["dev__calc__add", "dev__calc__pi", "dev__files__echo", "dev__files__fail"]
OPS = ["ops__deploy__roll_out", "ops__deploy__build"]


def with_mode(toolbox: Toolbox, mode: Mode | None) -> Toolbox:
    return structs.replace(toolbox, mode=mode)


@pytest.mark.parametrize(
    ("mode", "listed"), [("all", DEV + OPS), ("proxy", META), ("dynamic", META), ("auto", DEV + OPS)]
)
def test_a_caller_of_whom_nothing_is_remembered_is_listed_by_the_mode(mode: Mode, listed: list[str]) -> None:
    assert Workbench(mode).names() == listed


def test_a_session_is_listed_what_it_opened_in_dynamic_mode_alone() -> None:
    listed = {}
    for mode in get_args(Mode):
        host = Workbench(mode)
        host.remembered = {"s": frozenset({"ops"})}
        listed[mode] = host.names("s")

    assert listed == {
        "all": DEV + OPS,
        "dynamic": [LIST, OPEN, CLOSE, SEARCH, USE, *OPS],
        "proxy": META,
        "auto": DEV + OPS,
    }


def test_the_narrowest_word_counts() -> None:
    modes: list[Mode | None] = [None, "all", "dynamic", "proxy"]
    for gateway, endpoint, toolbox, principal in itertools.product(["all", "proxy"], modes, modes, modes):
        choice = ModeChoice(gateway, endpoint)
        chosen = choice.of(with_mode(TOOLBOXES[0], toolbox), Visibility(mode=principal))
        assert chosen == next(one for one in (principal, endpoint, toolbox, gateway) if one is not None)


def test_a_toolbox_may_be_shown_beside_others_that_are_not() -> None:
    toolboxes = (with_mode(TOOLBOXES[0], "all"), with_mode(TOOLBOXES[1], "proxy"))

    assert Workbench("all", toolboxes=toolboxes).names() == META + DEV


def test_auto_lists_all_while_they_cost_no_more_than_the_threshold() -> None:
    tools = directory()
    toolboxes = [Toolbox(name) for name in ("code", "office")]
    cost = sum(tokens_of(one.definition) for one in tools if one.place.toolbox in ("code", "office"))

    def modes(threshold: int, access: Visibility = EVERYONE) -> set[str]:
        return set(choose_modes(toolboxes, tools, ModeChoice("auto", None, threshold), access, TokenCounts()).values())

    assert modes(cost) == {"all"}
    assert modes(cost - 1) == {"proxy"}
    # Whoever may see fewer is shown them all sooner.
    rules = Rules(read_rules([{"who": "*", "allow": ["code/*"]}]), located=True)
    tools = Directory(structs.replace(one, tool=CalledItem(name=one.name, toolbox=one.place.toolbox)) for one in tools)
    assert modes(cost - 1, Visibility(rules.view(ANONYMOUS))) == {"all"}


def test_what_is_said_of_a_toolbox_is_not_left_to_auto() -> None:
    toolboxes = [Toolbox("code", mode="all"), Toolbox("office"), Toolbox("web", mode="dynamic")]
    modes = choose_modes(toolboxes, directory(), ModeChoice("auto", None, 0), EVERYONE, TokenCounts())

    assert modes == {"code": "all", "office": "proxy", "web": "dynamic"}


def test_in_proxy_mode_the_list_is_the_same_bytes_whatever_changes() -> None:
    host = Workbench("proxy")
    before = msgspec.json.encode(host.meta.listed(EVERYONE, None))

    host.board.remove("dev__calc__add")
    host.refresh()
    fewer = msgspec.json.encode(host.meta.listed(EVERYONE, frozenset({"dev"})))
    host.toolboxes = ()
    none = msgspec.json.encode(host.meta.listed(EVERYONE, None))

    assert before == fewer == none


async def test_tools_go_by_the_same_names_in_every_mode() -> None:
    listed = set(Workbench("all").names())
    for mode in ("proxy", "dynamic"):
        host = Workbench(mode)
        opened: set[str] = set()
        for toolbox in ("dev", "ops"):
            told = msgspec.json.decode(said(await send(host, OPEN, {"toolbox_name": toolbox})))
            opened |= {tool["name"] for tool in told["tools"]}
        assert opened == listed


def test_only_modes_that_list_server_tools_wait_for_servers() -> None:
    shows = {mode: Workbench(mode).meta.shows_tools for mode in get_args(Mode)}

    assert shows == {"all": True, "dynamic": False, "proxy": False, "auto": True}


def test_no_toolboxes_are_no_tools() -> None:
    assert Workbench("all", toolboxes=()).names() == []
    assert Workbench("auto", toolboxes=()).names() == []
    assert Workbench("dynamic", toolboxes=()).names() == META


def test_a_caller_is_listed_only_what_it_may_see() -> None:
    host = Workbench("all")
    host.restrict({"who": "*", "hide": ["ops/*"], "allow": ["dev/calc/pi", "ops/deploy/build"]})

    assert host.names() == ["dev__calc__pi"]


# -- instructions ----------------------------------------------------------------------------------------------------------


def test_instructions_list_the_toolboxes_and_how_to_use_them() -> None:
    assert Workbench("proxy").meta.instructions() == (
        "Available Toolboxes:\n\n"
        "dev (2 servers)\n  Description: Files and sums\n\n"
        "ops (1 server)\n  Description: Deployments\n\n"
        "Use workbench_open_toolbox to get the tools of a toolbox, or search_tools to find them, then "
        "workbench_use_tool to invoke tools.\n\n"
        "Example tool invocation:\n"
        '{"name":"workbench_use_tool","arguments":{"tool_name":"dev__calc__add","arguments":{"a":10,"b":10}}}'
    )


@pytest.mark.parametrize("toolbox", ["dev", "ops"])
async def test_the_example_of_the_instructions_works_as_it_stands(toolbox: str) -> None:
    host = Workbench("proxy", toolboxes=[one for one in TOOLBOXES if one.name == toolbox])
    example = msgspec.json.decode(host.meta.instructions().rpartition("\n")[2])

    async with Client(host.board) as client:
        result = await client.call(example["name"], example["arguments"])

    assert not result.is_error
    assert example["name"] == (USE if toolbox == "dev" else OPEN)


def test_instructions_say_less_where_all_is_listed_and_something_where_nothing_is() -> None:
    assert Workbench("all").meta.instructions().endswith("ops (1 server)\n  Description: Deployments")
    assert Workbench("proxy", toolboxes=()).meta.instructions().startswith("No toolboxes configured. ")


# -- costs -----------------------------------------------------------------------------------------------------------------


def test_each_mode_has_its_price() -> None:
    host = Workbench()
    costs = host.meta.costs()
    all_of_them = {entry.name: tokens_of(entry.definition) for entry in host.directory}

    assert (costs.tools, costs.all) == (6, sum(all_of_them.values()))
    assert costs.proxy == sum(map(tokens_of, host.meta.listed(EVERYONE, None)))
    assert costs.dynamic > costs.proxy
    assert costs.opened["ops"] == costs.dynamic + sum(all_of_them[name] for name in OPS)
    assert costs.dynamic_whole == costs.dynamic + costs.all


def test_few_tools_are_not_said_to_cost_less_in_proxy_mode() -> None:
    meta = Workbench().meta.listed(EVERYONE, None)
    one, *_, proxy = count_costs(Directory(list(directory())[:1]), meta, meta).lines()
    *_, nothing = count_costs(Directory(), meta, meta).lines()

    assert one.startswith("all: 1 tool, about")
    assert proxy.endswith("tokens, not less than all")
    assert nothing.endswith("tokens, not less than all")


def test_a_thousand_tools_cost_next_to_nothing_in_proxy_mode() -> None:
    shed = list(directory())
    many = []
    for number in range(1_000):
        one = shed[number % len(shed)]
        place = ToolName(one.place.toolbox, f"{one.place.server}-{number // len(shed)}", one.place.tool)
        many.append(DirectoryEntry(place.qualified, place, {**one.definition, "name": place.qualified}))
    meta = Workbench().meta.listed(EVERYONE, None)
    costs = count_costs(Directory(many), meta, meta)
    print(*costs.lines(), sep="\n")

    assert costs.saved > 0.99
    assert [line.partition(":")[0] for line in costs.lines()] == ["all", "dynamic", "proxy"]
