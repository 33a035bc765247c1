"""`pegboard add` and `pegboard remove`: servers of a configuration, whose other text stays."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from pegboard.config.gateway_config import read_config
from tests.cli.in_process import run_here

TOML = """\
# our servers
[toolboxes.office]
description = "Office" # for everyone

[toolboxes.office.mcpServers.notes]
command = "notes" # the notes
"""
JSON = """{
    // our servers
    "toolboxes": {
        "office": {"description": "Office", "mcpServers": {"notes": {"command": "notes"}}}, // one line
    }
}
"""


@pytest.mark.parametrize("name", ["pegboard.json", "pegboard.toml"])
def test_a_configuration_is_created_filled_and_emptied(home: Path, name: str) -> None:
    assert run_here("add", "memory", "--to", name, "--env", "A=1", "--", "npx", "-y", "memory")[0] == 0
    assert run_here("add", "docs", "https://d.example/mcp", "--to", name, "--header", "X-Key: ${KEY}")[0] == 0
    assert run_here("add", "tools", "tools.py:board", "--to", name)[0] == 0
    servers = read_config(name, {"KEY": "k"}).toolboxes["main"].servers
    assert servers["memory"].command == ("npx", "-y", "memory")
    assert servers["docs"].headers == {"X-Key": "k"}
    assert servers["tools"].kind == "board"
    for server in ("docs", "memory", "tools"):
        assert run_here("remove", server, "--from", name)[0] == 0
    assert read_config(name, {}).toolboxes == {}


@pytest.mark.parametrize(("name", "text"), [("pegboard.toml", TOML), ("pegboard.json", JSON)])
def test_the_rest_of_a_configuration_stays(home: Path, name: str, text: str) -> None:
    Path(name).write_text(text)
    code, out, err = run_here("add", "docs", "https://d.example/mcp")
    assert code == 0
    assert f"+++ {Path(name).absolute()}" in out
    assert "the old file is" in err
    assert set(read_config(name, {}).toolboxes["office"].servers) == {"notes", "docs"}
    assert run_here("remove", "docs")[0] == 0
    assert Path(name).read_text() == text


def test_what_changed_is_printed_as_json(home: Path) -> None:
    file = str(Path("pegboard.json").absolute())
    for words, action in (
        (("add", "docs", "https://d.example/mcp"), "add"),
        (("add", "docs", "https://e.example/mcp", "--replace"), "replace"),
        (("remove", "docs"), "remove"),
    ):
        code, out, err = run_here(*words, "--json")
        assert (code, err) == (0, "")
        shown = json.loads(out)
        assert shown.pop("backup", file).startswith(file)
        assert shown == {"file": file, "action": action, "servers": ["docs"], "written": True}
    assert read_config("pegboard.json", {}).toolboxes == {}


def test_the_file_of_a_client_can_be_used_as_a_configuration(home: Path) -> None:
    path = Path("codex.toml")
    path.write_text('model = "m"\n')
    path.write_text('[mcp_servers.a]\ncommand = "a"\n')
    assert run_here("add", "b", "https://b.example/mcp", "--to", "codex.toml")[0] == 0
    assert tomllib.loads(path.read_text())["mcp_servers"]["b"] == {"url": "https://b.example/mcp"}
    assert run_here("remove", "a", "--from", "codex.toml")[0] == 0
    assert list(tomllib.loads(path.read_text())["mcp_servers"]) == ["b"]


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["add", "notes", "other"], "already has a server 'notes'; use --replace, or another name"),
        (["add", "a__b", "other"], "a__b"),
        (["add", "x", "https://x.example", "--env", "A=1"], "--env is for a command"),
        (["add", "x", "y", "--header", "A: b"], "--header is for a URL"),
        (["add", "x", "ftp://x.example/mcp", "--toolbox", "a b"], "a b"),
        (["add", "x", "absent.py"], "Nothing was written: with this change, "),
        (["add", "x"], "add one server: a URL, a file, or a command after --"),
        (["remove", "note"], "has no server 'note'; did you mean 'notes'?"),
    ],
)
def test_a_mistake_is_explained_and_nothing_is_written(home: Path, words: list[str], problem: str) -> None:
    Path("pegboard.toml").write_text(TOML)
    code, _, err = run_here(*words)
    assert code == 2
    assert problem in err
    assert Path("pegboard.toml").read_text() == TOML
    assert not list(Path().glob("*backup*"))


def test_a_server_is_replaced_on_request(home: Path) -> None:
    Path("pegboard.toml").write_text(TOML)
    assert run_here("add", "notes", "--replace", "--", "other", "word")[0] == 0
    assert Path("pegboard.toml").read_text() == TOML.replace('"notes" #', '"other" #') + 'args = ["word"]\n'
