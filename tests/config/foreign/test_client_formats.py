"""The files of other programs are read as they are; what is lost is said, and mistakes are told where the file has them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pegboard.config.config_keys import AuthConfig
from pegboard.config.gateway_config import GatewayConfig, ServerConfig, is_allowed, read_config
from pegboard.errors import SetupError


def read(folder: Path, tree: Any, name: str = "mcp.json", environ: dict[str, str] | None = None) -> GatewayConfig:
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(tree if isinstance(tree, str) else json.dumps(tree))
    return read_config(file, environ or {})


def servers(config: GatewayConfig) -> dict[str, ServerConfig]:
    assert list(config.toolboxes) == ["main"]
    return dict(config.toolboxes["main"].servers)


def refused(folder: Path, tree: Any, name: str = "mcp.json", environ: dict[str, str] | None = None) -> str:
    with pytest.raises(SetupError) as caught:
        read(folder, tree, name, environ)
    return str(caught.value).partition("\n")[2].replace(" (line 1)", "")


def test_claude_desktop(tmp_path: Path) -> None:
    config = read(
        tmp_path,
        {
            "globalShortcut": "Ctrl+Space",
            "mcpServers": {
                "filesystem": {"command": "npx", "args": ["-y", "server-filesystem", "/srv"], "env": {"DEBUG": "1"}},
                "memory": {"command": "npx", "args": ["-y", "server-memory"], "disabled": True},
            },
        },
        "claude_desktop_config.json",
    )
    found = servers(config)
    assert found["filesystem"].command == ("npx", "-y", "server-filesystem", "/srv")
    assert found["filesystem"].env == {"DEBUG": "1"}
    assert [found[name].enabled for name in found] == [True, False]
    assert config.toolboxes["main"].description == "The servers of claude_desktop_config.json: filesystem, memory"
    assert config.warnings == ()


def test_claude_code(tmp_path: Path) -> None:
    config = read(
        tmp_path,
        {
            "mcpServers": {
                "api": {
                    "type": "http",
                    "url": "${BASE:-https://api.example}/mcp",
                    "headers": {"Authorization": "Bearer ${TOKEN}"},
                    "timeout": 120000,
                },
                "old": {
                    "type": "sse",
                    "url": "https://old.example/sse",
                    "oauth": {"clientId": "c", "callbackPort": 8080},
                },
                "local": {"command": "${CLAUDE_PROJECT_DIR}/bin/serve", "args": ["--root", "${CLAUDE_PROJECT_DIR}"]},
                "helped": {"type": "http", "url": "https://helped.example", "headersHelper": "/bin/headers"},
            }
        },
        ".mcp.json",
        {"TOKEN": "abcdefgh"},
    )
    found = servers(config)
    assert (found["api"].kind, found["api"].url) == ("http", "https://api.example/mcp")
    assert found["api"].headers == {"Authorization": "Bearer abcdefgh"}
    assert (found["api"].timeout, found["old"].kind) == (120, "sse")
    assert found["old"].auth == AuthConfig(client_id="c", redirect_port=8080)
    assert found["local"].command == (f"{tmp_path}/bin/serve", "--root", str(tmp_path))
    assert config.warnings == (
        "mcpServers.helped.headersHelper: names a program that creates headers; Pegboard does not run it, use 'headers' or 'auth'",
    )
    assert "abcdefgh" in config.secrets


def test_cursor(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("KEY=from-file\n")
    config = read(
        tmp_path,
        {
            "mcpServers": {
                "local": {
                    "type": "stdio",
                    "command": "python",
                    "args": ["${workspaceFolder}/server.py"],
                    "env": {"API_KEY": "${env:API_KEY}"},
                    "envFile": "${workspaceFolder}/.env",
                },
                "remote": {"url": "https://x.example/mcp", "auth": {"CLIENT_ID": "${env:ID}", "scopes": ["read"]}},
            }
        },
        ".cursor/mcp.json",
        {"API_KEY": "abcdefgh", "ID": "peg"},
    )
    found = servers(config)
    assert found["local"].command == ("python", f"{tmp_path}/server.py")
    assert found["local"].cwd == str(tmp_path)
    assert found["local"].env == {"API_KEY": "abcdefgh", "KEY": "from-file"}
    assert found["remote"].auth == AuthConfig(client_id="peg", scopes=("read",))


def test_kin_of_these(tmp_path: Path) -> None:
    config = read(
        tmp_path,
        {
            "mcpServers": {
                "windsurf": {"serverUrl": "https://x.example/mcp", "disabledTools": ["drop"], "alwaysAllow": ["read"]},
                "cline": {"type": "streamableHttp", "url": "https://x.example/mcp", "timeout": 60, "autoApprove": []},
                "copilot": {"type": "local", "command": "npx", "tools": ["read", "wr*te"], "deferTools": "auto"},
                "all": {"command": "npx", "tools": ["*"], "version": "1.2.3", "description": "ours"},
            }
        },
    )
    found = servers(config)
    assert (found["windsurf"].kind, found["windsurf"].tool_filters) == ("http", ("*", "!drop"))
    assert (found["cline"].kind, found["cline"].timeout) == ("http", 60)
    assert (found["copilot"].kind, found["all"].tool_filters, found["all"].version) == ("stdio", ("*",), None)
    assert [name for name in ("read", "write", "wr*te") if is_allowed(found["copilot"].tool_filters, name)] == [
        "read",
        "wr*te",
    ]


def test_our_own_keys_may_stand_in_any_of_them(tmp_path: Path) -> None:
    config = read(
        tmp_path,
        {
            "toolMode": "proxy",
            "names": "plain",
            "mcpServers": {
                "fs": {
                    "command": "a",
                    "toolFilters": ["read*"],
                    "share": "session",
                    "version": "2025-06-18",
                    "tools": {"read": {"name": "get"}},
                }
            },
        },
    )
    assert (config.mode, config.toolboxes["main"].names) == ("proxy", "plain")
    server = servers(config)["fs"]
    assert (server.tool_filters, server.share, server.version) == (("read*",), "session", "2025-06-18")
    assert server.tools["read"].name == "get"


VS_CODE = """{
  // what a person is asked for
  "inputs": [
    {"type": "promptString", "id": "api-key", "description": "API key", "password": true},
    {"type": "pickString", "id": "level", "description": "Level", "options": ["a", "b"], "default": "a"},
  ],
  "servers": {
    "local": {
      "type": "stdio", "command": "npx", "args": ["-y", "server", "${workspaceFolderBasename}", "${input:level}"],
      "env": {"KEY": "${input:api-key}", "PORT": 8080, "UNSET": null},
      "dev": {"watch": "**/*.py"}, "gallery": "https://x.example", "version": "0.3.1",
    },
    "microsoft/playwright-mcp": {"type": "http", "url": "https://x.example/mcp"},
    "boxed": {"command": "a", "sandboxEnabled": true, "sandbox": {"network": {}}},
    "open": {"command": "a", "sandboxEnabled": false},
  },
}"""


def test_our_timeout_may_be_added_where_the_program_has_none(tmp_path: Path) -> None:
    for key, tool in (("servers", "vscode.json"), ("mcp_servers", "codex.json")):
        tree = {key: {"a": {"command": "x", "timeout": 30}, "b": {"command": "x", "timeout": 30_000}}}
        config = read(tmp_path, tree, tool)
        assert [one.timeout for one in servers(config).values()] == [30.0, 30.0]


def test_vs_code(tmp_path: Path) -> None:
    config = read(tmp_path, VS_CODE, ".vscode/mcp.json", {"PEGBOARD_INPUT_API_KEY": "abcdefgh"})
    found = servers(config)
    assert list(found) == ["local", "microsoft-playwright-mcp", "boxed", "open"]
    assert found["local"].command == ("npx", "-y", "server", tmp_path.name, "a")
    assert found["local"].env == {"KEY": "abcdefgh", "PORT": "8080"}
    assert (found["local"].version, found["local"].cwd) == (None, str(tmp_path))
    assert config.warnings == (
        "servers.'microsoft/playwright-mcp': is served as 'microsoft-playwright-mcp': names contain only A-Z a-z 0-9 _ -, and no '__'",
        "servers.boxed.sandboxEnabled: the server runs without the sandbox of VS Code",
    )  # fmt: skip


def test_a_missing_vs_code_input_is_reported(tmp_path: Path) -> None:
    assert servers(read(tmp_path, VS_CODE, ".vscode/mcp.json"))["local"].problem.startswith(
        "servers.local.env.KEY: ${input:api-key} is an input (API key); here it is read from the environment: "
        "set PEGBOARD_INPUT_API_KEY in the environment of the gateway"
    )


def test_the_settings_of_vs_code(tmp_path: Path) -> None:
    tree = {"editor.fontSize": 12, "mcp": {"inputs": [], "servers": {"fs": {"command": "a", "args": 1}}}}
    assert refused(tmp_path, tree, "settings.json") == (
        "- mcp.servers.fs.args: Server 'fs' in toolbox 'main': 'args' must be an array: got 1, expected a list of strings"
    )


CODEX = """
model = "gpt-6"

[mcp_servers.local]
command = "uv"
args = ["run", "server.py"]
env_vars = ["TOKEN", { name = "OTHER", source = "local" }]
startup_timeout_sec = 20
tool_timeout_sec = 45.5
enabled_tools = ["read", "write"]
disabled_tools = ["write"]
default_tools_approval_mode = "prompt"

[mcp_servers.local.env]
LEVEL = "info"

[mcp_servers.remote]
url = "https://x.example/mcp"
bearer_token_env_var = "TOKEN"
http_headers = { "X-Team" = "blue" }
env_http_headers = { "X-Key" = "Key_Name" }
enabled = false

[mcp_servers.login]
url = "https://y.example/mcp"
scopes = ["read"]
startup_timeout_ms = 1500
"""


def test_codex(tmp_path: Path) -> None:
    environ = {"TOKEN": "abcdefgh", "OTHER": "x", "Key_Name": "key-value"}
    found = servers(config := read(tmp_path, CODEX, ".codex/config.toml", environ))
    local, remote = found["local"], found["remote"]
    assert (local.command, local.cwd) == (("uv", "run", "server.py"), str(tmp_path))
    assert (local.env, local.inherit) == ({"LEVEL": "info"}, ("TOKEN", "OTHER"))
    assert (local.connect_timeout, local.timeout) == (20, 45.5)
    assert [name for name in ("read", "write", "drop") if is_allowed(local.tool_filters, name)] == ["read"]
    assert remote.headers == {"X-Team": "blue", "X-Key": "key-value", "Authorization": "Bearer abcdefgh"}
    assert (remote.kind, remote.enabled) == ("http", False)
    assert (found["login"].auth, found["login"].connect_timeout) == (AuthConfig(scopes=("read",)), 1.5)
    assert {"abcdefgh", "key-value"} <= config.secrets


def test_a_mistake_in_a_codex_file_is_reported_at_its_codex_location(tmp_path: Path) -> None:
    text = '[mcp_servers.a]\ncommand = "x"\ntool_timeout_sec = "long"\nenabled_tools = "read"\n'
    missing = '[mcp_servers.b]\nurl = "https://x.example"\nbearer_token_env_var = "NOT_SET"\n'
    text += missing
    text += '[mcp_servers.c]\nurl = "https://x.example"\nbearer_token_env_var = 5\n'
    text += '[mcp_servers.d]\nurl = "https://x.example"\nenv_http_headers = ["A"]\n'
    told = refused(tmp_path, text, "config.toml")
    assert "- mcp_servers.c.bearer_token_env_var (line 8): got a number, expected a string; put it in quotes" in told
    assert "- mcp_servers.d.env_http_headers (line 11): got a list, expected an object of strings" in told
    assert '- mcp_servers.a.tool_timeout_sec: got "long", expected a number of seconds greater than 0' in told
    assert '- mcp_servers.a.enabled_tools: got "read", expected a list of strings; put it in brackets' in told
    problem = servers(read(tmp_path, missing, "config.toml"))["b"].problem
    assert problem.startswith("mcp_servers.b.bearer_token_env_var: Variable is not set: set NOT_SET in")


def test_gemini(tmp_path: Path) -> None:
    config = read(
        tmp_path,
        {
            "theme": "dark",
            "mcp": {"excluded": ["off"]},
            "mcpServers": {
                "local": {
                    "command": "python",
                    "args": ["$HOME/server.py"],
                    "env": {"KEY": "$API_KEY", "TOKEN": "${API_KEY}", "LEFT": "$NOT_SET"},
                    "cwd": "./",
                    "timeout": 30000,
                    "trust": True,
                    "includeTools": ["read", "write"],
                    "excludeTools": ["write"],
                },
                "stream": {"httpUrl": "https://x.example/mcp", "headers": {"X-Key": "$API_KEY"}},
                "events": {"url": "https://x.example/sse", "oauth": {"enabled": True, "scopes": ["a"]}},
                "typed": {"url": "https://x.example/mcp", "type": "http"},
                "off": {"command": "a"},
            },
        },
        ".gemini/settings.json",
        {"API_KEY": "abcdefgh", "HOME": "/home/ada"},
    )
    found = servers(config)
    local = found["local"]
    assert local.command == ("python", "/home/ada/server.py")
    assert local.env == {"KEY": "abcdefgh", "TOKEN": "abcdefgh", "LEFT": "$NOT_SET"}
    assert (local.timeout, local.cwd) == (30, str(tmp_path))
    assert [name for name in ("read", "write") if is_allowed(local.tool_filters, name)] == ["read"]
    assert [found[name].kind for name in ("stream", "events", "typed")] == ["http", "sse", "http"]
    assert found["stream"].headers == {"X-Key": "abcdefgh"}
    assert found["events"].auth == AuthConfig(scopes=("a",))
    assert [name for name in found if not found[name].enabled] == ["off"]
    assert config.warnings == (
        "mcpServers.local.env.LEFT: $NOT_SET is not set in the environment, and is kept as it is",
    )


def test_gemini_is_known_by_its_keys_too(tmp_path: Path) -> None:
    tree = {"mcpServers": {"a": {"httpUrl": "https://x.example/mcp", "timeout": 500}}}
    assert servers(read(tmp_path, tree))["a"].timeout == 0.5
    assert refused(tmp_path, {"mcpServers": {"a": {"httpUrl": "x", "timeout": "5"}}}) == (
        "- mcpServers.a.timeout: got \"5\", expected a number of seconds greater than 0\n"
        "- mcpServers.a.httpUrl: is not a URL of a server over http: expected a URL that starts with http:// or https://"
    )  # fmt: skip


@pytest.mark.parametrize(
    ("tree", "told"),
    [
        ({"mcpServers": {"fs": {"comand": "a"}}}, "mcpServers.fs.comand: is unknown; did you mean 'command'?\n- mcpServers.fs: Server 'fs' in toolbox 'main' must have a 'command' field; add it, or 'url' for a remote server, or 'board' for a Python file"),
        ({"mcpServers": {}}, "mcpServers: Toolbox 'main' must have at least one MCP server; add one"),
        ({"mcpServers": []}, "mcpServers: Toolbox 'main' must have an 'mcpServers' object: got a list, expected an object of servers by name"),
        ({"mcpServers": {"fs": "a"}}, 'mcpServers.fs: got "a", expected an object that describes a server'),
        ({"mcpServers": {"a b": {"command": "x"}, "a-b": {"command": "x"}}}, "mcpServers.'a b': another server is also served as 'a-b'; rename one of them"),
        ({"mcpServers": {"FS": {"command": "x"}, "fs": {"command": "x"}}}, "mcpServers.fs: there is also a server 'FS'; names must differ in more than case; rename one of them"),
        ({"mcpServers": {"fs": {"command": "x", "tools": {"a": {"nam": "b"}}}}}, "mcpServers.fs.tools.a.nam: a tool has no key 'nam'; did you mean 'name'?"),
        ({"toolMode": "x", "mcpServers": {"fs": {"command": "x"}}}, 'toolMode: got "x", expected one of "all", "dynamic", "proxy", "auto"'),
        ({"servers": {"fs": {"url": "unix:///run/x.sock"}}}, "servers.fs.url: is not a URL of a server over http: expected a URL that starts with http:// or https://"),
    ],
)  # fmt: skip
def test_a_mistake_is_reported_at_its_location_in_the_file(tmp_path: Path, tree: Any, told: str) -> None:
    assert refused(tmp_path, tree).partition("\n- warning: ")[0] == f"- {told}"


def test_a_file_that_is_nearly_one_of_these_is_explained(tmp_path: Path) -> None:
    assert "mcpservers: is not a configuration key; did you mean 'mcpServers' or 'mcp_servers'?" in refused(
        tmp_path, {"mcpservers": {"fs": {"command": "a"}}}
    )
    assert "these look like servers; put them into an object under the key 'mcpServers'" in refused(
        tmp_path, {"fs": {"command": "a"}, "web": {"url": "https://x.example"}}
    )


A_CODEX = '[mcp_servers.fs]\ncommand = "a"\n{}\n'


@pytest.mark.parametrize(
    ("name", "tree", "told"),
    [
        ("mcp.json", {"mcpServers": {"fs": {"command": "a", "args": [], "arg": []}}}, "mcpServers.fs.arg: is unknown and ignored; did you mean 'args'?"),
        ("mcp.json", {"mcpServers": {"fs": {"command": "a", "enviroment": {}}}}, "mcpServers.fs.enviroment: is unknown and ignored; did you mean 'env'?"),
        ("mcp.json", {"toolmode": "proxy", "mcpServers": {"fs": {"command": "a"}}}, "toolmode: is unknown and ignored; did you mean 'toolMode'?"),
        ("mcp.json", {"servers": {"fs": {"command": "a", "idletimeout": 5}}}, "servers.fs.idletimeout: is unknown and ignored; did you mean 'idleTimeout'?"),
    ],
)  # fmt: skip
def test_a_key_that_is_nearly_one_that_is_read_is_asked_about(tmp_path: Path, name: str, tree: Any, told: str) -> None:
    assert read(tmp_path, tree, name).warnings == (told,)


@pytest.mark.parametrize(
    ("name", "tree", "told"),
    [
        ("mcp.json", {"mcpServers": {"fs": {"command": "a", "toolfilters": []}}}, "mcpServers.fs.toolfilters: is unknown; did you mean 'toolFilters'"),
        ("mcp.json", {"mcpServers": {"fs": {"command": "a", "disabledTool": []}}}, "mcpServers.fs.disabledTool: is unknown; did you mean 'disabledTools'"),
        ("mcp.json", {"mcpServers": {"fs": {"command": "a", "confin": {}}}}, "mcpServers.fs.confin: is unknown; did you mean 'confine'"),
        ("config.toml", A_CODEX.format("enabled_tool = []"), "mcp_servers.fs.enabled_tool: is unknown; did you mean 'enabled_tools'"),
        (".gemini/settings.json", {"mcpServers": {"fs": {"command": "a", "excludetools": []}}}, "mcpServers.fs.excludetools: is unknown; did you mean 'excludeTools'"),
    ],
)  # fmt: skip
def test_a_server_is_not_started_if_a_key_that_limits_it_is_misspelt(
    tmp_path: Path, name: str, tree: Any, told: str
) -> None:
    (server,) = read(tmp_path, tree, name).toolboxes["main"].servers.values()
    assert server.problem == f"{told}, which limits what may be used?"


@pytest.mark.parametrize(
    ("key", "meant"), [("auht", "auth"), ("Auth", "auth"), ("rule", "rules"), ("quota", "quotas"), ("lok", "lock")]
)
def test_a_misspelt_key_that_limits_callers_is_a_mistake(tmp_path: Path, key: str, meant: str) -> None:
    assert refused(tmp_path, {key: {}, "mcpServers": {"fs": {"command": "a"}}}) == (
        f"- {key}: is unknown; did you mean {meant!r}, which limits what callers may do?"
    )


def test_warnings_are_reported_with_the_mistakes(tmp_path: Path) -> None:
    told = refused(tmp_path, {"auht": {}, "mcpServers": {"fs": {"command": "a", "arg": []}}})
    assert told.splitlines()[-1] == "- warning: mcpServers.fs.arg: is unknown and ignored; did you mean 'args'?"


THEIR_OWN = (
    "description", "name", "icon", "dev", "gallery", "sandbox", "alwaysAllow", "autoApprove", "trust", "watchPaths",
    "transportType", "initTimeout", "chatMenu", "targetAudience", "metadata", "priority", "default_tools_approval_mode",
    "supports_parallel_tool_calls", "oauth_resource", "scope", "registry", "provider", "id", "key", "title", "instructions",
)  # fmt: skip


def test_keys_of_their_own_are_passed_over_in_silence(tmp_path: Path) -> None:
    server = {"command": "a", **dict.fromkeys(THEIR_OWN, "x")}
    root = dict.fromkeys(
        ("theme", "model", "mode", "tools", "hooks", "log", "profiles", "editor.fontSize", "ui", "author"), "x"
    )
    for key in ("mcpServers", "servers"):
        assert read(tmp_path, {**root, key: {"fs": server}}).warnings == ()
    assert read(tmp_path, A_CODEX.format("\n".join(f'{key} = "x"' for key in THEIR_OWN)), "config.toml").warnings == ()


def test_a_server_that_codex_requires_is_required_here_too(tmp_path: Path) -> None:
    config = read(tmp_path, A_CODEX.format("required = true"), "config.toml")
    assert [server.required for box in config.toolboxes.values() for server in box.servers.values()] == [True]


def test_several_omissions_with_one_cause_are_reported_once(tmp_path: Path) -> None:
    assert refused(tmp_path, {"toolbox": {"dev": {}}}) == (
        "- toolbox: is not a configuration key; did you mean 'toolboxes'?"
    )
    assert refused(tmp_path, {"fs": {"command": "a"}}).count("\n") == 0
