"""Names through the gateway: the contract of seeds/002, aliases, plain names, and the sentences about wrong ones."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pegboard.errors import SetupError
from pegboard.tools.naming import NameMap, NameRule
from pegboard.tools.qualified_names import (
    SMALLEST_BUDGET,
    ToolName,
    check_part,
    delegation_error,
    dropped_because,
    explain_unknown,
    in_result,
    invalid_format,
    join_name,
    parse_name,
    serve_names,
    server_not_found,
    tool_not_found,
    toolbox_not_found,
)

# Few letters, so that names collide and separators pile up.
legal_parts = st.from_regex(r"[aB0-](_?[aB0-]){0,6}", fullmatch=True)
any_tool = st.text(min_size=1, max_size=40) | st.text("ab._-", min_size=1, max_size=6)
tool_names = st.builds(ToolName, legal_parts, legal_parts, any_tool)
tool_sets = st.lists(tool_names, unique=True, max_size=12)
budgets = st.integers(SMALLEST_BUDGET, 128)


def mended(tool: str) -> str:
    return NameMap([tool], NameRule(longest=10_000)).alias(tool)


# seeds/002, generateToolName and parseToolName


@pytest.mark.parametrize(
    ("parts", "name"),
    [
        (("dev", "filesystem", "read_file"), "dev__filesystem__read_file"),
        (("dev", "filesystem", "read_file_async_v2"), "dev__filesystem__read_file_async_v2"),
        (("prod", "memory", "store_value_async"), "prod__memory__store_value_async"),
        (("test", "server", "my__special__tool"), "test__server__my__special__tool"),
        (("dev", "server", "tool__with__extras"), "dev__server__tool__with__extras"),
    ],
)
def test_a_name_is_made_of_three_parts_and_read_back(parts: tuple[str, str, str], name: str) -> None:
    assert join_name(*parts) == name
    assert parse_name(name) == ToolName(*parts)
    assert ToolName(*parts).qualified == name


@pytest.mark.parametrize(
    "name",
    ["dev__filesystem_read_file", "invalid", "dev__only_two_parts", "", "__", "____", "__a__b", "a____b", "a__b__"],
)
def test_any_other_text_is_rejected_as_a_qualified_name(name: str) -> None:
    assert parse_name(name) is None


@given(legal_parts, legal_parts, any_tool)
def test_whatever_a_tool_is_called_its_name_is_read_back(toolbox: str, server: str, tool: str) -> None:
    check_part(toolbox, "toolbox", "here")
    check_part(server, "server", "here")
    assert parse_name(join_name(toolbox, server, tool)) == ToolName(toolbox, server, tool)


@given(st.text("ab_", max_size=12))
def test_what_is_read_is_written_the_same(name: str) -> None:
    parsed = parse_name(name)
    assert parsed is None or parsed.qualified == name


# names of toolboxes and servers


@pytest.mark.parametrize("name", ["dev", "a", "-", "My-Box_2", "0"])
def test_a_legal_part_is_taken(name: str) -> None:
    check_part(name, "toolbox", "config.json")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("", "the name of the server is empty"),
        ("a__b", "contains '__', which separates toolbox, server and tool; try 'a_b'"),
        ("_a", "starts or ends with '_', which would merge with the '__' beside it; try 'a'"),
        ("a_", "starts or ends with '_'"),
        ("my server", "may contain only A-Z a-z 0-9 _ -; try 'my-server'"),
        ("näme", "may contain only A-Z a-z 0-9 _ -; try 'n-me'"),
        ("a\n", "may contain only"),
        ("世界", "may contain only A-Z a-z 0-9 _ -"),
    ],
)
def test_an_illegal_part_is_refused_with_the_place_and_a_fix(name: str, said: str) -> None:
    with pytest.raises(SetupError) as caught:
        check_part(name, "server", "config.json: toolboxes.dev")
    assert str(caught.value).startswith("config.json: toolboxes.dev: ")
    assert said in str(caught.value)


@given(st.text("ab_- ", min_size=1, max_size=8))
def test_what_is_offered_instead_of_an_illegal_part_is_legal(name: str) -> None:
    try:
        check_part(name, "server", "here")
    except SetupError as error:
        if "; try " in str(error):
            check_part(str(error).split("; try '")[1].split("'")[0], "server", "here")


# which tools are dropped


@pytest.mark.parametrize(
    ("name", "why"),
    [
        (None, "no name"),
        (7, "no name"),
        ("", "no name"),
        ("a\nb", "control character"),
        ("a\x7f", "control character"),
        ("\ud800", "control character"),
        ("seen", "lists 'seen' twice"),
    ],
)
def test_a_tool_that_no_name_can_stand_for_is_dropped_with_a_reason(name: object, why: str) -> None:
    assert why in str(dropped_because(name, {"seen"}))


@pytest.mark.parametrize("name", ["a", "a b", "a.b/c", "日本", "x" * 500, "Seen"])
def test_other_odd_names_are_kept(name: str) -> None:
    assert dropped_because(name, {"seen"}) is None


# the names tools go by


def test_names_are_qualified_and_kept_where_every_client_takes_them() -> None:
    tool = ToolName("dev", "fs", "read_file")
    assert serve_names([tool]) == {tool: "dev__fs__read_file"}


def test_letters_that_a_client_refuses_are_replaced_without_a_tail() -> None:
    tools = [ToolName("dev", "notes", "memory.search"), ToolName("dev", "notes", "go/now")]
    assert list(serve_names(tools).values()) == ["dev__notes__memory_search", "dev__notes__go_now"]


def test_a_long_name_is_cut_and_ends_with_a_tail_of_its_own() -> None:
    one, other = (ToolName("development", "filesystem", "x" * 60 + end) for end in "ab")
    served = serve_names([one, other])
    assert served[one] != served[other]
    assert {len(name) for name in served.values()} == {64}
    assert all(name.startswith("development__filesystem__xxx") for name in served.values())
    assert serve_names([one])[one] == served[one] == NameMap([one.qualified]).alias(one.qualified)


def test_a_plain_toolbox_keeps_its_own_names() -> None:
    plain, qualified = ToolName("mine", "fs", "read_file"), ToolName("dev", "fs", "read_file")
    assert serve_names([plain, qualified], plain={"mine"}) == {
        plain: "read_file",
        qualified: "dev__fs__read_file",
    }


def test_plain_names_of_two_servers_that_collide_are_both_qualified_and_no_other_is() -> None:
    one, other, third = (ToolName("mine", *rest) for rest in [("a", "read"), ("b", "read"), ("a", "write")])
    assert serve_names([one, other, third], plain={"mine"}) == {
        one: "mine__a__read",
        other: "mine__b__read",
        third: "write",
    }


def test_plain_names_collide_by_the_name_they_would_go_by() -> None:
    one, other = ToolName("mine", "a", "x.y"), ToolName("mine", "b", "x_y")
    assert serve_names([one, other], plain={"mine"}) == {one: "mine__a__x_y", other: "mine__b__x_y"}


def test_a_plain_name_cannot_pose_as_a_qualified_or_a_reserved_one() -> None:
    real = ToolName("dev", "bank", "pay")
    posing, meta = ToolName("mine", "evil", "dev__bank__pay"), ToolName("mine", "evil", "search_tools")
    assert serve_names([posing, meta, real], plain={"mine"}, reserved={"search_tools"}) == {
        posing: "mine__evil__dev__bank__pay",
        meta: "mine__evil__search_tools",
        real: "dev__bank__pay",
    }


@given(tool_sets, budgets, st.sets(legal_parts, max_size=3))
def test_served_names_are_unique_within_the_budget_and_of_letters_that_all_take(
    tools: list[ToolName], budget: int, more_plain: set[str]
) -> None:
    plain = more_plain | {tool.toolbox for tool in tools[::2]}
    served = serve_names(tools, plain=plain, reserved={"search_tools"}, budget=budget)
    assert served.keys() == set(tools)
    assert len(set(served.values())) == len(tools)
    for name in served.values():
        assert 0 < len(name) <= budget
        assert name.isascii()
        assert set(name) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-")
        assert name != "search_tools"


@given(tool_sets, tool_sets, budgets)
def test_qualified_names_do_not_depend_on_the_other_servers_or_the_order(
    tools: list[ToolName], others: list[ToolName], budget: int
) -> None:
    mine = {(tool.toolbox, tool.server) for tool in tools}
    strangers = [tool for tool in others if (tool.toolbox, tool.server) not in mine]
    alone = serve_names(tools, budget=budget)
    together = serve_names([*strangers, *reversed(tools)], budget=budget)
    assert {tool: together[tool] for tool in tools} == alone


@given(tool_sets, tool_sets)
def test_a_plain_name_changes_only_where_another_server_claims_it(
    tools: list[ToolName], others: list[ToolName]
) -> None:
    mine = {(tool.toolbox, tool.server) for tool in tools}
    strangers = [tool for tool in others if (tool.toolbox, tool.server) not in mine]
    plain = {tool.toolbox for tool in [*tools, *strangers]}
    alone = serve_names(tools, plain=plain)
    together = serve_names([*tools, *strangers], plain=plain)
    claimed = {mended(stranger.tool) for stranger in strangers}
    known = {(stranger.toolbox, stranger.server) for stranger in strangers}
    for tool in tools:
        posed = parse_name(mended(tool.tool))
        if together[tool] != alone[tool]:
            assert mended(tool.tool) in claimed or (posed is not None and (posed.toolbox, posed.server) in known)
            assert together[tool] == serve_names([*tools, *strangers])[tool]


# the error contract


def test_the_sentences_are_the_contracts() -> None:
    assert invalid_format("dev__filesystem_read_file") == (
        "Invalid tool name format 'dev__filesystem_read_file'. Expected format: {toolbox}__{server}__{tool} "
        "(note: double underscores between all components)"
    )
    assert in_result(toolbox_not_found("x")) == "Error: Toolbox 'x' not found"
    assert in_result(server_not_found("s", "t")) == "Error: Server 's' not found in toolbox 't'"
    assert tool_not_found("n", "s", "t") == "Tool 'n' not found in server 's' (toolbox 't')"
    assert delegation_error("t", "s", "n", "it broke") == "[t/s/n] Error: it broke"


SERVED = {
    join_name("dev", "fs", tool): ToolName("dev", "fs", tool)
    for tool in ("read_file", "read_files", "write_file", "rm", "cp")
}
SERVERS = {"dev": ("fs", "memory"), "prod": ("fs",)}


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (
            "dev__fs_read_file",
            "(note: double underscores between all components). Did you mean 'dev__fs__read_file' or ",
        ),
        ("devv__fs__read_file", "Toolbox 'devv' not found. Did you mean 'dev'?"),
        ("other__fs__read_file", "Toolbox 'other' not found"),
        ("dev__memry__x", "Server 'memry' not found in toolbox 'dev'. Did you mean 'memory'?"),
        (
            "dev__fs__raed_file",
            "Tool 'raed_file' not found in server 'fs' (toolbox 'dev'). Did you mean 'dev__fs__read_",
        ),
        ("dev__fs__zz", "Tool 'zz' not found in server 'fs' (toolbox 'dev')"),
        ("prod__fs__rm", "Tool 'rm' not found in server 'fs' (toolbox 'prod')"),
    ],
)
def test_an_unknown_name_is_explained(name: str, said: str) -> None:
    told = explain_unknown(name, SERVED, SERVERS)
    assert said in told
    assert said.endswith(("?", "_", " ")) or told == said


@given(st.text(max_size=2000))
def test_at_most_three_names_are_suggested_and_a_long_name_is_not_echoed_whole(name: str) -> None:
    told = explain_unknown(name, SERVED, SERVERS)
    assert told.count("' or '") <= 2
    assert len(told) < 1000
