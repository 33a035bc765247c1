"""Variables in a configuration: what is put in, what stays, what is told when one is missing, and that none is shown."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pegboard.config.gateway_config import read_config
from pegboard.config.mistakes import ConfigReport, ExpandedText, UnresolvedText
from pegboard.config.variables import Input, Variables, VariableSyntax
from pegboard.errors import SetupError

NAMES = st.from_regex(r"[A-Z_][A-Z0-9_]{0,12}", fullmatch=True)
ENVIRONS = st.dictionaries(NAMES, st.text(max_size=20), max_size=4)


def put(value: Any, environ: dict[str, str] | None = None, syntax: VariableSyntax | None = None) -> Any:
    notes = ConfigReport("a.json")
    found = Variables(environ or {}, notes, syntax).expand(value)
    notes.raise_if_any()
    return found


def refused(value: Any, environ: dict[str, str] | None = None, syntax: VariableSyntax | None = None) -> str:
    with pytest.raises(SetupError) as caught:
        put(value, environ, syntax)
    return str(caught.value).partition("\n- ")[2]


@pytest.mark.parametrize(
    ("text", "becomes"),
    [
        ("${A}", "one"),
        ("x${A}y${B}z", "xoneyz"),
        ("${A:-other}", "one"),
        ("${B:-other}", ""),
        ("${NOT_SET:-other}", "other"),
        ("${NOT_SET:-}", ""),
        ("${NOT_SET:-a:-b}", "a:-b"),
        ("${NOT_SET:-$A}", "$A"),
        ("${env:A}", "one"),
        ("${env:lower}", "small"),
        ("${env:NOT_SET:-other}", "other"),
        ("$${A}", "${A}"),
        ("$$${A}", "$${A}"),
        # What a shell may want is not ours.
        ("$A", "$A"),
        ("${lower}", "${lower}"),
        ("${A#x}", "${A#x}"),
        ("${A:?x}", "${A:?x}"),
        ("${1}", "${1}"),
        ("${}", "${}"),
        ("${input:token}", "${input:token}"),
        ("a } b", "a } b"),
        ("$", "$"),
    ],
)
def test_a_text_becomes(text: str, becomes: str) -> None:
    assert put(text, {"A": "one", "B": "", "lower": "small"}) == becomes


def test_texts_are_found_at_any_depth_and_in_keys() -> None:
    tree = {"${A}": [{"x-${A}": ["${A}", 1, None, True, 2.5]}], "b": {"c": "${A}"}}
    assert put(tree, {"A": "one"}) == {"one": [{"x-one": ["one", 1, None, True, 2.5]}], "b": {"c": "one"}}


def test_keys_that_become_the_same_are_refused() -> None:
    assert refused({"b": {"one": 1, "${A}": 2}}, {"A": "one"}) == (
        "b.'${A}': this key is given twice after its variables were expanded; remove one of them"
    )


def test_a_missing_variable_is_reported_with_its_location_and_a_fix() -> None:
    assert refused({"toolboxes": {"dev": {"description": ["a", "${TOKEN}"]}}}) == (
        "Environment variable expansion failed\n"
        "  Variable: TOKEN\n"
        "  Location: config.toolboxes.dev.description[1]\n"
        "  Reason: Variable is not set\n"
        "\n"
        "Set the environment variable before starting server:\n"
        "  export TOKEN=value"
    )


def test_an_unclosed_brace_is_reported() -> None:
    assert refused({"a": "x${TOKEN"}) == (
        "Environment variable expansion failed\n"
        "  Variable: ${TOKEN\n"
        "  Location: config.a\n"
        "  Reason: Malformed syntax: unclosed brace"
    )


def test_a_default_holds_no_other_variable() -> None:
    assert "Reason: Malformed syntax: a default cannot hold another variable" in refused({"a": "${A:-${B}}"})


def test_every_missing_variable_is_reported_without_follow_up_errors(tmp_path: Path) -> None:
    server = {"command": "${ONE}", "timeout": "${TWO}", "lazy": "${THREE}", "env": {"X": "${ONE}"}, "args": ["${FOUR}"]}
    file = tmp_path / "pegboard.json"
    file.write_text(json.dumps({"toolboxes": {"dev": {"description": "x", "mcpServers": {"fs": server}}}}))
    problem = read_config(file, {}).toolboxes["dev"].servers["fs"].problem
    assert re.findall(r"set (\w+) in the environment", problem) == ["ONE", "TWO", "THREE", "ONE", "FOUR"]
    assert problem.startswith("toolboxes.dev.mcpServers.fs.command: Variable is not set: set ONE")


def test_numbers_and_flags_may_come_from_variables(tmp_path: Path) -> None:
    server = {"command": "a", "timeout": "${T}", "concurrency": "${C:-7}", "lazy": "${L}", "share": "${S:-session}"}
    file = tmp_path / "pegboard.json"
    file.write_text(json.dumps({"toolboxes": {"dev": {"description": "x", "mcpServers": {"fs": server}}}}))
    found = read_config(file, {"T": "2.5", "L": "Yes"}).toolboxes["dev"].servers["fs"]
    assert (found.timeout, found.concurrency, found.lazy, found.share) == (2.5, 7, True, "session")
    with pytest.raises(SetupError, match=r"lazy.*got text from a variable, expected true or false"):
        read_config(file, {"T": "2.5", "L": "perhaps"})


def test_a_word_in_small_letters_is_left_with_a_warning() -> None:
    notes = ConfigReport("a.json")
    assert Variables({"path": "x"}, notes).expand({"a": "${path}"}) == {"a": "${path}"}
    assert notes.warnings == ["a: ${path} is kept as it is: names of variables are upper-case"]


def test_gemini_writes_variables_without_braces() -> None:
    notes = ConfigReport("a.json")
    variables = Variables({"TOKEN": "abc", "lower": "x"}, notes, VariableSyntax(bare=True))
    assert variables.expand(["$TOKEN", "a-$lower!", "${TOKEN}", "$NOT_SET", "$5", "$${TOKEN}"]) == [
        "abc", "a-x!", "abc", "$NOT_SET", "$5", "${TOKEN}",
    ]  # fmt: skip
    assert notes.warnings == ["[3]: $NOT_SET is not set in the environment, and is kept as it is"]


def test_what_vs_code_asks_a_person_for_is_read_from_the_environment() -> None:
    syntax = VariableSyntax(
        fixed={"workspaceFolder": "/work"},
        inputs={"github-token": Input("GitHub token"), "level": Input(default="info")},
    )
    environ = {"PEGBOARD_INPUT_GITHUB_TOKEN": "abcdef"}
    assert put("${input:github-token} ${input:level} ${workspaceFolder}/x", environ, syntax) == "abcdef info /work/x"
    assert refused({"a": "${input:github-token}"}, {}, syntax) == (
        "Environment variable expansion failed\n"
        "  Variable: PEGBOARD_INPUT_GITHUB_TOKEN\n"
        "  Location: config.a\n"
        "  Reason: ${input:github-token} is an input (GitHub token); here it is read from the environment\n"
        "\n"
        "Set the environment variable before starting server:\n"
        "  export PEGBOARD_INPUT_GITHUB_TOKEN=value"
    )


def test_what_variables_held_is_a_secret_unless_every_program_has_it() -> None:
    notes = ConfigReport("a.json")
    variables = Variables({"TOKEN": "secret-value", "HOME": "/home/ada", "SHORT": "abc"}, notes)
    variables.expand(["${TOKEN}", "${HOME}/x", "${SHORT}", "${NOT_SET:-written-in-clear}"])
    assert notes.secrets == {"secret-value"}


@given(st.text(), ENVIRONS)
def test_a_text_without_a_dollar_stays_as_it_is(text: str, environ: dict[str, str]) -> None:
    plain = text.replace("$", "")
    found = put(plain, environ)
    assert found == plain
    assert type(found) is str


@given(NAMES, st.text(), st.text(), st.text())
def test_whatever_a_variable_holds_is_put_in_once_and_not_looked_through(
    name: str, value: str, before: str, after: str
) -> None:
    before, after = before.replace("$", ""), after.replace("$", "")
    found = put(f"{before}${{{name}}}{after}", {name: value})
    assert found == f"{before}{value}{after}"
    assert type(found) is ExpandedText


@given(NAMES, st.text().filter(lambda text: "}" not in text and "${" not in text), ENVIRONS)
def test_a_default_counts_only_where_the_variable_is_not_set(name: str, default: str, environ: dict[str, str]) -> None:
    assert put(f"${{{name}:-{default}}}", environ) == environ.get(name, default)


@given(st.text(alphabet="${}:-AB_a x", max_size=30), ENVIRONS)
def test_any_text_is_expanded_or_refused_and_nothing_else(text: str, environ: dict[str, str]) -> None:
    notes = ConfigReport("a.json")
    found = Variables(environ, notes).expand(text)
    assert isinstance(found, UnresolvedText) == (notes.count > 0)
    if notes.count == 0 and "${" not in text:
        assert found == text


TREES = st.recursive(
    st.text(alphabet="${}Ax") | st.integers() | st.none(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(alphabet="${}Ax"), inner, max_size=3),
    max_leaves=8,
)


@given(TREES)
def test_what_was_escaped_comes_back(tree: Any) -> None:
    def escape(value: Any) -> Any:
        match value:
            case str():
                return value.replace("${", "$${")
            case list():
                return [escape(item) for item in value]
            case dict():
                return {escape(key): escape(item) for key, item in value.items()}
        return value

    assert put(escape(tree)) == tree
