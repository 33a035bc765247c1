"""`Client(entry)` and a gateway read an entry the same way, whichever program's file it comes from."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pegboard import Client, Gateway
from pegboard.config.foreign.foreign_entry import read_server_entry
from pegboard.config.gateway_config import ServerConfig
from pegboard.errors import PegboardError, SetupError
from tests.client.fakes import Asked, faking, modern, reply, script, text
from tests.client.process_leftovers import nothing_left

ENVIRONMENT = {"TOKEN": "t-1", "EMPTY": "", "lower": "l-1", "SECRET": "s-1"}
URL = "https://there.example/mcp"

SERVER = """
while True:
    asked = read()
    match asked['method']:
        case 'server/discover': result(asked, {'supportedVersions': ['2026-07-28'], 'capabilities': {'tools': {}}})
        case 'tools/list': result(asked, {'tools': [{'name': 'started', 'inputSchema': {'type': 'object'}}]})
        case 'tools/call': text(asked, json.dumps([sys.argv[1:], os.getcwd(), dict(os.environ)]))
        case _: refuse(asked)
"""

Connect = Callable[[dict[str, Any]], Client]


def read(entry: dict[str, Any]) -> ServerConfig:
    return read_server_entry(entry, Path("/"), {}, ENVIRONMENT)


@pytest.fixture(params=["client", "gateway"])
def connect(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Connect:
    """Connects to a server of an entry in the folder `tmp_path`, directly or through a gateway."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))

    def by_gateway(entry: dict[str, Any]) -> Client:
        root = (
            "mcp_servers" if {"startup_timeout_ms", "bearer_token_env_var", "env_vars"} & entry.keys() else "mcpServers"
        )
        file = tmp_path / "mcp.json"
        file.write_text(json.dumps({root: {"x": entry}, "names": "plain", "lock": "off"}))
        return Client(Gateway(file))

    return Client if request.param == "client" else by_gateway


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """A server in `~/bin` that reports how it was started."""
    file = tmp_path / "home" / "bin" / "serve"
    file.parent.mkdir(parents=True)
    file.write_text(f"#!{sys.executable}\n{script(SERVER)[2]}")
    file.chmod(0o755)
    return file


async def started(client: Client) -> tuple[list[str], str, dict[str, str]]:
    async with nothing_left(), client:
        args, folder, env = json.loads((await client.call("started")).text)
    return args, folder, env


async def authorization(client: Client, port: list[Asked]) -> set[str | None]:
    async with client:
        await client.list_tools()
    return {asked.headers.get("authorization") for asked in port}


@pytest.mark.parametrize(
    "words",
    [
        {"headers": {"Authorization": "Bearer $TOKEN"}, "trust": True},
        {"headers": {"Authorization": "Bearer ${TOKEN}"}},
        {"headers": {"Authorization": "Bearer ${env:TOKEN}"}},
        {"headers": {"Authorization": "Bearer ${MISSING:-t-1}"}, "type": "streamable-http"},
        {"bearer_token_env_var": "TOKEN"},
    ],
    ids=["gemini", "claude", "cursor", "default", "codex"],
)
async def test_a_header_is_sent_with_its_variables_expanded(
    connect: Connect, words: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKEN", "t-1")
    async with faking(modern(lambda asked, writer: reply(writer, text(asked, "")))) as server:
        key = "httpUrl" if "trust" in words else "url"
        assert await authorization(connect({key: server.url, **words}), server.asked) == {"Bearer t-1"}


async def test_home_and_workspace_folders_are_expanded(connect: Connect, program: Path, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    args, folder, env = await started(
        connect(
            {
                "command": "~/bin/serve",
                "args": ["${workspaceFolder}/a", "${userHome}"],
                "cwd": "data",
                "env": {"PROJECT": "${workspaceFolder}"},
            }
        )
    )
    assert args == [f"{tmp_path}/a", f"{tmp_path}/home"]
    assert folder == str(tmp_path / "data")
    assert env["PROJECT"] == str(tmp_path)


async def test_variables_are_read_from_a_file_and_inherited_by_name(
    connect: Connect, program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HERE", "h-1")
    (tmp_path / "some.env").write_text("# mine\nexport A=1\nB='two words'\nC=3\n")
    entry = {"command": str(program), "envFile": "some.env", "env": {"C": "4"}, "env_vars": ["HERE"]}
    _, _, env = await started(connect(entry))
    assert {name: env.get(name) for name in ("A", "B", "C", "HERE")} == {
        "A": "1", "B": "two words", "C": "4", "HERE": "h-1",
    }  # fmt: skip


async def test_a_startup_timeout_in_milliseconds_bounds_the_connection() -> None:
    program, *args = script("while True: read()")
    async with nothing_left():
        with pytest.raises(PegboardError, match=r"no response to \w+ within 0\.15 s"):
            await Client({"command": program, "args": args, "startup_timeout_ms": 150}).__aenter__()


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"type": "sse", "url": "ws://there.example/mcp"}, "url.*starts with http:// or https://"),
        ({"type": "sse", "command": "x"}, "must have a 'url' field"),
        ({"type": "http", "url": "unix:///run/x.sock#/mcp"}, "url.*starts with http:// or https://"),
        ({"command": "x", "type": "http"}, "must have a 'url' field"),
        ({"command": "x", "url": URL}, "has 'command' and 'url'"),
        ({"url": URL, "type": "grpc"}, 'type.*got "grpc", expected one of "stdio"'),
        ({"comand": "x"}, "comand.*did you mean 'command'"),
        ({"command": 5}, "command.*got 5, expected a string or a list of strings"),
        ({"command": "x", "envFile": "nowhere.env"}, r"envFile.*nowhere.env cannot be read"),
        ({"command": "x", "cwd": "nowhere"}, "cwd.*folder not found"),
        ({"url": URL, "headers": {"X Y": "1"}}, "headers.'X Y'"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_an_entry_is_reported_with_its_key(
    connect: Connect, entry: dict[str, Any], message: str
) -> None:
    with pytest.raises(SetupError, match=message):
        connect(entry)


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"command": "x", "args": ["a", "${NOT_SET}"]}, r"NOT_SET\n.*args\[1\]\n.*Variable is not set"),
        ({"url": URL, "bearer_token_env_var": "NOT_SET"}, "NOT_SET\n.*bearer_token_env_var"),
    ],
)
def test_a_missing_variable_of_a_clients_entry_is_an_error(entry: dict[str, Any], message: str) -> None:
    with pytest.raises(SetupError, match=message):
        Client(entry)


@pytest.mark.parametrize(
    "entry",
    [
        {"command": "npx", "args": ["-y", "x"], "env": {"A": "1"}},
        {"type": "stdio", "command": "npx", "args": ["-y", "x"], "env": {"A": 1, "B": None}, "sandboxEnabled": True},
        {"transport": "stdio", "command": "npx", "args": ["-y", "x"], "env": {"A": "1"}, "toolFilters": ["*"]},
        {"type": "local", "command": ["npx", "-y", "x"], "env": {"A": "1"}, "enabled": True},
        {
            "command": "npx",
            "args": ["-y", "x"],
            "env": {"A": "1"},
            "timeout": 600000,
            "trust": False,
            "includeTools": [],
        },
        {"command": "npx", "args": ["-y", "x"], "env": {"A": "1"}, "tool_timeout_sec": 60, "enabled_tools": ["a"]},
    ],
    ids=["claude", "vscode", "workbench", "words", "gemini", "codex"],
)
def test_a_command_is_read_from_every_shape(entry: dict[str, Any]) -> None:
    server = read(entry)
    assert (server.command, server.url, server.env) == (("npx", "-y", "x"), "", {"A": "1"})


@pytest.mark.parametrize(
    "entry",
    [
        {"type": "http", "url": URL, "headers": {"Authorization": "Bearer ${TOKEN}"}},
        {"url": URL, "headers": {"Authorization": "Bearer ${env:TOKEN}"}},
        {"type": "sse", "url": URL, "headers": {"Authorization": "Bearer ${MISSING:-t-1}"}},
        {"type": "remote", "url": URL, "headers": {"Authorization": "Bearer t-1"}, "enabled": True},
        {"httpUrl": URL, "headers": {"Authorization": "Bearer t-1"}},
        {"serverUrl": URL, "headers": {"Authorization": "Bearer t-1"}},
        {"url": URL, "bearer_token_env_var": "TOKEN"},
        {"url": URL, "http_headers": {"Authorization": "Bearer t-1"}},
    ],
    ids=["claude", "cursor", "sse", "opencode", "gemini", "windsurf", "codex", "codex-headers"],
)
def test_a_url_is_read_from_every_shape(entry: dict[str, Any]) -> None:
    server = read(entry)
    assert (server.command, server.url, server.headers) == ((), URL, {"Authorization": "Bearer t-1"})


def test_headers_and_variables_may_be_taken_from_the_environment_by_name() -> None:
    assert read({"url": URL, "env_http_headers": {"X-Key": "SECRET"}}).headers == {"X-Key": "s-1"}
    assert read({"command": "x", "env_vars": ["SECRET", "UNSET"]}).child_env(ENVIRONMENT) == {"SECRET": "s-1"}


def test_variables_stand_anywhere_and_what_a_shell_is_to_read_stays() -> None:
    entry = {
        "command": "${EMPTY}sh",
        "args": ["-c", "echo ${lower} $HOME ${MISSING:-a b} ${env:lower}"],
        "cwd": "${MISSING:-/usr}",
        "startup_timeout_sec": 5,
    }
    server = read(entry)
    assert server.command == ("sh", "-c", "echo ${lower} $HOME a b l-1")
    assert (server.cwd, server.connect_timeout) == ("/usr", 5)


def test_a_whole_configuration_and_a_board_are_rejected_with_what_to_pass_instead() -> None:
    with pytest.raises(SetupError, match=r"pass one of its servers, as in \['mcpServers'\].*'a', 'b'"):
        Client({"mcpServers": {"a": {}, "b": {}}})
    with pytest.raises(SetupError, match="pass the board itself"):
        Client({"board": __file__})


def test_all_mistakes_of_an_entry_are_reported_together_without_its_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN", "very-secret")
    with pytest.raises(SetupError) as caught:
        Client({"url": "${TOKEN}", "headers": {"X": 1}, "concurrency": "${TOKEN}"})
    assert str(caught.value).startswith("The server entry has 3 mistakes:\n- ")
    assert "very-secret" not in str(caught.value)


def test_the_keys_of_an_entry_take_precedence_over_the_options_of_a_client(tmp_path: Path) -> None:
    options = {"version": "2025-11-25", "connect_timeout": 3.0}
    assert read_server_entry({"command": "x"}, tmp_path, options, {}).connect_timeout == 3
    server = read_server_entry({"command": "x", "connectTimeout": 7, "version": "2026-07-28"}, tmp_path, options, {})
    assert (server.connect_timeout, server.version, server.cwd) == (7, "2026-07-28", str(tmp_path))


@pytest.mark.parametrize("target", [42, None, Path("server.py"), object()])
def test_an_invalid_target_is_rejected_with_the_valid_kinds(target: Any) -> None:
    with pytest.raises(SetupError, match="is not a valid target; pass a board, a URL"):
        Client(target)


@pytest.mark.parametrize(
    ("target", "told"),
    [
        ("servers.json", r"'servers.json' is not a URL; pass Gateway\('servers.json'\)"),
        ("server.py", "'server.py' is not a URL; pass a command as a list"),
        ({"mcpServers": {"a": {"command": "x"}}}, r"pass one of its servers, .*: 'a'; or Gateway\(…\) of all"),
    ],
)
def test_a_target_of_another_kind_is_rejected_with_the_way_to_use_it(target: Any, told: str) -> None:
    with pytest.raises(SetupError, match=told):
        Client(target)
