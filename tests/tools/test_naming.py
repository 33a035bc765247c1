"""What tools are called."""

from __future__ import annotations

from functools import partial
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pegboard.errors import DeclarationError
from pegboard.tools.naming import (
    NameSuggestions,
    check_name,
    counted,
    find_misspelt,
    fold_case,
    humanise,
    snake_case,
    suggest,
)
from tests.work import count_calls


@pytest.mark.parametrize(
    ("name", "snake"),
    [
        ("AddNumbersTool", "add_numbers_tool"),
        ("HTTPRequest", "http_request"),
        ("getHTTPResponse", "get_http_response"),
        ("add_numbers", "add_numbers"),
        ("Add", "add"),
        ("getUser2", "get_user2"),
        ("A", "a"),
        ("_private", "private"),
        ("already_Mixed", "already_mixed"),
        ("__", "__"),
    ],
)
def test_snake_case_splits_at_humps_and_keeps_acronyms_whole(name: str, snake: str) -> None:
    assert snake_case(name) == snake


@pytest.mark.parametrize(
    ("name", "title"),
    [
        ("AddNumbers", "Add Numbers"),
        ("add_numbers_tool", "Add Numbers Tool"),
        ("HTTPRequest", "HTTP Request"),
        ("memory.search", "Memory Search"),
        ("get-user", "Get User"),
        ("Add", "Add"),
    ],
)
def test_a_title_is_the_name_for_people(name: str, title: str) -> None:
    assert humanise(name) == title


@pytest.mark.parametrize("name", ["a", "getUser", "DATA_EXPORT_v2", "admin.tools.list", "a-b", "x" * 128])
def test_names_the_protocol_takes_are_taken(name: str) -> None:
    check_name(name, "here")


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("", "the tool name is empty"),
        ("x" * 129, "has 129 characters; at most 128"),
        ("two words", r"contains ' '; use only A-Z a-z 0-9 _ \. -; try 'two_words'"),
        ("a/b", "; try 'a_b'"),
        ("größe", "; try 'gr_e'"),
        ("name\n", "; try 'name'"),
        ("<lambda>", "a lambda has no name; pass one"),
    ],
)
def test_other_names_are_refused_with_the_fix(name: str, says: str) -> None:
    with pytest.raises(DeclarationError, match=says):
        check_name(name, "here")


def test_names_a_model_would_confuse_fold_to_the_same() -> None:
    assert fold_case("getUser") == fold_case("get-user") == fold_case("get_user")
    assert fold_case("get_user") != fold_case("get_users")


def test_suggestions_come_likeliest_first_and_at_most_three() -> None:
    names = ["get_user", "get_users", "put_user", "set_user", "delete_everything"]
    assert suggest("get-user", names)[0] == "get_user"
    assert suggest("gte_user", names)[0] == "get_user"
    assert len(suggest("get_user", names)) == 3
    assert suggest("user", names) == ["get_user", "put_user", "set_user"]
    assert suggest("weather", names) == []
    assert suggest("", names) == []


def test_a_slip_is_a_letter_or_two_and_no_other_word() -> None:
    names = ["args", "env", "idleTimeout", "toolFilters"]
    assert [find_misspelt(name, names) for name in ("arg", "idletimeout", "tool_filtres")] == [
        "args",
        "idleTimeout",
        "toolFilters",
    ]
    assert [find_misspelt(name, names) for name in ("dev", "environment", "initTimeout", "")] == [None] * 4


def test_to_find_what_was_meant_among_thousands_of_long_names_costs_little() -> None:
    names = [f"{'read_the_file_of_a_project_' * 4}{number}" for number in range(4_000)]
    meant = names[17].replace("read", "raed", 1)
    assert suggest(meant, names)[0] == names[17]
    for choose in (suggest, find_misspelt):
        assert count_calls(partial(choose, meant, names)) < 100_000


def test_suggestions_to_callers_take_a_share_of_the_time_and_no_more() -> None:
    now = 0.0
    ticks = count(0.0, 0.15)
    suggestions = NameSuggestions(lambda: now, lambda: next(ticks))
    found = [suggestions.suggest("serach", ["search"]) for _ in range(4)]
    assert found == [["search"], ["search"], [], []]
    now = 2.0
    assert [suggestions.suggest("serach", ["search"]) for _ in range(2)] == [["search"], []]
    now = 100.0
    assert [suggestions.suggest("serach", ["search"]) for _ in range(3)] == [["search"], ["search"], []]


def test_one_thing_is_not_several() -> None:
    assert [counted(number, "tool") for number in (0, 1, 2)] == ["0 tools", "1 tool", "2 tools"]


@given(st.text(max_size=40), st.lists(st.text(max_size=40), max_size=20))
def test_suggestions_are_taken_from_the_names(name: str, names: list[str]) -> None:
    found = suggest(name, names)
    assert set(found) <= set(names)
    assert len(found) <= 3
    exact = [other for other in names if fold_case(other) == fold_case(name) and fold_case(name)]
    assert not exact or found[0] in exact


@given(st.from_regex(r"[A-Za-z][A-Za-z0-9_]{0,60}", fullmatch=True))
def test_the_snake_case_of_an_identifier_is_a_name(name: str) -> None:
    check_name(snake_case(name), "here")
    assert snake_case(snake_case(name)) == snake_case(name)
