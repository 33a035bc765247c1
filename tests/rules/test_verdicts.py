"""The verdicts of rules: which rule decides, which scopes would help, and who shares a verdict."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pegboard.auth.principal import ANONYMOUS, Principal
from pegboard.config.rule_keys import read_rules
from pegboard.errors import DeclarationError
from pegboard.rules.rule import Item, Rule, canonical_uri
from pegboard.rules.verdicts import Rules, Verdict

ADMIN = Principal("ada", roles=frozenset({"admin"}))
WRITER = Principal("wim", scopes=frozenset({"notes.write"}))
GUEST = Principal("gus")

EXAMPLE: list[dict[str, Any]] = [
    {"who": {"role": "admin"}, "allow": ["*"]},
    {"who": {"scope": "notes.write"}, "allow": ["office/notes/*"]},
    {"who": "*", "allow": ["everyday/*"], "hide": ["*/*/delete_*"]},
]


def gateway_rules(*rules: dict[str, Any]) -> Rules:
    return Rules(read_rules(rules), located=True)


def tool(path: str, **about: Any) -> Item:
    toolbox, server, name = path.split("/", 2)
    return Item(kind="tool", toolbox=toolbox, server=server, name=name, **about)


def effect(rules: Rules, principal: Principal, item: Item) -> str:
    return rules.verdict(principal, item).effect


def test_the_first_rule_that_matches_caller_and_item_decides() -> None:
    rules = gateway_rules(*EXAMPLE)
    assert effect(rules, ADMIN, tool("office/notes/delete_all")) == "allow"
    assert effect(rules, WRITER, tool("office/notes/delete_all")) == "allow"
    assert effect(rules, GUEST, tool("everyday/clock/now")) == "allow"
    assert effect(rules, GUEST, tool("office/mail/send")) == "deny"


def test_within_a_rule_hide_goes_before_deny_and_deny_before_allow() -> None:
    rules = gateway_rules({"who": "*", "allow": ["*"], "deny": ["*/*/d*"], "hide": ["*/*/delete_*"]})
    assert effect(rules, GUEST, tool("a/b/delete_x")) == "hide"
    assert effect(rules, GUEST, tool("a/b/draw")) == "deny"
    assert effect(rules, GUEST, tool("a/b/read")) == "allow"


def test_everything_is_allowed_without_rules_and_denied_without_a_match() -> None:
    assert gateway_rules().verdict(ANONYMOUS, tool("a/b/c")) == Verdict("allow", "there are no rules")
    verdict = gateway_rules({"who": "someone", "allow": ["*"]}).verdict(ANONYMOUS, tool("a/b/c"))
    assert verdict == Verdict("deny", "no rule matches", (), listed=False)


def test_the_verdict_names_the_rule_that_decided() -> None:
    rules = gateway_rules(*EXAMPLE)
    assert rules.verdict(GUEST, tool("everyday/clock/delete_x")).rule == "rules[2]: hide */*/delete_*"
    rules = gateway_rules({"who": "*", "deny": [{"match": "a/*", "tag": "slow"}]})
    assert rules.verdict(GUEST, tool("a/b/c", tags=frozenset({"slow"}))).rule == (
        'rules[0]: deny {"match":"a/*","tag":["slow"]}'
    )


@pytest.mark.parametrize(
    ("who", "principal", "holds"),
    [
        ("*", ANONYMOUS, True),
        ({"principal": "*"}, ANONYMOUS, True),
        ("gus", GUEST, True),
        ("Gus", GUEST, False),
        ("gu\u0308s", Principal("g\u00fcs"), False),
        (["ada", "gus"], GUEST, True),
        ({"principal": ["ada", "wim"]}, GUEST, False),
        ({"role": ["staff", "admin"]}, ADMIN, True),
        ({"scope": "notes.write"}, WRITER, True),
        ({"scope": "notes.write notes.read"}, WRITER, False),
        ({"scope": ["notes.read", "notes.write"]}, WRITER, True),
        ({"role": "admin", "scope": "notes.write"}, ADMIN, False),
        ([{"role": "admin"}, {"scope": "notes.write"}], WRITER, True),
        ({"claim": {"team": "red"}}, Principal("x", claims={"team": "red"}), True),
        ({"claim": {"team": "red"}}, Principal("x", claims={"team": ["blue", "red"]}), True),
        ({"claim": {"team": ["red", "blue"]}}, Principal("x", claims={"team": "blue"}), True),
        ({"claim": {"realm.tier": 2}}, Principal("x", claims={"realm": {"tier": 2}}), True),
        ({"claim": {"https://x/y.z": "v"}}, Principal("x", claims={"https://x/y.z": "v"}), True),
        ({"claim": {"verified": True}}, Principal("x", claims={"verified": 1}), False),
        ({"claim": {"team": "red"}}, GUEST, False),
    ],
)
def test_a_rule_is_about_callers_for_whom_every_condition_holds(who: Any, principal: Principal, holds: bool) -> None:
    rules = gateway_rules({"who": who, "allow": ["*"]})
    assert (effect(rules, principal, tool("a/b/c")) == "allow") is holds


@pytest.mark.parametrize(
    ("what", "item", "matches"),
    [
        ("*", Item(kind="console", name="restart"), True),
        ("*", Item(kind="meta-tool", name="search_tools"), True),
        ("a/*", tool("a/b/c"), True),
        ("a/*", tool("ab/b/c"), False),
        ("a/b", tool("a/b/c"), True),
        ("a/b/c", tool("a/b/c"), True),
        ("a/b/c", tool("a/b/C"), False),
        ("*/*/c?", tool("a/b/cd"), True),
        ("*/b/*", tool("a/b/c"), True),
        ("*/*/*", Item(kind="console", name="restart"), False),
        ("a/b/notes://x/*", Item(kind="resource", toolbox="a", server="b", name="notes://x/y/z"), True),
        ({"kind": "prompt"}, tool("a/b/c"), False),
        ({"kind": ["prompt", "tool"], "match": "a/*"}, tool("a/b/c"), True),
        ({"kind": "console"}, Item(kind="console", name="restart"), True),
        ({"kind": "console", "match": "re*"}, Item(kind="console", name="restart"), True),
        ({"kind": "console", "match": "stop"}, Item(kind="console", name="restart"), False),
        ({"category": "data"}, tool("a/b/c", category="data"), True),
        ({"category": "data"}, tool("a/b/c"), False),
        ({"tag": ["x", "y"]}, tool("a/b/c", tags=frozenset({"y", "z"})), True),
        ({"tag": "x", "category": "data"}, tool("a/b/c", tags=frozenset({"x"})), False),
        ({"annotation": {"readOnlyHint": True}}, tool("a/b/c", annotations={"readOnlyHint": True}), True),
        ({"annotation": {"readOnlyHint": True}}, tool("a/b/c"), False),
    ],
)
def test_a_pattern_matches_items_that_fulfil_every_condition(what: Any, item: Item, matches: bool) -> None:
    rules = gateway_rules({"who": "*", "deny": [what]}, {"who": "*", "allow": ["*", {"kind": "meta-tool"}]})
    assert (effect(rules, GUEST, item) == "deny") is matches


def test_an_annotation_that_is_not_vouched_for_has_the_value_that_the_protocol_assumes() -> None:
    rules = gateway_rules(
        {"who": "*", "deny": [{"annotation": {"destructiveHint": True}}]},
        {"who": "*", "allow": [{"annotation": {"openWorldHint": False}}]},
    )
    assert effect(rules, GUEST, tool("a/b/c")) == "deny"
    assert effect(rules, GUEST, tool("a/b/c", annotations={"destructiveHint": False})) == "deny"
    safe = {"readOnlyHint": True, "openWorldHint": False}
    assert effect(rules, GUEST, tool("a/b/c", annotations=safe)) == "allow"


def test_patterns_of_a_board_are_names() -> None:
    rules = Rules(read_rules([{"who": "*", "allow": ["notes.*", "memo://a/*"]}]))
    assert effect(rules, GUEST, Item(kind="tool", name="notes.add")) == "allow"
    assert effect(rules, GUEST, Item(kind="resource", name="memo://a/b/c")) == "allow"
    assert effect(rules, GUEST, Item(kind="tool", name="send")) == "deny"


def test_a_meta_tool_is_allowed_unless_a_rule_covers_it() -> None:
    item = Item(kind="meta-tool", name="search_tools")
    assert effect(gateway_rules({"who": "*", "allow": ["a/*"]}), GUEST, item) == "allow"
    assert effect(gateway_rules({"who": "*", "hide": ["*"]}), GUEST, item) == "hide"
    assert effect(gateway_rules({"who": "*", "deny": [{"kind": "meta-tool"}]}), GUEST, item) == "deny"


# -- scopes ------------------------------------------------------------------------------------------------------------


def test_a_denial_names_all_scopes_that_would_help() -> None:
    rules = gateway_rules({"who": {"scope": "notes.read notes.write"}, "allow": ["office/*"]})
    verdict = rules.verdict(WRITER, tool("office/notes/add", scopes=frozenset({"mail"})))
    assert verdict == Verdict("deny", "no rule matches", ("mail", "notes.read", "notes.write"), listed=True)


def test_a_denial_names_the_scopes_of_which_the_fewest_are_missing() -> None:
    rules = gateway_rules({"who": {"scope": ["a b", "notes.write c", "d e f"]}, "allow": ["*"]})
    assert rules.verdict(WRITER, tool("x/y/z")).scopes == ("c", "notes.write")


def test_scopes_do_not_help_where_another_rule_would_still_deny() -> None:
    rules = gateway_rules(
        {"who": {"scope": "blocked"}, "deny": ["*"]},
        {"who": {"scope": "blocked"}, "allow": ["*"]},
        {"who": {"role": "admin", "scope": "more"}, "allow": ["*"]},
    )
    assert rules.verdict(GUEST, tool("a/b/c")) == Verdict("deny", "no rule matches", (), listed=False)
    assert rules.verdict(ADMIN, tool("a/b/c")).scopes == ("more",)


def test_what_is_hidden_stays_hidden_whatever_scope_would_help() -> None:
    rules = gateway_rules({"who": {"scope": "more"}, "allow": ["*"]}, {"who": "*", "hide": ["*"]})
    assert rules.verdict(GUEST, tool("a/b/c")) == Verdict("hide", "rules[1]: hide *", (), listed=False)


def test_an_item_needs_its_own_scopes_even_if_a_rule_allows_it() -> None:
    rules = Rules()
    item = Item(kind="tool", name="add", scopes=frozenset({"notes.write", "notes.read"}))
    assert rules.verdict(WRITER, item).scopes == ("notes.read", "notes.write")
    whole = Principal("x", scopes=frozenset({"notes.write", "notes.read", "other"}))
    assert rules.verdict(whole, item).effect == "allow"
    assert rules.verdict(Principal("", kind="anonymous"), item).effect == "deny"
    assert rules.verdict(Principal("me", kind="local"), item).effect == "allow"


def test_only_a_token_can_get_more_scopes_so_others_do_not_see_what_they_cannot_use() -> None:
    rules = gateway_rules({"who": {"scope": "more"}, "allow": ["*"]})
    verdict = rules.verdict(Principal("x", kind="key"), tool("a/b/c"))
    assert (verdict.scopes, verdict.listed) == (("more",), False)
    assert rules.verdict(Principal("x", kind="token"), tool("a/b/c")).listed


# -- resources ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("uri", "canonical"),
    [
        ("notes://a/b", "notes://a/b"),
        ("FILE:///a/./b/../c", "file:///a/c"),
        ("file:///public/%2e%2e/secret", "file:///secret"),
        ("file:///public%2F..%2Fsecret", "file:///secret"),
        ("file:///public/%252e%252e/secret", "file:///secret"),
        ("file:///a/../../..", "file:///"),
        ("file:///a/..", "file:///"),
        ("memo:a%20b", "memo:a b"),
        ("memo:../x", "memo:x"),
        ("x://HOST/Path", "x://host/Path"),
        ("file:///a\\..\\b", "file:///b"),
        ("plain", "plain"),
    ],
)
def test_the_canonical_form_of_a_uri(uri: str, canonical: str) -> None:
    assert canonical_uri(uri) == canonical


def resource(uri: str, template: str = "") -> Item:
    return Item(kind="resource", toolbox="a", server="b", name=uri, template=template)


def test_another_spelling_of_a_uri_is_not_allowed_and_does_not_avoid_a_rule() -> None:
    rules = gateway_rules(
        {"who": "*", "hide": ["*/*/file:///secret/*"]}, {"who": "*", "allow": ["*/*/file:///public/*"]}
    )
    assert effect(rules, GUEST, resource("file:///public/a")) == "allow"
    assert effect(rules, GUEST, resource("file:///public/../secret/a")) == "hide"
    assert effect(rules, GUEST, resource("file:///%73ecret/a")) == "hide"
    assert effect(rules, GUEST, resource("file:///public/../other")) == "deny"


def test_a_uri_that_is_too_long_to_be_compared_is_denied() -> None:
    rules = gateway_rules({"who": "*", "hide": ["*/*/*secret*"], "allow": ["*"]})
    assert effect(rules, GUEST, resource("x://" + "a" * 8_000)) == "allow"
    verdict = rules.verdict(GUEST, resource("x://" + "a" * 10_000))
    assert verdict == Verdict("deny", "its name is too long to be compared with patterns", (), listed=False)
    assert effect(Rules(), GUEST, resource("x://" + "a" * 10_000)) == "allow"


def test_a_pattern_may_be_written_as_the_uri_is() -> None:
    rules = gateway_rules(
        {"who": "*", "allow": ["*/*/notes://Inbox/a%20b", "*/*/x:[ab]*"], "hide": ["*/*/notes://OUT/*"]}
    )
    assert effect(rules, GUEST, resource("notes://Inbox/a%20b")) == "allow"
    assert effect(rules, GUEST, resource("notes://inbox/a%20b")) == "deny"
    assert effect(rules, GUEST, resource("x:b/1")) == "allow"
    assert effect(rules, GUEST, resource("notes://out/1")) == "hide"


def test_a_uri_of_a_template_is_hidden_with_its_template_and_allowed_by_its_exact_name() -> None:
    template = "notes://{name}"
    hidden = gateway_rules({"who": "*", "hide": ["a/b/notes://{*"]}, {"who": "*", "allow": ["*"]})
    assert effect(hidden, GUEST, resource("notes://x", template)) == "hide"
    named = gateway_rules({"who": "*", "allow": ["a/b/notes://{name}"]})
    assert effect(named, GUEST, resource("notes://x", template)) == "allow"
    assert effect(named, GUEST, resource("notes://x")) == "deny"
    wide = gateway_rules({"who": "*", "allow": ["a/b/file:///public/*"]})
    assert effect(wide, GUEST, resource("file:///public/../etc", "file:///public/{+path}")) == "deny"


# -- servers -----------------------------------------------------------------------------------------------------------


def test_a_server_is_visible_if_the_caller_may_see_something_of_it() -> None:
    view = gateway_rules(*EXAMPLE).view(WRITER)
    assert view.may_see("everyday")
    assert view.may_see("everyday", "clock")
    assert view.may_see("office")
    assert view.may_see("office", "notes")
    assert not view.may_see("office", "mail")
    assert not view.may_see("backup")
    # With a token, the scope that is missing can be obtained.
    assert gateway_rules(*EXAMPLE).view(GUEST).may_see("office", "notes")
    assert not gateway_rules(*EXAMPLE).view(Principal("x", kind="key")).may_see("office", "notes")
    assert gateway_rules().view(GUEST).may_see("any", "thing")
    closed = gateway_rules({"who": "*", "hide": ["backup/*"]}, {"who": "*", "allow": ["*"]}).view(GUEST)
    assert not closed.may_see("backup")
    assert closed.may_see("office")
    partly = gateway_rules({"who": "*", "hide": ["backup/tapes"]}, {"who": "*", "allow": ["*"]}).view(GUEST)
    assert partly.may_see("backup")
    assert not partly.may_see("backup", "tapes")


# -- sharing -----------------------------------------------------------------------------------------------------------


def test_callers_with_the_same_rights_share_a_view() -> None:
    rules = gateway_rules(*EXAMPLE)
    assert rules.view(GUEST) is rules.view(Principal("someone else"))
    assert rules.view(GUEST) is not rules.view(WRITER)


def test_the_same_caller_with_other_scopes_has_another_verdict() -> None:
    rules = gateway_rules(*EXAMPLE)
    before = Principal("wim")
    assert before == WRITER
    assert effect(rules, before, tool("office/notes/add")) == "deny"
    assert effect(rules, WRITER, tool("office/notes/add")) == "allow"
    assert effect(rules, before, tool("office/notes/add")) == "deny"


# -- mistakes ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rules", "said"),
    [
        ("*", "use a list"),
        ([{"allow": ["*"]}], "[0]: a rule has no 'who'; add 'who'"),
        ([{"who": "*"}], "[0]: has no effect; add 'allow', 'deny' or 'hide'"),
        ([{"who": "*", "alow": ["*"]}], "did you mean 'allow'?"),
        ([{"who": {"scopes": "x"}, "allow": ["*"]}], "did you mean 'scope'?"),
        ([{"who": "*", "allow": "*"}], "put it in brackets"),
        ([{"who": "*", "allow": [{"kind": "tools"}]}], "[0].allow[0].kind"),
        ([{"who": 3, "allow": ["*"]}], "[0].who"),
        ([{"tools": ["*"], "approve": "other"}], 'got "other", expected one of "self", "others", "none"'),
        ([{"tools": ["*"], "approve": {"roles": "lead"}}], "did you mean 'role'?"),
        ([{"tools": ["*"], "approve": {}}], "[0].approve: an approver has no 'role'; add 'role'"),
        ([{"tools": ["*"], "approve": True}], "[0].approve"),
        ([{"tools": ["*"]}], "[0]: has 'tools' and no 'approve'"),
        ([{"who": "*", "allow": ["*"], "firstUse": True}], "[0]: has 'firstUse' and no 'approve'"),
        ([{"approve": "self"}], "[0]: has no effect; add 'tools'"),
        ([{"who": "*", "allow": ["*"], "tools": ["*"], "approve": "self"}], "write two rules"),
        ([{"tools": [{"kind": "prompt"}], "approve": "self"}], "only calls of tools can be approved"),
    ],
)
def test_a_mistake_in_a_rule_is_reported_with_its_place_and_fix(rules: Any, said: str) -> None:
    with pytest.raises(DeclarationError) as caught:
        read_rules(rules)
    assert said in str(caught.value)


# -- against a plain interpreter of the text of the rules --------------------------------------------------------------

NAMES = st.sampled_from(["a", "b", "ab", "delete_a"])
PATTERNS = st.one_of(
    st.just("*"),
    st.builds("{}/*".format, st.sampled_from(["a", "b", "*"])),
    st.builds("{}/{}/{}".format, *[st.sampled_from(["a", "b", "*", "a*", "?", "delete_*"])] * 3),
)
SCOPES = st.frozensets(st.sampled_from(["r", "w", "x"]))
WHO = st.one_of(
    st.just("*"),
    st.sampled_from(["ann", "bob"]),
    st.fixed_dictionaries(
        {},
        optional={
            "principal": st.sampled_from(["ann", "bob"]),
            "scope": st.sampled_from(["r", "w", "r w", ["r w", "x"]]),
            "role": st.sampled_from(["admin", "staff"]),
        },
    ),
)
RULES = st.lists(
    st.fixed_dictionaries({"who": st.one_of(WHO, st.lists(WHO, min_size=1, max_size=2))}).flatmap(
        lambda who: st.fixed_dictionaries(
            {"allow": st.lists(PATTERNS, min_size=1, max_size=2)},
            optional={"deny": st.lists(PATTERNS, max_size=2), "hide": st.lists(PATTERNS, max_size=2)},
        ).map(lambda what: {**who, **what})
    ),
    max_size=4,
)
PRINCIPALS = st.builds(
    Principal,
    st.sampled_from(["ann", "bob", ""]),
    scopes=SCOPES,
    roles=st.frozensets(st.sampled_from(["admin", "staff"])),
    kind=st.sampled_from(["token", "key"]),
)
ITEMS = st.builds(tool, st.builds("{}/{}/{}".format, NAMES, NAMES, NAMES))


def plainly(rules: list[dict[str, Any]], principal: Principal, item: Item) -> str:
    """The verdict by reading the rules one after the other."""

    def is_meant(who: Any) -> bool:
        if isinstance(who, list):
            return any(map(is_meant, who))
        if isinstance(who, str):
            return who in ("*", principal.id)
        options = [who["scope"]] if isinstance(who.get("scope"), str) else who.get("scope", [""])
        return (
            who.get("principal", principal.id) == principal.id
            and ("role" not in who or who["role"] in principal.roles)
            and any(set(option.split()) <= principal.scopes for option in options)
        )

    def is_named(pattern: str) -> bool:
        if pattern == "*":
            return True
        parts = pattern.split("/")
        parts += ["*"] * (3 - len(parts))
        return all(map(fnmatchcase, (item.toolbox, item.server, item.name), parts))

    for rule in rules:
        if is_meant(rule["who"]):
            for effect in ("hide", "deny", "allow"):
                if any(map(is_named, rule.get(effect, []))):
                    return effect
    return "deny" if rules else "allow"


@given(RULES, PRINCIPALS, ITEMS)
def test_the_compiled_rules_decide_as_a_plain_reading_of_them(
    rules: list[dict[str, Any]], principal: Principal, item: Item
) -> None:
    compiled = Rules(read_rules(rules), located=True)
    verdict = compiled.verdict(principal, item)
    assert verdict.effect == plainly(rules, principal, item)
    if verdict.scopes:
        more = Principal(principal.id, principal.scopes | set(verdict.scopes), principal.roles, kind=principal.kind)
        assert verdict.effect == "deny"
        assert plainly(rules, more, item) == "allow"
    if verdict.effect == "deny" and not verdict.scopes:
        every = Principal(principal.id, frozenset({"r", "w", "x"}), principal.roles)
        assert plainly(rules, every, item) != "allow" or any(map(helps_partly, rules))


def helps_partly(rule: dict[str, Any]) -> bool:
    """Whether a set of scopes may be needed that no single rule names."""
    return "deny" in rule or "hide" in rule


def test_a_rule_is_a_value_that_python_can_write_too() -> None:
    assert read_rules([Rule(who=(), allow=())][:0]) == ()
    (rule,) = read_rules([{"who": ("ann", "bob"), "allow": {"*"}}])
    assert read_rules([rule]) == (rule,)
