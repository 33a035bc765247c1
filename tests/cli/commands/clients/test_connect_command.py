"""`pegboard connect`: the entry of each client, and writing it into files that people wrote."""

from __future__ import annotations

import json
import re
import shlex
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from pegboard.cli.commands.clients.connect_command import name_of
from pegboard.config.foreign.known_clients import CLIENTS
from pegboard.config.source_file import parse_source
from tests.cli.in_process import run_here

URL = "https://shop.example/mcp"
TOKEN = "Authorization: Bearer ${SHOP_TOKEN}"
RUN = [sys.executable, "-m", "pegboard"]

# What a person has in the file of each client before.
SAMPLES = {
    "claude-code": '{\n  "numStartups": 3,\n  "mcpServers": {\n    "git": {"type": "stdio", "command": "git-mcp"}\n  },\n  "projects": {"/a": {"mcpServers": {}}}\n}\n',
    "claude-desktop": '{\n  "mcpServers": {},\n  "globalShortcut": "Ctrl+Space"\n}',
    "codex": 'model = "gpt" # mine\n\n[mcp_servers.docs]\ncommand = "npx"\nargs = ["-y", "docs"]\n\n[tui]\ntheme = "dark"\n',
    "gemini": '{\r\n\t"theme": "GitHub",\r\n\t"mcpServers": {\r\n\t\t"a": {"httpUrl": "https://a.example"} // one\r\n\t}\r\n}\r\n',
    "cursor": '{"mcpServers":{"a":{"url":"https://a.example"}}}',
    "vscode": '// servers of this project\n{\n\t"inputs": [\n\t\t{"id": "other", "type": "promptString"}, // theirs\n\t],\n\t"servers": {\n\t\t/* none */\n\t},\n}\n',
    "windsurf": "",
    "zed": '// Zed settings\n{\n  "theme": "One", // dark\n  "context_servers": {\n    "a": {\n      "source": "custom",\n      "command": "x"\n    },\n  },\n}\n',
    "opencode": '{\n  "$schema": "https://opencode.ai/config.json",\n  "mcp": {\n    "a": { "type": "local", "command": ["a"] }\n  }\n}\n',
}


def parsed(path: Path) -> Any:
    text = path.read_text()
    return parse_source(text, path).tree if text else {}


def entry_of(client: str, *words: str) -> Any:
    code, out, err = run_here("connect", client, "--name", "shop", "--json", *words)
    assert code == 0, err
    return json.loads(out)["entry"]


@pytest.mark.parametrize(
    ("client", "entry"),
    [
        ("claude-code", {"type": "http", "url": URL, "headers": {"Authorization": "Bearer ${SHOP_TOKEN}"}}),
        ("codex", {"url": URL, "bearer_token_env_var": "SHOP_TOKEN"}),
        ("gemini", {"httpUrl": URL, "headers": {"Authorization": "Bearer ${SHOP_TOKEN}"}}),
        ("cursor", {"url": URL, "headers": {"Authorization": "Bearer ${env:SHOP_TOKEN}"}}),
        ("vscode", {"type": "http", "url": URL, "headers": {"Authorization": "Bearer ${input:SHOP_TOKEN}"}}),
        ("windsurf", {"serverUrl": URL, "headers": {"Authorization": "Bearer ${env:SHOP_TOKEN}"}}),
        (
            "opencode",
            {"type": "remote", "enabled": True, "url": URL, "headers": {"Authorization": "Bearer {env:SHOP_TOKEN}"}},
        ),
        *(
            (
                bridged,
                {
                    "command": RUN[0],
                    "args": [*RUN[1:], "up", URL, "--header", "Authorization:Bearer ${SHOP_TOKEN}", "--stdio"],
                },
            )
            for bridged in ("claude-desktop", "zed")
        ),
    ],
)
def test_a_url_has_the_entry_of_each_client_with_a_reference_to_the_secret(
    home: Path, client: str, entry: dict[str, Any]
) -> None:
    assert entry_of(client, URL, "--header", TOKEN) == entry


def test_a_url_without_a_secret_is_an_entry_of_zed_too(home: Path) -> None:
    assert entry_of("zed", URL) == {"url": URL}


def test_boards_configurations_and_commands_become_commands(home: Path) -> None:
    tools = str(Path("tools.py").resolve())
    assert entry_of("cursor", "tools.py:board") == {
        "command": RUN[0],
        "args": [*RUN[1:], "run", f"{tools}:board", "--stdio"],
    }
    assert entry_of("opencode", "--env", "A=1", "--env", "B", "--", "npx", "-y", "x") == {
        "type": "local",
        "enabled": True,
        "command": ["npx", "-y", "x"],
        "environment": {"A": "1", "B": "{env:B}"},
    }
    assert entry_of("codex", "--env", "A=1", "--env", "B", "--", "npx") == {
        "command": "npx",
        "args": [],
        "env": {"A": "1"},
        "env_vars": ["B"],
    }
    assert entry_of("cursor")["args"] == [*RUN[1:], "run", str(Path.cwd()), "--stdio"]
    Path("pegboard.toml").write_text("")
    config = str(Path("pegboard.toml").resolve())
    assert entry_of("claude-desktop") == {"command": RUN[0], "args": [*RUN[1:], "up", config, "--stdio"]}


@pytest.mark.parametrize("client", CLIENTS)
def test_writing_keeps_the_rest_of_a_file_and_a_second_time_changes_nothing(home: Path, client: str) -> None:
    known = CLIENTS[client]
    for scope in known.files:
        path = known.locate(scope, Path.cwd()).path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(SAMPLES[client].encode())
        before = parsed(path)
        words = ("connect", client, URL, "--name", "shop", "--header", TOKEN, "--scope", scope)
        code, out, err = run_here(*words, "--write")
        assert code == 0, err
        assert f"+++ {path}" in out
        assert "backup-" in err
        written = path.read_bytes()
        after = parsed(path)
        assert after[known.root].pop("shop") == entry_of(client, URL, "--header", TOKEN)
        if client == "vscode":
            assert [one["id"] for one in after["inputs"]] == ["other", "SHOP_TOKEN"]
            del after["inputs"][1]
        assert after == {known.root: {}, **before}
        comments = re.findall(r"(?<!:)//.*|/\*.*\*/|#.*", SAMPLES[client])
        assert [comment in written.decode() for comment in comments] == [True] * len(comments)
        assert (b"\r\n" in written) == ("\r\n" in SAMPLES[client])
        code, out, err = run_here(*words, "--write")
        assert (code, out, path.read_bytes()) == (0, "", written)
        assert "nothing to write" in err
        code, out, err = run_here("connect", client, "--name", "shop", "--remove", "--scope", scope)
        assert code == 0
        assert "shop" not in parsed(path)[known.root] if known.root in parsed(path) else True
        code, out, err = run_here("connect", client, "--name", "shop", "--remove", "--scope", scope)
        assert "nothing to remove" in err


@pytest.mark.parametrize(
    ("known", "place"),
    [
        ({"servers": {}}, ("mcp", "servers")),
        ({"servers": {"a": {"type": "local", "command": ["a"]}}}, ("mcp", "servers")),
        ({"servers": {"type": "local", "command": ["a"]}}, ("mcp",)),
        ({}, ("mcp",)),
    ],
)
def test_an_entry_of_opencode_is_written_where_the_file_has_its_servers(
    home: Path, known: dict[str, Any], place: tuple[str, ...]
) -> None:
    file = Path("opencode.json")
    file.write_text(json.dumps({"mcp": known}))
    connect = ("connect", "opencode", "--file", str(file), "--name", "shop")
    for _ in range(2):
        assert run_here(*connect, "--write", URL)[0] == 0
        found = parsed(file)
        for key in place:
            found = found[key]
        assert found["shop"]["url"] == URL
        assert ("shop" in parsed(file)["mcp"]) is (place == ("mcp",))
    assert run_here(*connect, "--remove")[0] == 0
    assert parsed(file) == {"mcp": known}


def test_an_entry_of_another_server_is_replaced_only_on_request_and_keeps_what_a_person_added(home: Path) -> None:
    path = Path(".mcp.json")
    old = {"type": "stdio", "command": "old", "args": ["--token", "sesame-sesame"], "disabled": True}
    path.write_text(json.dumps({"mcpServers": {"shop": old}}))
    words = ("connect", "claude-code", URL, "--scope", "project", "--name", "shop", "--write")
    code, _, err = run_here(*words)
    assert code == 2
    assert "already has a server 'shop': old --token ***; --replace replaces it" in err
    assert json.loads(path.read_text())["mcpServers"]["shop"] == old
    code, out, _ = run_here(*words, "--replace")
    assert code == 0
    assert "sesame" not in out
    assert json.loads(path.read_text())["mcpServers"]["shop"] == {"disabled": True, "type": "http", "url": URL}


def test_what_a_person_added_to_our_entry_stays(home: Path) -> None:
    path = Path(".mcp.json")
    entry = {"type": "http", "url": URL, "headers": {"X-Team": "red"}, "timeout": 9}
    path.write_text(json.dumps({"mcpServers": {"shop": entry}}))
    before = path.read_text()
    assert run_here("connect", "claude-code", URL, "--scope", "project", "--name", "shop", "--write")[0] == 0
    assert path.read_text() == before


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (b'{"mcpServers": {\n  "a": }}', "mcp.json:2: Invalid JSON in config file: expected a value, got '}'"),
        (b'{\n"mcpServers": []}', "mcp.json:2: mcpServers is not an object"),
        ('{"é": 1}'.encode("latin-1"), "mcp.json:1: not UTF-8; save it in that encoding"),
        (b'{"mcpServers": {"shop": {},\n "shop": {}}}', "mcp.json:2: mcpServers.shop is given twice (also on line 1)"),
    ],
)
def test_a_broken_file_is_reported_with_its_line_and_left_alone(home: Path, text: bytes, problem: str) -> None:
    path = Path(".cursor/mcp.json")
    path.parent.mkdir()
    path.write_bytes(text)
    code, out, err = run_here("connect", "cursor", URL, "--name", "shop", "--scope", "project", "--write")
    assert (code, out) == (2, "")
    assert problem in err
    assert path.read_bytes() == text
    assert len(list(path.parent.iterdir())) == 1


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["windsurf", URL, "--scope", "project"], "Windsurf has no project scope; use user"),
        (["cursor", "missing.py"], "File not found: missing.py"),
        (["cursor", "tools.py", "--header", "A: b"], "--header is for a URL"),
        (["cursor", URL, "--env", "A"], "--env is for a command"),
        (["zed", "--env", "A", "--", "x"], "Zed has no variables in its file, so it cannot use ${A}"),
        (["codex", URL, "--header", "X: a ${B} c"], "Codex cannot put a variable into a part of X"),
    ],
)
def test_wrong_usage_is_explained(home: Path, words: list[str], problem: str) -> None:
    code, _, err = run_here("connect", *words)
    assert code == 2
    assert problem in err


def test_a_literal_secret_is_mentioned(home: Path) -> None:
    _, _, err = run_here("connect", "cursor", URL, "--header", "Authorization: Bearer open-sesame")
    assert "Authorization: the client's file will contain this secret" in err


def test_text_from_a_file_is_printed_escaped(home: Path) -> None:
    Path(".mcp.json").write_text('{"mcpServers": {"shop": {"command": "\\u001b[31mred"}}, "\x9b31m": 1}')
    code, _, err = run_here("connect", "claude-code", URL, "--scope", "project", "--name", "shop", "--write")
    assert code == 2
    assert "\\x1b[31mred" in err
    code, out, _ = run_here("connect", "claude-code", URL, "--scope", "project", "--name", "new", "--write")
    assert code == 0
    assert "\\x9b31m" in out
    assert "\x9b" not in out


def test_the_entry_of_codex_is_a_table_of_toml(home: Path) -> None:
    _, out, _ = run_here("connect", "codex", URL, "--name", "shop")
    assert tomllib.loads(out) == {"mcp_servers": {"shop": {"url": URL}}}


DOCUMENT = (Path(__file__).resolve().parents[4] / "docs" / "clients.md").read_text()
SHOWN = re.findall(
    r"^```console\n\$ (pegboard connect \S+ https[^\n]*)\n```\n```(?:json|toml)\n(.*?)^```$",
    DOCUMENT,
    re.MULTILINE | re.DOTALL,
)


def test_the_document_shows_the_entry_of_each_client(home: Path) -> None:
    assert [shlex.split(command)[2] for command, _ in SHOWN] == list(CLIENTS)
    for command, text in SHOWN:
        code, out, err = run_here(*shlex.split(command)[1:])
        assert code == 0, err
        assert out.replace(sys.executable, "/path/to/python") == text


@pytest.mark.parametrize(("file", "name"), [("board.py", "shop"), ("app.py", "shop"), ("tools.py", "tools")])
def test_a_file_with_a_usual_name_is_called_like_its_folder(tmp_path: Path, file: str, name: str) -> None:
    assert name_of(str(tmp_path / "shop" / file), []) == name
