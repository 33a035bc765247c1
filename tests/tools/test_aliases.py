"""Names that an endpoint or provider takes: readable, stable, and the way back."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pegboard.tools.naming import ANY, DOTLESS, GEMINI, NameMap, NameRule

valid_names = st.from_regex(r"[A-Za-z0-9_.-]{1,128}", fullmatch=True)
# Short names over few letters, so that they collide.
near_names = st.text("ab._-", min_size=1, max_size=4)
name_sets = st.lists(valid_names | near_names, unique=True, max_size=30)
rules = st.sampled_from([DOTLESS, GEMINI, ANY, NameRule(longest=16), NameRule(letters="a-z_", longest=12)])


def test_a_name_that_is_taken_stays() -> None:
    names = NameMap(["add_numbers", "Get-User"])
    assert dict(names) == {"add_numbers": "add_numbers", "Get-User": "Get-User"}
    assert names.changed() == {}


def test_a_dot_becomes_an_underscore_without_a_tail() -> None:
    names = NameMap(["memory.search"])
    assert names.alias("memory.search") == "memory_search"
    assert names.name("memory_search") == "memory.search"


def test_a_tail_follows_only_where_the_name_is_cut() -> None:
    long = "toolbox__server__" + "x" * 100
    alias = NameMap([long]).alias(long)
    assert len(alias) == 64
    assert alias.startswith("toolbox__server__xxx")
    assert NameMap([long, "other"]).alias(long) == alias


def test_names_that_would_share_an_alias_get_distinct_ones_and_an_exact_name_keeps_its_own() -> None:
    names = NameMap(["a.b", "a_b", "x.y_z", "x_y.z"])
    assert names.alias("a_b") == "a_b"
    assert names.alias("a.b").startswith("a_b_")
    assert len({alias for _, alias in names}) == 4


def test_an_alias_we_did_not_give_is_returned_as_it_is() -> None:
    assert NameMap(["a.b"]).name("unknown") == "unknown"
    with pytest.raises(KeyError):
        NameMap(["a.b"]).alias("unknown")


def test_gemini_names_begin_with_a_letter_and_keep_their_dots() -> None:
    names = NameMap(["1st.tool", "a.b"], GEMINI)
    assert dict(names) == {"1st.tool": "_1st.tool", "a.b": "a.b"}


@given(name_sets, rules)
def test_a_name_map_is_a_bijection_onto_names_the_rule_takes(names: list[str], rule: NameRule) -> None:
    mapped = NameMap(names, rule)
    assert [name for name, _ in mapped] == names
    assert len({alias for _, alias in mapped}) == len(names) == len(mapped)
    for name, alias in mapped:
        assert rule.admits(alias)
        assert mapped.name(alias) == name
        assert mapped.alias(name) == alias
        assert alias == name or not rule.admits(name)


@given(name_sets, rules, st.randoms(use_true_random=False))
def test_the_order_of_the_names_does_not_matter(names: list[str], rule: NameRule, dice: random.Random) -> None:
    shuffled = list(names)
    dice.shuffle(shuffled)
    assert dict(NameMap(names, rule)) == dict(NameMap(shuffled, rule))


@given(name_sets, valid_names)
def test_a_newcomer_changes_only_the_names_it_would_share_an_alias_with(names: list[str], newcomer: str) -> None:
    before, after = NameMap(names), NameMap([*names, newcomer])
    taken = DOTLESS.replace_invalid(newcomer)
    for name, alias in before:
        if alias != taken:
            assert after.alias(name) == alias
