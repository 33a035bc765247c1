"""`pegboard lint`: what a principal sees, which rule decided, and rules without effect."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pegboard.cli.commands.setup import lint_command
from pegboard.errors import SetupError
from tests.cli.in_process import logging_restored

BOARD = """
from pegboard import Board

board = Board("notes", rules=[
    {"who": {"scope": "notes.write"}, "allow": ["write"]},
    {"who": {"claim": {"team": "red"}}, "allow": ["delete"]},
    {"who": "*", "allow": ["read"], "hide": ["delete"]},
])


@board.tool
def read() -> None: ...


@board.tool
def write() -> None: ...


@board.tool
def delete() -> None: ...
"""
RULES = [
    {"who": {"role": "admin"}, "allow": ["*"]},
    {"who": "*", "allow": ["office/notes/read"], "hide": ["*/*/delete"]},
]


@pytest.fixture(autouse=True)
def _logging_restored() -> Iterator[None]:
    with logging_restored():
        yield


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notes.py").write_text(BOARD)
    (tmp_path / "plain.py").write_text(BOARD.partition(", rules=")[0] + ")\n" + BOARD.partition("])\n")[2])
    return tmp_path


def configure(folder: Path, rules: Any, **servers: Any) -> None:
    toolbox = {"description": "d", "mcpServers": servers or {"notes": {"board": "plain.py:board"}}}
    (folder / "pegboard.json").write_text(json.dumps({"toolboxes": {"office": toolbox}, "rules": rules}))


def lines(capsys: pytest.CaptureFixture[str]) -> tuple[list[list[str]], str]:
    """What was printed: the words of each line of stdout, and stderr."""
    out, err = capsys.readouterr()
    return [line.split(maxsplit=3) for line in out.splitlines()], err


@pytest.mark.usefixtures("folder")
def test_it_shows_what_a_principal_sees_of_a_board_and_which_rule_decided(capsys: pytest.CaptureFixture[str]) -> None:
    assert lint_command.main(["notes.py", "--as", "ann"]) == 0
    printed, said = lines(capsys)
    assert printed == [
        ["allow", "tool", "read", "rules[2]: allow read"],
        ["deny", "tool", "write", "no rule matches; allowed with the scope notes.write"],
        ["hide", "tool", "delete", "rules[2]: hide delete"],
    ]
    assert said == ("'ann' sees 2 of 3 items\nif 'ann' is the name of an API key, its id is 'key:ann': --as key:ann\n")

    assert lint_command.main(["notes.py", "--as", "ann", "--scope", "notes.write", "--claim", "team=red"]) == 0
    assert [line[0] for line in lines(capsys)[0]] == ["allow", "allow", "allow"]


def test_it_warns_of_a_client_secret_that_the_server_can_direct_to_any_authorization_server(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    auth = {"kind": "client_credentials", "clientId": "team", "clientSecret": "s"}
    bound = {**auth, "issuer": "https://login.example.com"}
    off = {"url": "https://mcp.example.com/mcp", "enabled": False}
    configure(folder, [], free={**off, "auth": auth}, bound={**off, "auth": bound})
    assert lint_command.main(["pegboard.json"]) == 1
    (warning,) = capsys.readouterr().err.splitlines()
    assert "office/free: auth has a clientSecret and no 'issuer'" in warning


def test_it_shows_what_a_principal_sees_of_a_gateway(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    configure(folder, RULES)
    assert lint_command.main(["pegboard.json", "--as", "ann", "--json"]) == 0
    found = {one["item"]: one for one in json.loads(capsys.readouterr().out)["items"]}
    assert found["office/notes/read"]["verdict"] == "allow"
    assert found["office/notes/delete"]["rule"] == "rules[1]: hide */*/delete"
    assert found["office/notes/write"] == {
        "kind": "tool",
        "item": "office/notes/write",
        "verdict": "deny",
        "listed": False,
        "rule": "no rule matches",
    }
    assert found["search_tools"]["kind"] == "meta-tool"

    assert lint_command.main(["pegboard.json", "--as", "ann", "--role", "admin"]) == 0
    assert {line[0] for line in lines(capsys)[0]} == {"allow"}


def test_it_shows_which_calls_need_an_approval_and_warns_where_approvers_are_anonymous(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    configure(folder, [{"tools": ["office/notes/delete"], "approve": {"role": "lead"}}])
    assert lint_command.main(["pegboard.json", "--as", "ann"]) == 1
    printed, said = lines(capsys)
    asked = "all rules are about approvals; another person with the role lead has to approve it (rules[0]: approve office/notes/delete)"
    assert ["allow", "tool", "office/notes/delete", asked] in printed
    assert ["allow", "tool", "office/notes/read", "all rules are about approvals"] in printed
    assert "rules[0].approve: without 'auth', callers over HTTP are anonymous" in said


def test_a_pattern_that_matches_nothing_is_reported(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    configure(folder, [{"who": "*", "allow": ["office/notes/raed", {"kind": "console"}, "office/*"]}])
    assert lint_command.main(["pegboard.json"]) == 1
    out, err = capsys.readouterr()
    assert out.startswith("pegboard.json: 1 problem, ")
    assert err == "pegboard lint: rules[0]: allow office/notes/raed: matches nothing that is served\n"


def test_an_unknown_toolbox_or_server_in_a_pattern_is_reported(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    configure(folder, [{"who": "*", "allow": ["offcie/*", "office/ntoes/*", "*"]}])
    assert lint_command.main(["pegboard.json"]) == 1
    said = capsys.readouterr().err
    assert "rules[0].allow[0]: there is no toolbox 'offcie'; did you mean 'office'?" in said
    assert "rules[0].allow[1]: the toolbox 'office' has no server 'ntoes'; did you mean 'notes'?" in said


def test_a_server_that_cannot_be_reached_is_reported(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    configure(
        folder,
        [{"who": "*", "allow": ["office/gone/x"]}],
        notes={"board": "plain.py:board"},
        gone={"command": "no-such-program-here"},
    )
    assert lint_command.main(["pegboard.json", "--as", "ann"]) == 3
    printed, said = lines(capsys)
    assert [line[2] for line in printed if line[1] == "tool"] == [
        f"office/notes/{n}" for n in ("read", "write", "delete")
    ]
    assert "office/gone cannot be reached" in said
    assert "matches nothing" not in said


def test_a_pattern_without_a_toolbox_is_a_mistake(folder: Path) -> None:
    configure(folder, [{"who": "*", "allow": ["office"]}])
    with pytest.raises(SetupError) as caught:
        lint_command.main(["pegboard.json"])
    assert "write 'office/*' for a toolbox, or '*/*/office' for items of that name" in str(caught.value)


def test_the_attributes_of_a_principal_need_a_principal(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        lint_command.main(["pegboard.json", "--scope", "x"])
    assert ended.value.code == 2
    assert "add --as PRINCIPAL" in capsys.readouterr().err


@pytest.mark.usefixtures("folder")
def test_rules_without_problems_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    assert lint_command.main(["notes.py"]) == 0
    assert capsys.readouterr() == ("notes.py: 0 problems, 3 items checked\n", "")
