"""Entries of servers as the programs write them that people have: each shape is the server that it means."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pegboard import Client
from pegboard.config.foreign_entry import read_server_entry
from pegboard.errors import SetupError

ENVIRONMENT = {"TOKEN": "t-1", "EMPTY": "", "lower": "l-1", "SECRET": "s-1"}
URL = "https://there.example/mcp"


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
    read = read_server_entry(entry, ENVIRONMENT)
    assert (read.command, read.url, read.env) == (("npx", "-y", "x"), "", {"A": "1"})


@pytest.mark.parametrize(
    "entry",
    [
        {"type": "http", "url": URL, "headers": {"Authorization": "Bearer ${TOKEN}"}},
        {"url": URL, "headers": {"Authorization": "Bearer ${env:TOKEN}"}},
        {"type": "sse", "url": URL, "headers": {"Authorization": "Bearer ${MISSING:-t-1}"}},
        {"httpUrl": URL, "headers": {"Authorization": "Bearer t-1"}},
        {"serverUrl": URL, "headers": {"Authorization": "Bearer t-1"}},
        {"url": URL, "bearer_token_env_var": "TOKEN"},
        {"url": URL, "http_headers": {"Authorization": "Bearer t-1"}},
    ],
    ids=["claude", "cursor", "sse", "gemini", "windsurf", "codex", "codex-headers"],
)
def test_a_url_is_read_from_every_shape(entry: dict[str, Any]) -> None:
    read = read_server_entry(entry, ENVIRONMENT)
    assert (read.command, read.url, read.headers) == ((), URL, {"Authorization": "Bearer t-1"})


def test_headers_and_variables_may_be_taken_from_the_environment_by_name() -> None:
    assert read_server_entry({"url": URL, "env_http_headers": {"X-Key": "SECRET"}}, ENVIRONMENT).headers == {
        "X-Key": "s-1"
    }
    assert read_server_entry({"command": "x", "env_vars": ["SECRET", "UNSET"]}, ENVIRONMENT).env == {"SECRET": "s-1"}


def test_variables_stand_anywhere_and_what_a_shell_is_to_read_stays() -> None:
    entry = {
        "command": "${EMPTY}sh",
        "args": ["-c", "echo ${lower} $HOME ${MISSING:-a b} ${env:lower}"],
        "cwd": "/${TOKEN}",
        "startup_timeout_sec": 5,
    }
    read = read_server_entry(entry, ENVIRONMENT)
    assert read.command == ("sh", "-c", "echo ${lower} $HOME a b l-1")
    assert (read.cwd, read.connect_timeout) == ("/t-1", 5)


def test_a_file_of_variables_is_read_and_what_is_written_beside_it_goes_before(tmp_path: Path) -> None:
    file = tmp_path / ".env"
    file.write_text("# mine\nexport A=1\nB = 'two words'\nC=\"3\"\n\nnothing\nD=a=b\n")
    read = read_server_entry({"command": "x", "envFile": str(file), "env": {"C": "4"}}, {})
    assert read.env == {"A": "1", "B": "two words", "C": "4", "D": "a=b"}


@pytest.mark.parametrize(
    ("entry", "told"),
    [
        ({}, "either a command or a url"),
        ({"command": "x", "url": URL}, "either a command or a url"),
        ({"command": 5}, "no entry of a server: .*command"),
        ({"command": "x", "type": "http"}, "of type 'http' has a url"),
        ({"url": URL, "type": "stdio"}, "of type 'stdio' has a command"),
        ({"url": URL, "type": "grpc"}, "no type of server 'grpc'; known are"),
        (
            {"url": URL, "headers": {"Authorization": "Bearer ${NOT_SET}"}},
            "headers.Authorization: .* NOT_SET is not set",
        ),
        ({"command": "x", "args": ["a", "${NOT_SET}"]}, r"args\[1\]: .* NOT_SET is not set"),
        ({"url": URL, "bearer_token_env_var": "NOT_SET"}, "NOT_SET is not set"),
        ({"url": URL, "headers": {"X": "${input:key}"}}, r"headers\.X: \$\{input:key\} is known to the program"),
        ({"command": "x", "cwd": "${workspaceFolder}/a"}, "cwd: .* write its value"),
        ({"command": "x", "envFile": "/nowhere/.env"}, "envFile /nowhere/.env cannot be read"),
        ({"mcpServers": {"a": {}, "b": {}}}, r"take one of its servers, as in \['mcpServers'\].*'a', 'b'"),
    ],
)
def test_what_is_no_entry_is_told_with_its_place(entry: dict[str, Any], told: str) -> None:
    with pytest.raises(SetupError, match=told):
        read_server_entry(entry, ENVIRONMENT)


def test_a_socket_in_the_file_system_is_no_url_of_ours() -> None:
    with pytest.raises(SetupError, match="is no URL"):
        Client({"type": "http", "url": "unix:///run/x.sock#/mcp"})


@pytest.mark.parametrize("target", [42, None, Path("server.py"), object()])
def test_what_is_no_target_is_told_what_is_one(target: Any) -> None:
    with pytest.raises(SetupError, match="nothing to connect to; give a board, a URL"):
        Client(target)
