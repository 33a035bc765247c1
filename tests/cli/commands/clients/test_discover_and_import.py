"""`pegboard discover` and `pegboard import`: the servers of every client's file, and one configuration with them all."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pegboard.config.foreign.known_clients import CLIENTS
from pegboard.config.gateway_config import read_config
from pegboard.config.source_file import read_source
from tests.cli.in_process import run_here

STDIO = {"command": "python", "args": ["-m", "files"], "env": {"API_KEY": "${FILES_KEY}"}}
REMOTE = {"url": "https://docs.example/mcp", "headers": {"Authorization": "Bearer ${DOCS_TOKEN}"}}

# Both servers as each client writes them, with something that only the client understands.
FILES: dict[str, str] = {
    "claude-code": json.dumps({"numStartups": 1, "mcpServers": {"files": STDIO, "docs": {"type": "http", **REMOTE}}}),
    "claude-desktop": json.dumps({"mcpServers": {"files": STDIO}}),
    "codex": """
[mcp_servers.files]
command = "python"
args = ["-m", "files"]
env = { API_KEY = "${FILES_KEY}" }
[mcp_servers.docs]
url = "https://docs.example/mcp"
bearer_token_env_var = "DOCS_TOKEN"
default_tools_approval_mode = "auto"
""",
    "gemini": """{ // Gemini
      "theme": "x",
      "mcpServers": {
        "files": {"command": "python", "args": ["-m", "files"], "env": {"API_KEY": "$FILES_KEY"}, "trust": true},
        "docs": {"httpUrl": "https://docs.example/mcp", "headers": {"Authorization": "Bearer ${DOCS_TOKEN}"}},
      }
    }""",
    "cursor": json.dumps(
        {
            "mcpServers": {
                "files": {**STDIO, "env": {"API_KEY": "${env:FILES_KEY}"}},
                "docs": {**REMOTE, "headers": {"Authorization": "Bearer ${env:DOCS_TOKEN}"}},
            }
        }
    ),
    "vscode": """{
      "inputs": [{"id": "docs-token", "type": "promptString", "password": true}],
      "servers": {
        "files": {"type": "stdio", "command": "python", "args": ["-m", "files"], "env": {"API_KEY": "${env:FILES_KEY}"}},
        "docs": {"type": "http", "url": "https://docs.example/mcp", "headers": {"Authorization": "Bearer ${input:docs-token}"}},
      },
    }""",
    "windsurf": json.dumps(
        {"mcpServers": {"docs": {"serverUrl": REMOTE["url"], "headers": {"Authorization": "Bearer ${env:DOCS_TOKEN}"}}}}
    ),
    "zed": """{
      "theme": "One", // dark
      "context_servers": {
        "files": {"source": "custom", "command": {"path": "python", "args": ["-m", "files"], "env": {"API_KEY": "${FILES_KEY}"}}},
        "docs": {"url": "https://docs.example/mcp", "headers": {"Authorization": "Bearer ${DOCS_TOKEN}"}},
      },
    }""",
    "opencode": json.dumps(
        {
            "mcp": {
                "files": {
                    "type": "local",
                    "command": ["python", "-m", "files"],
                    "environment": {"API_KEY": "{env:FILES_KEY}"},
                },
                "docs": {
                    "type": "remote",
                    "url": REMOTE["url"],
                    "headers": {"Authorization": "Bearer {env:DOCS_TOKEN}"},
                },
            }
        }
    ),
}


def place(client: str, text: str, scope: str = "user") -> Path:
    path = CLIENTS[client].locate(scope, Path.cwd()).path
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def servers(path: Path) -> dict[str, Any]:
    found: Any = read_source(path).tree
    return dict(found["toolboxes"]["main"]["mcpServers"])


def words(entry: dict[str, Any]) -> list[str]:
    command = entry["command"]
    return [*(command if isinstance(command, list) else [command]), *entry.get("args", [])]


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("target", ["pegboard.json", "pegboard.toml"])
def test_the_servers_of_every_client_become_servers_of_ours(home: Path, client: str, target: str) -> None:
    place(client, FILES[client])
    code, out, err = run_here("import", client, "--into", target, "--write")
    assert code == 0, err
    assert f"+++ {Path(target).absolute()}" in out
    found = servers(Path(target))
    if "files" in found:
        assert words(found["files"]) == ["python", "-m", "files"]
        assert found["files"]["env"] == {"API_KEY": "${FILES_KEY}"}
    if "docs" in found:
        token = "PEGBOARD_INPUT_DOCS_TOKEN" if client == "vscode" else "DOCS_TOKEN"
        assert found["docs"]["url"] == REMOTE["url"]
        assert found["docs"]["headers"] == {"Authorization": f"Bearer ${{{token}}}"}
    environ = {"FILES_KEY": "key-of-files", "DOCS_TOKEN": "token-of-docs", "PEGBOARD_INPUT_DOCS_TOKEN": "token-of-docs"}
    for server in read_config(target, environ).toolboxes["main"].servers.values():
        assert (server.problem, server.kind) == ("", "stdio" if server.name == "files" else "http")
    written = Path(target).read_bytes()
    code, out, err = run_here("import", client, "--into", target, "--write")
    assert (code, out, Path(target).read_bytes()) == (0, "", written)
    assert "no new servers" in err


def test_all_clients_together_are_merged_and_nothing_is_lost_silently(home: Path) -> None:
    for client, text in FILES.items():
        place(client, text)
    place("cursor", json.dumps({"mcpServers": {"docs": {"url": "https://other.example/mcp"}}}), "project")
    code, out, err = run_here("import")
    assert code == 0
    assert not Path("pegboard.json").exists()
    assert f"'files' is also in {CLIENTS['claude-code'].locate('user', Path.cwd()).path}, and is imported once" in err
    assert "already" not in err
    assert "'docs' is another server than the one of that name, and becomes 'docs-cursor'" in err
    assert "docs: 'default_tools_approval_mode' is a setting of its program and is not imported" not in err
    assert '+        "docs-cursor": {' in out
    assert run_here("import", "codex", "--into", "codex.json")[2].count("'default_tools_approval_mode'") == 1


def test_a_server_that_the_configuration_has_is_not_imported_again(home: Path) -> None:
    place("cursor", FILES["cursor"])
    run_here("add", "papers", REMOTE["url"])
    _, _, err = run_here("import", "--write")
    assert "'docs' is already in the configuration as 'papers'" in err
    assert set(servers(Path("pegboard.json"))) == {"papers", "files"}


def test_what_is_imported_is_printed_as_json(home: Path) -> None:
    place("cursor", FILES["cursor"])
    shown = {"file": str(Path("pegboard.json").absolute()), "action": "import", "servers": ["files", "docs"]}
    assert json.loads(run_here("import", "--json")[1]) == {**shown, "written": False}
    assert not Path("pegboard.json").exists()
    assert json.loads(run_here("import", "--json", "--write")[1]) == {**shown, "written": True}
    assert set(servers(Path("pegboard.json"))) == {"files", "docs"}
    assert json.loads(run_here("import", "--json", "--write")[1]) == {**shown, "servers": [], "written": False}


def test_discovering_lists_files_servers_and_problems_without_secrets_and_starts_nothing(home: Path) -> None:
    place("cursor", FILES["cursor"])
    place("zed", '{"context_servers": {\n')
    secret = {"command": "no-such-program", "args": ["--token", "open-sesame"], "env": {"PASSWORD": "swordfish"}}
    place(
        "claude-code",
        json.dumps(
            {"projects": {"/work/shop": {"mcpServers": {"till": secret, "\u001b[31m": {"url": "${cmd:touch x}"}}}}}
        ),
    )
    code, out, err = run_here("discover")
    assert code == 1
    assert f"Cursor, user: {home}/.cursor/mcp.json" in out
    assert "files  stdio  python -m files" in out
    assert "not set: FILES_KEY" in out
    assert "Claude Code, local /work/shop:" in out
    assert "no program 'no-such-program' on this machine" in out
    assert "settings.json:2: Invalid JSON" in out
    assert "open-sesame" not in out + err
    assert "swordfish" not in out + err
    assert "\x1b" not in out
    assert not Path("x").exists()
    code, out, _ = run_here("discover", "cursor", "--json")
    assert code == 0
    assert [server["name"] for server in json.loads(out)[0]["servers"]] == ["files", "docs"]


def test_what_only_pegboard_would_run_or_read_stays_text(home: Path) -> None:
    entry = {"command": "x", "env": {"A": "${cmd:touch x}", "B": "${file:/etc/passwd}"}}
    Path("theirs.json").write_text(json.dumps({"mcpServers": {"a": entry}}))
    assert run_here("import", "theirs.json", "--write")[0] == 0
    assert servers(Path("pegboard.json"))["a"]["env"] == {"A": "$${cmd:touch x}", "B": "$${file:/etc/passwd}"}
    assert not Path("x").exists()


def test_relative_paths_keep_their_meaning(home: Path) -> None:
    folder = Path("other/.cursor")
    folder.mkdir(parents=True)
    (folder.parent / ".env").write_text("A=1\n")
    entry = {"command": "./bin/run", "args": ["../data"], "envFile": ".env"}
    (folder / "mcp.json").write_text(json.dumps({"mcpServers": {"a": entry}}))
    assert run_here("import", folder / "mcp.json", "--write")[0] == 0
    project = Path("other").absolute()
    assert servers(Path("pegboard.json"))["a"] == {
        "command": f"{project}/bin/run",
        "args": ["../data"],
        "envFile": f"{project}/.env",
        "cwd": str(project),
    }


def test_secrets_of_imported_servers_are_not_printed(home: Path) -> None:
    place("cursor", json.dumps({"mcpServers": {"a": {"command": "x", "env": {"TOKEN": "open-sesame"}}}}))
    code, out, err = run_here("import", "--write")
    assert code == 0
    assert "open-sesame" not in out + err
    assert servers(Path("pegboard.json"))["a"]["env"] == {"TOKEN": "open-sesame"}


def test_secrets_are_masked_however_a_file_spells_them(home: Path) -> None:
    known = """{"mcpServers": {
      "old": {"command": "x", "env": {"TOKEN": "old \\"quoted\\" \\u0073esame"}},
      "new": {"command": "y", "args": ["--api-key", "back\\\\slash-sesame"]},
      "url": {"url": "https://user:sesame-street@docs.example/mcp?api_key=sesame-query"}
    }}"""
    place("cursor", known)
    for name in ("pegboard.json", "pegboard.toml"):
        _, out, err = run_here("import", "--into", name, "--write")
        _, more, errors = run_here("add", "another", "--to", name, "--", "z")
        assert "sesame" not in out + err + more + errors
        assert "sesame" in Path(name).read_text()


def test_a_new_file_is_for_its_user_alone_since_it_may_hold_secrets(home: Path) -> None:
    place("cursor", json.dumps({"mcpServers": {"a": {"command": "x", "env": {"TOKEN": "open-sesame"}}}}))
    assert run_here("import", "--write")[0] == 0
    assert Path("pegboard.json").stat().st_mode & 0o777 == 0o600


def test_the_default_of_an_input_brings_no_variable_of_ours(home: Path) -> None:
    inputs = [{"type": "promptString", "id": "key", "default": "}${cmd:touch x}"}]
    entry = {"command": "x", "env": {"A": "${input:key}"}}
    Path(".vscode").mkdir()
    Path(".vscode/mcp.json").write_text(json.dumps({"inputs": inputs, "servers": {"a": entry}}))
    assert run_here("import", "vscode", "--write")[0] == 0
    assert servers(Path("pegboard.json"))["a"]["env"] == {"A": "${PEGBOARD_INPUT_KEY}"}


@pytest.mark.parametrize("text", ["x = " + "1" * 5000, "a." * 5000 + "b = 1", "a = " + "[" * 90 + "]" * 90])
def test_a_hostile_toml_file_is_reported_and_the_others_are_listed(home: Path, text: str) -> None:
    place("cursor", FILES["cursor"])
    place("codex", text)
    code, out, _ = run_here("discover")
    assert code == 1
    assert "Invalid TOML" in out
    assert "docs" in out


def test_the_servers_of_opencode_may_be_one_level_deeper(home: Path) -> None:
    place("opencode", json.dumps({"mcp": {"servers": json.loads(FILES["opencode"])["mcp"]}}))
    code, out, err = run_here("import", "opencode", "--write")
    assert code == 0, err
    assert '"Authorization": "Bearer ${DOCS_TOKEN}"' in out
    found = servers(Path("pegboard.json"))
    assert words(found["files"]) == ["python", "-m", "files"]
    assert found["docs"]["headers"] == {"Authorization": "Bearer ${DOCS_TOKEN}"}


def test_a_file_is_listed_once_where_the_project_is_the_home_folder(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place("cursor", json.dumps({"mcpServers": {"a": {"command": "c"}}}))
    monkeypatch.chdir(home)
    assert len(json.loads(run_here("discover", "cursor", "--json")[1])) == 1


def test_a_file_with_very_many_servers_is_not_imported(home: Path) -> None:
    place("cursor", json.dumps({"mcpServers": {f"s{number}": {"command": f"c{number}"} for number in range(1001)}}))
    code, _, err = run_here("import")
    assert code == 2
    assert "more than 1000 servers" in err


def test_an_unknown_source_is_reported(home: Path) -> None:
    code, _, err = run_here("import", "cursr")
    assert code == 2
    assert "'cursr' is neither a file nor a client; the clients are claude-code," in err


@pytest.mark.parametrize("client", CLIENTS)
def test_what_connect_writes_for_a_client_is_found_and_imported_again(home: Path, client: str) -> None:
    url = str(REMOTE["url"])
    variable = [] if client in ("claude-desktop", "zed") else ["--header", "Authorization: Bearer ${DOCS_TOKEN}"]
    assert run_here("connect", client, url, "--name", "docs", *variable, "--write")[0] == 0
    assert (
        run_here("connect", client, "--name", "files", "--env", "MODE=1", "--write", "--", "python", "-m", "files")[0]
        == 0
    )
    assert run_here("import", client, "--write")[0] == 0
    found = servers(Path("pegboard.json"))
    assert words(found["files"]) == ["python", "-m", "files"]
    assert found["files"]["env"] == {"MODE": "1"}
    if client == "claude-desktop":
        assert words(found["docs"])[1:] == ["-m", "pegboard", "up", url, "--stdio"]
    else:
        assert found["docs"]["url"] == url
    if variable:
        token = "PEGBOARD_INPUT_DOCS_TOKEN" if client == "vscode" else "DOCS_TOKEN"
        assert found["docs"]["headers"] == {"Authorization": f"Bearer ${{{token}}}"}
