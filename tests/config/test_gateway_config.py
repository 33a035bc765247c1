"""A configuration: what is read from our own shape, every mistake in turn with its exact words, and the schema for editors."""

from __future__ import annotations

import copy
import inspect
import json
import re
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema_rs
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

import pegboard.middleware
from pegboard.config.config_keys import ROOT as ROOT_SHAPE
from pegboard.config.config_keys import SERVER, TOOLBOX, AuthConfig, MiddlewareConfig, build_schema
from pegboard.config.gateway_config import (
    GatewayConfig,
    ServerConfig,
    describe_unused,
    find_config,
    is_allowed,
    read_config,
)
from pegboard.config.middleware_options import MIDDLEWARE
from pegboard.config.mistakes import redact
from pegboard.config.source_file import read_source
from pegboard.errors import SetupError
from pegboard.hooks.middleware import Middleware
from pegboard.middleware import Budget
from pegboard.tools.argument_mapping import ArgumentOverride

SECRET = "s3cr3t-value"
SCHEMA = jsonschema_rs.validator_for(build_schema())


def write(folder: Path, tree: Any, name: str = "pegboard.json") -> Path:
    file = folder / name
    file.write_text(tree if isinstance(tree, str) else json.dumps(tree))
    return file


def read(folder: Path, tree: Any, environ: dict[str, str] | None = None) -> GatewayConfig:
    return read_config(write(folder, tree), environ or {})


def mistakes(folder: Path, tree: Any, environ: dict[str, str] | None = None) -> list[str]:
    """The mistakes that are told, without the file's name and the lines."""
    with pytest.raises(SetupError) as caught:
        read(folder, tree, environ)
    head, _, rest = str(caught.value).partition("\n- ")
    found = rest.split("\n- ")
    number = "1 mistake" if len(found) == 1 else f"{len(found)} mistakes"
    assert head == f"{folder / 'pegboard.json'} has {number}:"
    return [mistake.replace(" (line 1)", "") for mistake in found]


def box(server: Any, **keys: Any) -> dict[str, Any]:
    return {"toolboxes": {"dev": {"description": "For work", "mcpServers": {"fs": server}, **keys}}}


def only(config: GatewayConfig) -> ServerConfig:
    return config.toolboxes["dev"].servers["fs"]


FULL = {
    "$schema": "config.schema.json",
    "name": "workshop",
    "toolMode": "auto",
    "listWait": 20,
    "autoTokens": 5000,
    "nameBudget": 60,
    "lock": {"policy": "quarantine", "path": "tools.lock"},
    "middleware": ["Timing", {"use": "RateLimit", "order": 5, "options": {"limit": 10}}],
    "toolboxes": {
        "dev": {
            "description": "For work",
            "names": "plain",
            "toolMode": "proxy",
            "arguments": "strict",
            "middleware": [{"use": "house.rules:Quiet"}],
            "mcpServers": {
                "fs": {
                    "command": "npx",
                    "args": ["-y", "server-filesystem", ""],
                    "env": {"LEVEL": "info", "EMPTY": ""},
                    "inherit": ["HOME"],
                    "timeout": 5,
                    "connectTimeout": 2.5,
                    "maxTimeout": 50,
                    "idleTimeout": 300,
                    "share": "session",
                    "lazy": True,
                    "enabled": False,
                    "concurrency": 4,
                    "version": "2025-06-18",
                    "toolFilters": ["read_*", "!read_secret"],
                    "tags": ["files"],
                    "category": "data",
                    "arguments": "lenient",
                    "roots": [".", "file:///srv"],
                    "middleware": ["Logging"],
                    "tools": {
                        "read_file": {
                            "name": "read",
                            "title": "Read",
                            "description": "Reads a file",
                            "enabled": True,
                            "inputSchema": {"type": "object"},
                            "annotations": {"readOnlyHint": True},
                            "tags": ["slow"],
                            "category": "reading",
                            "timeout": 9,
                            "arguments": {
                                "path": {"name": "file", "description": "Which one"},
                                "head": {"default": None},
                                "root": {"value": {"a": [1, "x"]}},
                                "tail": {"hidden": True},
                            },
                        }
                    },
                },
                "web": {
                    "type": "http",
                    "url": "https://tools.example/mcp",
                    "headers": {"X-Team": "blue"},
                    "auth": {"clientId": "peg", "clientSecret": SECRET, "scopes": ["a"], "redirectPort": 7000},
                },
                "old": {"transport": "sse", "url": "https://tools.example/sse"},
                "socket": {"url": "wss://tools.example/ws"},
            },
        }
    },
}


def test_every_key_of_our_shape_is_read(tmp_path: Path) -> None:
    config = read(tmp_path, FULL, {"HOME": "/home/ada"})
    assert (config.name, config.mode, config.auto_tokens, config.name_budget) == ("workshop", "auto", 5000, 60)
    assert (config.lock, config.lock_path) == ("quarantine", str(tmp_path / "tools.lock"))
    assert config.middleware == (
        MiddlewareConfig(use="Timing"),
        MiddlewareConfig(use="RateLimit", order=5.0, options={"limit": 10}),
    )
    toolbox = config.toolboxes["dev"]
    assert (toolbox.name, toolbox.description, toolbox.names) == ("dev", "For work", "plain")
    assert (toolbox.mode, toolbox.arguments) == ("proxy", "strict")
    assert list(toolbox.servers) == ["fs", "web", "old", "socket"]
    server = only(config)
    assert (server.name, server.kind) == ("fs", "stdio")
    assert server.command == ("npx", "-y", "server-filesystem", "")
    assert (server.env, server.inherit) == ({"LEVEL": "info", "EMPTY": ""}, ("HOME",))
    assert (server.timeout, server.connect_timeout, server.max_timeout, server.idle_seconds) == (5, 2.5, 50, 300)
    assert (server.share, server.lazy, server.enabled, server.concurrency) == ("session", True, False, 4)
    assert (server.version, server.arguments) == ("2025-06-18", "lenient")
    assert (server.tool_filters, server.tags, server.category) == (("read_*", "!read_secret"), ("files",), "data")
    assert server.roots == (tmp_path.as_uri(), "file:///srv")
    tool = server.tools["read_file"]
    assert (tool.name, tool.title, tool.description, tool.enabled) == ("read", "Read", "Reads a file", True)
    assert (tool.input_schema, tool.annotations) == ({"type": "object"}, {"readOnlyHint": True})
    assert (tool.tags, tool.category, tool.timeout) == (("slow",), "reading", 9)
    assert tool.arguments == {
        "path": ArgumentOverride(name="file", description="Which one"),
        "head": ArgumentOverride(default=None),
        "root": ArgumentOverride(value={"a": [1, "x"]}),
        "tail": ArgumentOverride(hidden=True),
    }
    assert tool.arguments["tail"].value is UNSET
    web = toolbox.servers["web"]
    assert (web.kind, web.url, web.headers) == ("http", "https://tools.example/mcp", {"X-Team": "blue"})
    assert web.auth == AuthConfig(client_id="peg", client_secret=SECRET, scopes=("a",), redirect_port=7000)
    assert [toolbox.servers[name].kind for name in ("old", "socket")] == ["sse", "websocket"]
    assert config.warnings == ()


def test_a_small_configuration_has_the_defaults_of_the_design(tmp_path: Path) -> None:
    config = read(tmp_path, box({"command": "server"}))
    server = only(config)
    assert (config.mode, config.name_budget, config.lock, config.lock_path) == (
        "all",
        64,
        "report",
        str(tmp_path / "pegboard.lock.json"),
    )
    assert (server.timeout, server.connect_timeout, server.max_timeout) == (60, 10, 600)
    assert (server.share, server.concurrency, server.tool_filters) == ("all", 64, ("*",))
    assert (server.cwd, server.env, server.inherit) == (str(tmp_path), {}, ())


def test_two_readings_of_the_same_file_are_equal(tmp_path: Path) -> None:
    file = write(tmp_path, FULL)
    assert read_config(file, {"HOME": "/"}) == read_config(file, {"HOME": "/"})


def test_toml_says_the_same_as_json(tmp_path: Path) -> None:
    text = """
        toolMode = "proxy"
        [toolboxes.dev]
        description = "For work"
        [toolboxes.dev.mcpServers.fs]
        command = "npx"
        args = ["-y", "x"]
        tools.read.enabled = false
    """
    tree = {"toolMode": "proxy", **box({"command": "npx", "args": ["-y", "x"], "tools": {"read": {"enabled": False}}})}
    told = read_config(write(tmp_path, text, "pegboard.toml"), {})
    assert (told.mode, told.toolboxes) == ("proxy", read(tmp_path, tree).toolboxes)


def test_comments_and_trailing_commas_are_read_over(tmp_path: Path) -> None:
    text = """\ufeff// for work
    {
      "toolboxes": {
        "dev": {"description": "not // a comment, /* neither */ is this", /* but
          this */ "mcpServers": {"fs": {"command": "a", "args": ["x", ],},},},
      },
    } // end"""
    config = read(tmp_path, text)
    assert config.toolboxes["dev"].description == "not // a comment, /* neither */ is this"
    assert only(config).command == ("a", "x")


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-(10**30), 10**30) | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
        max_leaves=12,
    ),
    st.sampled_from([None, 2, "\t"]),
)  # fmt: skip
def test_json_is_read_as_json(tmp_path_factory: pytest.TempPathFactory, value: Any, indent: Any) -> None:
    file = tmp_path_factory.getbasetemp() / "value.json"
    file.write_text(json.dumps(value, indent=indent, ensure_ascii=indent is None))
    assert read_source(file).tree == value


# Every mistake in turn: what is written, what is told, and whether the schema for editors sees it too.

DEV = "toolboxes.dev.mcpServers.fs"
WHO = "Server 'fs' in toolbox 'dev'"
SEEN, UNSEEN = True, False


def changed(key: str, value: Any) -> dict[str, Any]:
    tree = copy.deepcopy(FULL)
    tree["toolboxes"]["dev"]["mcpServers"] = {"fs": {"command": "a", key: value}}  # type: ignore[index]
    return tree


def tool(**keys: Any) -> dict[str, Any]:
    return box({"command": "a", "tools": {"read": keys}})


TABLE: list[tuple[Any, str, bool]] = [
    # The file as a whole.
    ([], "the file: Configuration must have a 'toolboxes' object: got a list, expected an object", SEEN),
    ({}, "the file: Configuration must have a 'toolboxes' object, or 'mcpServers' as in the file of a client; add 'toolboxes'", SEEN),
    (
        {"toolboxes": []},
        "toolboxes: Configuration must have a 'toolboxes' object: got a list, expected an object of toolboxes by name",
        SEEN,
    ),
    (
        {**box({"command": "a"}), "mcpServers": {}},
        "mcpServers: cannot be used together with 'toolboxes'; move these servers into a toolbox",
        SEEN,
    ),
    (
        {**box({"command": "a"}), "toolmode": "all"},
        "toolmode: a configuration has no key 'toolmode'; did you mean 'toolMode'?",
        SEEN,
    ),
    (
        {**box({"command": "a"}), "toolMode": "proxi"},
        'toolMode: got "proxi", expected one of "all", "dynamic", "proxy", "auto"; did you mean \'proxy\'?',
        SEEN,
    ),
    (
        {**box({"command": "a"}), "nameBudget": 10},
        "nameBudget: got 10, expected a whole number from 24 to 128",
        SEEN,
    ),
    ({**box({"command": "a"}), "autoTokens": 1.5}, "autoTokens: got 1.5, expected a whole number from 0 to 100000000", SEEN),
    (
        {**box({"command": "a"}), "lock": "on"},
        'lock.policy: got "on", expected one of "off", "report", "quarantine"',
        SEEN,
    ),
    ({**box({"command": "a"}), "lock": True}, "lock: got true, expected a string or an object that describes lock", SEEN),
    ({**box({"command": "a"}), "name": ""}, "name: is empty: expected a string", SEEN),
    # Middleware.
    (
        {**box({"command": "a"}), "middleware": {}},
        "middleware: got an object, expected a list of middleware",
        SEEN,
    ),
    (
        {**box({"command": "a"}), "middleware": ["RateLimits"]},
        "middleware[0]: unknown middleware 'RateLimits'; did you mean 'RateLimit'?",
        UNSEEN,
    ),
    ({**box({"command": "a"}), "middleware": [{}]}, "middleware[0]: a middleware has no 'use'; add 'use'", SEEN),
    (
        {**box({"command": "a"}), "middleware": ["house rules:Quiet"]},
        'middleware[0]: got "house rules:Quiet", expected a class as package.module:Name',
        UNSEEN,
    ),
    (
        {**box({"command": "a"}), "middleware": ["Timing", {"use": "RateLimit", "options": {"limt": 5}}]},
        "middleware[1].options.limt: RateLimit has no option 'limt'; did you mean 'limit'?\n- middleware[1]: RateLimit needs the option 'limit'; add it to 'options'",
        UNSEEN,
    ),
    # Toolboxes.
    (
        {"toolboxes": {"dev": 5}},
        "toolboxes.dev: got 5, expected an object that describes a toolbox",
        SEEN,
    ),
    (
        {"toolboxes": {"dev": {"mcpServers": {"fs": {"command": "a"}}}}},
        "toolboxes.dev: Toolbox 'dev' must have a description; add 'description'",
        SEEN,
    ),
    (
        {"toolboxes": {"dev": {"description": 7, "mcpServers": {"fs": {"command": "a"}}}}},
        "toolboxes.dev.description: Toolbox 'dev' must have a description: got 7, expected a string; put it in quotes",
        SEEN,
    ),
    (
        {"toolboxes": {"dev": {"description": "x"}}},
        "toolboxes.dev: Toolbox 'dev' must have an 'mcpServers' object; add 'mcpServers'",
        SEEN,
    ),
    (
        {"toolboxes": {"dev": {"description": "x", "mcpServers": []}}},
        ("toolboxes.dev.mcpServers: Toolbox 'dev' must have an 'mcpServers' object: got a list, expected an object of "
        "servers by name"),
        SEEN,
    ),
    (
        {"toolboxes": {"dev": {"description": "x", "mcpServers": {}}}},
        "toolboxes.dev.mcpServers: Toolbox 'dev' must have at least one MCP server; add one",
        SEEN,
    ),
    (
        {"toolboxes": {"a__b": {"description": "x", "mcpServers": {"fs": {"command": "a"}}}}},
        "toolboxes.a__b: the toolbox name 'a__b' contains '__', which separates toolbox, server and tool; try 'a_b'",
        SEEN,
    ),
    (
        {
            "toolboxes": {
                "dev": {"description": "x", "mcpServers": {"fs": {"command": "a"}}},
                "Dev": {"description": "x", "mcpServers": {"fs": {"command": "a"}}},
            }
        },
        "toolboxes.Dev: there is also a toolbox 'dev'; names must differ in more than case; rename one of them",
        UNSEEN,
    ),
    (
        {"toolboxes": {"dev": {"description": "x", "mcpServers": {"fs_": {"command": "a"}}}}},
        ("toolboxes.dev.mcpServers.fs_: the server name 'fs_' starts or ends with '_', which would merge with the '__' beside "
        "it; try 'fs'"),
        SEEN,
    ),
    (
        {"toolboxes": {"dev": {"description": "x", "mcpServers": {"my server": {"command": "a"}}}}},
        ("toolboxes.dev.mcpServers.'my server': the server name 'my server' may contain only A-Z a-z 0-9 _ -; try "
        "'my-server'"),
        SEEN,
    ),
    (
        box({"command": "a"}, names="short"),
        'toolboxes.dev.names: got "short", expected one of "qualified", "plain"',
        SEEN,
    ),
    # Servers.
    (box("npx"), f'{DEV}: got "npx", expected an object that describes a server', SEEN),
    (
        box({}),
        f"{DEV}: {WHO} must have a 'command' field; add it, or 'url' for a remote server, or 'board' for a Python file",
        SEEN,
    ),
    (box({"transport": "http", "command": "a"}), f"{DEV}: {WHO} must have a 'url' field; add it", UNSEEN),
    (box({"type": "http", "board": "a.py"}), f"{DEV}: {WHO} must have a 'url' field; add it", UNSEEN),
    (
        box({"command": [""]}),
        f"{DEV}: {WHO} must have a 'command' field; add it, or 'url' for a remote server, or 'board' for a Python file",
        UNSEEN,
    ),
    (
        box({"command": "a", "url": "https://x.example/mcp"}),
        f"{DEV}: {WHO} has 'command' and 'url': expected only one of them; choose one with 'transport', or remove one",
        UNSEEN,
    ),
    (box({"command": 5}), f"{DEV}.command: got 5, expected a string or a list of strings; put it in quotes", SEEN),
    (
        box({"command": "a", "args": "-y"}),
        f"{DEV}.args: {WHO}: 'args' must be an array: got \"-y\", expected a list of strings; put it in brackets: [...]",
        SEEN,
    ),
    (box({"command": "a", "args": [80]}), f"{DEV}.args[0]: got 80, expected a string; put it in quotes", SEEN),
    (
        box({"command": "a", "env": ["A=1"]}),
        f"{DEV}.env: {WHO}: 'env' must be an object: got a list, expected an object of strings",
        SEEN,
    ),
    (
        box({"command": "a", "env": {"PORT": 80}}),
        f"{DEV}.env.PORT: got a number, expected a string; put it in quotes",
        SEEN,
    ),
    (
        box({"command": "a", "env": {"A=B": "x"}}),
        f"{DEV}.env.'A=B': is not a valid variable name; use only A-Z, 0-9 and _",
        UNSEEN,
    ),
    (box({"command": "a\0b"}), f"{DEV}.command: contains a NUL character; remove it", UNSEEN),
    (box({"command": "a", "inherit": "HOME"}), f'{DEV}.inherit: got "HOME", expected a list of strings; put it in brackets: [...]', SEEN),
    (box({"command": "a", "tiemout": 5}), f"{DEV}.tiemout: a server has no key 'tiemout'; did you mean 'timeout'?", SEEN),
    (box({"command": "a", "timeout": 0}), f"{DEV}.timeout: got 0, expected a number of seconds greater than 0", SEEN),
    (box({"command": "a", "timeout": "5s"}), f'{DEV}.timeout: got "5s", expected a number of seconds greater than 0', SEEN),
    (box({"command": "a", "timeout": True}), f"{DEV}.timeout: got true, expected a number of seconds greater than 0", SEEN),
    (box({"command": "a", "timeout": 1e300}), f"{DEV}.timeout: got 1e+300, expected a number of seconds greater than 0", SEEN),
    (
        box({"command": "a", "timeout": 20, "maxTimeout": 10}),
        f"{DEV}.timeout: got 20.0, expected at most 'maxTimeout', which is 10; raise 'maxTimeout' or lower this",
        UNSEEN,
    ),
    (box({"command": "a", "concurrency": 0}), f"{DEV}.concurrency: got 0, expected a whole number from 1 to 10000", SEEN),
    (box({"command": "a", "lazy": "yes"}), f'{DEV}.lazy: got "yes", expected true or false', SEEN),
    (
        box({"command": "a", "share": "everyone"}),
        f'{DEV}.share: got "everyone", expected one of "all", "principal", "session"',
        SEEN,
    ),
    (
        box({"command": "a", "version": "2026"}),
        (f'{DEV}.version: got "2026", expected one of "2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"; '
        "did you mean '2026-07-28'?"),
        SEEN,
    ),
    (
        box({"url": "ftp://x.example/?key=abc"}),
        (f'{DEV}.url: is not a URL of a server over http: got "ftp://x.example", expected a URL that starts with http:// or '
        "https://"),
        UNSEEN,
    ),
    (
        box({"url": "x.example"}),
        f"{DEV}.url: is not a URL of a server over http: expected a URL that starts with http:// or https://",
        UNSEEN,
    ),
    (
        box({"url": "https://x.example/ws", "transport": "ws"}),
        (f'{DEV}.url: is not a URL of a server over websocket: got "https://x.example", expected a URL that starts with ws:// or '
        "wss://"),
        UNSEEN,
    ),
    (
        box({"url": "https://x.example", "headers": {"X Team": "a"}}),
        f"{DEV}.headers.'X Team': is not a valid header name; use A-Z a-z 0-9 -",
        UNSEEN,
    ),
    (
        box({"url": "https://x.example", "headers": {"X-Team": "a\r\nCookie: b"}}),
        f"{DEV}.headers.X-Team: contains a line break or another control character; remove it",
        UNSEEN,
    ),
    (
        box({"url": "https://x.example", "headers": {"Authorization": "Bearer abcdefgh"}, "auth": "oauth"}),
        f"{DEV}: has both 'auth' and the header Authorization: expected only one of them; remove the other",
        UNSEEN,
    ),
    (
        box({"url": "wss://x.example", "auth": "oauth"}),
        f"{DEV}.auth: is only for servers over HTTP; use a header Authorization",
        UNSEEN,
    ),
    (
        box({"url": "https://x.example", "auth": {"clientSecret": "abcdefgh"}}),
        f"{DEV}.auth: has a 'clientSecret' but no 'clientId'; add 'clientId'",
        UNSEEN,
    ),
    (
        box({"url": "https://x.example", "auth": {"kind": "client_credentials", "clientId": "a"}}),
        f"{DEV}.auth: client_credentials need either a 'clientSecret' or a 'privateKey'; give one",
        UNSEEN,
    ),
    (
        box({"url": "https://x.example", "auth": {"clientid": "a"}}),
        f"{DEV}.auth.clientid: auth has no key 'clientid'; did you mean 'clientId'?",
        SEEN,
    ),
    # What is shown of tools.
    (tool(descripton="x"), f"{DEV}.tools.read.descripton: a tool has no key 'descripton'; did you mean 'description'?", SEEN),
    (
        tool(name="read file"),
        f'{DEV}.tools.read.name: is not a valid tool name: got "read file", expected 1 to 128 of A-Z a-z 0-9 _ . -',
        UNSEEN,
    ),
    (
        box({"command": "a", "tools": {"a": {"name": "c"}, "b": {"name": "c"}}}),
        f"{DEV}.tools.b.name: 'a' is also called 'c'; choose another",
        UNSEEN,
    ),
    (
        tool(inputSchema={"type": "string"}),
        f'{DEV}.tools.read.inputSchema: got an object, expected a JSON Schema with "type": "object"',
        UNSEEN,
    ),
    (
        tool(arguments={"path": {"value": 1, "default": 2}}),
        (f"{DEV}.tools.read.arguments.path: has both 'value' and 'default'; keep 'value' if callers must not change it, else "
        "'default'"),
        UNSEEN,
    ),
    (tool(arguments={"path": "x"}), f'{DEV}.tools.read.arguments.path: got "x", expected an object that describes an argument', SEEN),
    (tool(tags="a"), f'{DEV}.tools.read.tags: got "a", expected a list of strings; put it in brackets: [...]', SEEN),
]  # fmt: skip


@pytest.mark.parametrize(("tree", "told", "seen"), TABLE, ids=[told.split(": ", 1)[1][:60] for _, told, _ in TABLE])
def test_a_mistake_is_reported_with_its_location_and_a_fix(tmp_path: Path, tree: Any, told: str, seen: bool) -> None:
    assert "\n- ".join(mistakes(tmp_path, tree)) == told
    assert SCHEMA.is_valid(tree) is not seen


def test_all_mistakes_are_reported_together(tmp_path: Path) -> None:
    tree = {
        "toolMode": "some",
        "toolboxes": {
            "dev": {"mcpServers": {"a": {"command": "x", "args": 1}, "b": {}}},
            "ops": {"description": "x", "mcpServers": {"c": {"url": "x"}, "d": {"command": "${OPEN"}}},
        },
    }
    assert len(mistakes(tmp_path, tree)) == 6


def test_a_mistake_names_its_line(tmp_path: Path) -> None:
    text = '{\n "toolboxes": {\n  "dev": {\n   "description": "x",\n   "mcpServers": {"fs": {"command": "a",\n    "lazy": 1}}}}}'
    with pytest.raises(SetupError, match=r"fs\.lazy \(line 6\): got 1"):
        read(tmp_path, text)


def test_a_duplicate_name_is_reported_with_both_lines(tmp_path: Path) -> None:
    text = """{"toolboxes": {"dev": {"description": "x", "mcpServers": {
        "fs": {"command": "a"},
        "web": {"command": "b"},
        "fs": {"command": "c"}}}}}"""
    with pytest.raises(SetupError) as caught:
        read(tmp_path, text)
    assert str(caught.value).endswith(
        "- toolboxes.dev.mcpServers.fs (line 2): is given twice, on lines 2 and 4; rename or remove one of them"
    )


def test_a_duplicate_name_on_one_line_is_reported_with_that_line(tmp_path: Path) -> None:
    text = (
        '{"toolboxes": {"dev": {"description": "x", "mcpServers": {"fs": {"command": "a"}, "fs": {"command": "c"}}}}}'
    )
    with pytest.raises(SetupError, match=r"fs \(line 1\): is given twice, both on line 1; rename"):
        read(tmp_path, text)


def test_mistakes_are_reported_in_file_order(tmp_path: Path) -> None:
    text = """{"toolboxes": {"dev": {"description": "x", "mcpServers": {
        "one": {"command": "a", "cwd": "/no/such/folder"},
        "two": {"command": "${OPEN"},
        "three": {"command": "a", "lazy": 1},
        "three": {"command": "a"}}}},
        "toolMode": "some"}"""
    with pytest.raises(SetupError) as caught:
        read(tmp_path, text)
    told = re.findall(r"^- (?:toolboxes\.dev\.mcpServers\.)?(\w+)", str(caught.value), re.MULTILINE)
    assert told == ["one", "Environment", "three", "toolMode"]


def test_a_duplicate_table_is_reported_with_both_lines(tmp_path: Path) -> None:
    text = '[toolboxes.dev]\ndescription = "x"\n\n[toolboxes.dev]\n'
    with pytest.raises(SetupError, match=r"Invalid TOML.*at line 4.*\[toolboxes\.dev\] is already on line 1"):
        read_config(write(tmp_path, text, "pegboard.toml"), {})


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "the file is empty (line 1, column 1)"),
        ("{", "expected a key in double quotes or '}', got the end of the file (line 1, column 2)"),
        ("{'a': 1}", "expected a key in double quotes or '}', got \"'\" (line 1, column 2)"),
        ('{"a" 1}', "expected ':' after the key 'a', got '1' (line 1, column 6)"),
        ('{"a": 1\n "b": 2}', "expected ',' or '}', got '\"' (line 2, column 2)"),
        ('{"a": [1 2]}', "expected ',' or ']', got '2' (line 1, column 10)"),
        ('{"a": }', "expected a value, got '}' (line 1, column 7)"),
        ('{"a": 1} x', "unexpected text after the end of the configuration (line 1, column 10)"),
        ('{"a": "x\ny"}', "invalid control character at (line 1, column 9)"),
        ('{"a": "x', "unterminated string starting at (line 1, column 7)"),
        ('{"a":', "the file ends where a value is expected (line 1, column 6)"),
        ("[" * 100, "it is nested too deep (line 1, column 66)"),
        ("{/* }", "expected a key in double quotes or '}', got '/' (line 1, column 2)"),
    ],
)
def test_invalid_json_is_reported_with_its_line_and_column(tmp_path: Path, text: str, told: str) -> None:
    file = write(tmp_path, text)
    with pytest.raises(SetupError) as caught:
        read_config(file, {})
    line = told.partition("(line ")[2].partition(",")[0]
    assert str(caught.value) == f"{file}:{line}: Invalid JSON in config file: {told}"


@pytest.mark.parametrize(
    ("data", "told"),
    [(b'{"a":\n "\xff"}', r":2: not UTF-8"), (b" " * (4 * 1024 * 1024 + 1), "larger than")],
)
def test_a_configuration_that_is_too_large_or_not_utf8_is_rejected(tmp_path: Path, data: bytes, told: str) -> None:
    (tmp_path / "pegboard.json").write_bytes(data)
    with pytest.raises(SetupError, match=told):
        read_config(tmp_path / "pegboard.json", {})


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match=r"File not found: .*nothing\.json"):
        read_config(tmp_path / "nothing.json", {})
    with pytest.raises(SetupError, match="cannot be read: Is a directory"):
        read_config(tmp_path, {})


def test_a_toml_date_is_rejected(tmp_path: Path) -> None:
    text = '[toolboxes.dev]\ndescription = "x"\n[toolboxes.dev.mcpServers.fs]\ncommand = "a"\n'
    text += "tools.read.arguments.day.value = 2026-01-31\n"
    with pytest.raises(SetupError, match=r"day\.value .*got date, expected a JSON value; put it in quotes"):
        read_config(write(tmp_path, text, "pegboard.toml"), {})


# The schema for editors.


def test_the_shipped_schema_is_the_one_of_the_tables() -> None:
    shipped = json.loads(files("pegboard.config").joinpath("config.schema.json").read_text())
    assert shipped == build_schema(), "write it anew: json.dump(build_schema(), file, indent=2)"


def test_the_schema_takes_what_the_reader_takes(tmp_path: Path) -> None:
    jsonschema_rs.meta.validate(build_schema())
    for tree in (
        FULL,
        box({"command": ["npx", "-y"], "timeout": "${SECONDS}", "lazy": "${LAZY:-on}", "concurrency": "${MANY:-3}"}),
        {"toolboxes": {"${BOX}": {"description": "x", "mcpServers": {"${BOX}-1": {"command": "a"}}}}},
        {"toolboxes": {}},
    ):
        assert SCHEMA.is_valid(tree)
        read(tmp_path, tree, {"SECONDS": "5", "BOX": "ops"})


# Paths.


def test_relative_paths_begin_at_the_folder_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "tools.py").touch()
    tree = {
        "toolboxes": {
            "dev": {
                "description": "x",
                "mcpServers": {
                    "a": {"command": "./bin/serve", "cwd": "work"},
                    "b": {"command": "/usr/bin/env"},
                    "c": {"command": "python", "args": ["./server.py"]},
                    "d": {"board": "tools.py:board"},
                    "e": {"board": "./tools.py"},
                    "f": {"command": "bin/../serve"},
                },
            }
        }
    }
    servers = read(tmp_path, tree).toolboxes["dev"].servers
    assert (servers["a"].command, servers["a"].cwd) == ((f"{tmp_path}/bin/serve",), f"{tmp_path}/work")
    assert servers["b"].command == ("/usr/bin/env",)
    assert (servers["c"].command, servers["c"].cwd) == (("python", "./server.py"), str(tmp_path))
    assert (servers["d"].kind, servers["d"].board) == ("board", f"{tmp_path}/tools.py:board")
    assert servers["e"].board == f"{tmp_path}/tools.py"
    assert servers["f"].command == (f"{tmp_path}/serve",)


def test_missing_files_and_folders_are_reported(tmp_path: Path) -> None:
    assert mistakes(tmp_path, box({"command": "a", "cwd": "nowhere"})) == [
        f"{DEV}.cwd: folder not found: {tmp_path}/nowhere; create it, or choose another"
    ]
    assert mistakes(tmp_path, box({"board": "tools.py:board"})) == [
        f"{DEV}.board: file not found: {tmp_path}/tools.py: expected a Python file with a board"
    ]
    assert mistakes(tmp_path, box({"command": "a", "envFile": ".env"})) == [
        f"{DEV}.envFile: {tmp_path}/.env cannot be read: expected a file of NAME=value lines in UTF-8"
    ]


def test_a_key_is_a_text_or_a_file(tmp_path: Path) -> None:
    auth = {"kind": "clientCredentials", "clientId": "a", "privateKey": "keys/peg.pem"}
    assert only(read(tmp_path, box({"url": "https://x.example", "auth": auth}))).auth == AuthConfig(
        kind="client_credentials", client_id="a", private_key=f"{tmp_path}/keys/peg.pem"
    )
    auth["privateKey"] = pem = "-----BEGIN PRIVATE KEY-----\nabc"
    found = only(config := read(tmp_path, box({"url": "https://x.example", "auth": auth}))).auth
    assert found is not None
    assert found.private_key == pem
    assert pem in config.secrets


def test_a_file_of_variables_is_read_and_env_goes_before_it(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text(f'# ours\n\nexport A=1\nB = "two words" \nC={SECRET}\nD=\n')
    server = only(config := read(tmp_path, box({"command": "a", "envFile": ".env", "env": {"A": "9"}})))
    assert server.env == {"A": "9", "B": "two words", "C": SECRET, "D": ""}
    assert SECRET in config.secrets
    (tmp_path / ".env").write_text("A=1\nwhat is this\n")
    assert mistakes(tmp_path, box({"command": "a", "envFile": ".env"})) == [
        f"{DEV}.envFile: {tmp_path}/.env:2 is not NAME=value; fix that line"
    ]


# What keys mean together.


def test_the_transport_chooses_where_command_and_url_both_stand(tmp_path: Path) -> None:
    config = read(tmp_path, box({"command": "a", "url": "https://x.example/mcp", "transport": "http"}))
    assert only(config).kind == "http"
    assert config.warnings == (f"{DEV}.command: is not used by a server over http",)
    assert only(read(tmp_path, box({"command": "", "url": "https://x.example/mcp"}))).kind == "http"


def test_a_long_timeout_raises_the_longest(tmp_path: Path) -> None:
    assert only(read(tmp_path, box({"command": "a", "timeout": 900}))).max_timeout == 900
    assert only(read(tmp_path, box({"command": "a", "maxTimeout": 30}))).timeout == 30


def test_disabled_is_the_opposite_of_enabled(tmp_path: Path) -> None:
    assert only(read(tmp_path, box({"command": "a", "disabled": True}))).enabled is False
    assert only(read(tmp_path, box({"command": "a", "disabled": False}))).enabled is True
    assert only(read(tmp_path, box({"command": "a", "disabled": False, "enabled": False}))).enabled is False


@pytest.mark.parametrize("flag", [{"enabled": False}, {"disabled": True}, {"enabled": "${USE_IT:-no}"}])
def test_a_server_that_is_not_used_needs_nothing_of_its_own(tmp_path: Path, flag: dict[str, Any]) -> None:
    server = {
        "command": "${TOOL}",
        "args": ["${NOT_SET}"],
        "env": {"KEY": "${NOT_SET}"},
        "cwd": "/no/such/folder",
        "envFile": "/no/such/file",
    }
    assert only(read(tmp_path, box({**server, **flag}))).enabled is False
    url = {"url": "https://${HOST}/", "auth": {"kind": "client_credentials", "clientSecret": "${NOT_SET}"}}
    assert only(read(tmp_path, box({**url, **flag}))).enabled is False
    theirs = read(tmp_path, {"mcpServers": {"fs": {**server, **flag}}})
    assert theirs.toolboxes["main"].servers["fs"].enabled is False
    assert only(read(tmp_path, box({"command": "a", "args": ["${NOT_SET}"], "enabled": True}))).problem


def test_invalid_keys_of_a_disabled_server_are_reported(tmp_path: Path) -> None:
    assert "args" in mistakes(tmp_path, box({"command": "a", "args": 1, "enabled": False}))[0]


@pytest.mark.parametrize(
    ("filters", "shown"),
    [
        (["*"], "read read_all write"),
        (["read"], "read"),
        (["read*"], "read read_all"),
        (["!write"], "read read_all"),
        (["!read", "*"], "read_all write"),
        (["write", "*"], "read read_all write"),
        (["READ"], ""),
        ([], ""),
    ],
)
def test_filters_choose_tools(tmp_path: Path, filters: list[str], shown: str) -> None:
    chosen = only(read(tmp_path, box({"command": "a", "toolFilters": filters}))).tool_filters
    assert [name for name in ("read", "read_all", "write") if is_allowed(chosen, name)] == shown.split()


def test_filters_and_overrides_that_match_no_tool_are_reported(tmp_path: Path) -> None:
    keys = {
        "toolFilters": ["*", "read*", "writ", "!drop_*", "!drop"],
        "tools": {"read": {"name": "get"}, "raed": {"enabled": False}},
    }
    server = only(read(tmp_path, box({"command": "a", **keys})))
    assert describe_unused(server, ["read", "write"]) == (
        "toolFilters: no tool of 'fs' matches 'writ'; did you mean 'write'?",
        "toolFilters: no tool of 'fs' matches '!drop'; use one of read, write",
        "tools: 'fs' has no tool 'raed'; did you mean 'read'?",
    )
    assert describe_unused(only(read(tmp_path, box({"command": "a"}))), []) == ()


def test_warnings_tell_what_is_of_no_use(tmp_path: Path) -> None:
    tree = {
        "toolboxes": {
            "dev": {
                "description": "x",
                "mcpServers": {
                    "fs": {"command": "a", "headers": {"A": "b"}, "inherit": ["NOT_SET"]},
                    "web": {
                        "url": "http://x.example",
                        "env": {"A": "b"},
                        "headers": {"Authorization": "Bearer abcdef"},
                    },
                    "words": {"command": "npx -y server"},
                },
            }
        }
    }
    assert read(tmp_path, tree).warnings == (
        f"{DEV}.headers: is not used by a server over stdio",
        f"{DEV}.inherit[0]: NOT_SET is not set in the environment of the gateway",
        "toolboxes.dev.mcpServers.web.env: is not used by a server over http",
        "toolboxes.dev.mcpServers.web.url: credentials are sent to x.example unencrypted; use https:// if possible",
        (
            "toolboxes.dev.mcpServers.words.command: contains spaces; put the arguments into 'args', as in "
            "['-y', 'server']"
        ),
    )


def test_options_of_built_in_middleware_are_checked_with_their_place_line_and_fix(tmp_path: Path) -> None:
    file = tmp_path / "pegboard.json"
    file.write_text(
        """{
  "toolboxes": {
    "dev": {
      "description": "x",
      "mcpServers": {
        "fs": {
          "command": "a",
          "middleware": [
            {"use": "Timeout", "options": {
              "seconds": "5",
              "tools": {"read": "soon"}}}
          ]
        }
      }
    }
  },
  "middleware": [
    {"use": "TokenBudget", "options": {
      "default": {"tokens": "many", "acton": "refuse"},
      "tools": [],
      "counter": "len",
      "action": "refuze"}},
    {"use": "Logging", "options": {
      "level": [],
      "style": "lines"}},
    {"use": "RateLimit", "options": {
      "limit": 2.5,
      "by": ["tool", "user"],
      "store": "redis://localhost"}},
    {"use": "Cache", "options": {
      "ttl": 5,
      "shared": "yes",
      "tools": "read"}}
  ]
}"""
    )
    with pytest.raises(SetupError) as caught:
        read_config(file, {})
    server = "toolboxes.dev.mcpServers.fs.middleware[0].options"
    assert str(caught.value).splitlines() == [
        f"{file} has 14 mistakes:",
        f'- {server}.seconds (line 10): got "5", expected a number or null',
        f'- {server}.tools.read (line 11): got "soon", expected a number or null',
        "- middleware[0].options.default.tokens (line 19): got a string, expected a whole number",
        "- middleware[0].options.default.acton (line 19): a Budget has no key 'acton'; did you mean 'action'?",
        "- middleware[0].options.tools (line 20): got a list, expected an object or null",
        (
            "- middleware[0].options.counter (line 21): the option 'counter' of TokenBudget is a Python object, which a file "
            "cannot contain; remove it, or name a class of your own as module:Name"
        ),
        (
            '- middleware[0].options.action (line 22): got "refuze", expected one of "warn", "refuse", "truncate"; did you mean '
            "'refuse'?"
        ),
        "- middleware[1].options.level (line 24): got a list, expected a whole number or a string",
        '- middleware[1].options.style (line 25): got "lines", expected one of "line", "json"; did you mean \'line\'?',
        "- middleware[2].options.limit (line 27): got 2.5, expected a whole number",
        (
            '- middleware[2].options.by[1] (line 28): got "user", expected one of "tool", "category", "principal", "client", '
            '"session"'
        ),
        (
            "- middleware[2].options.store (line 29): the option 'store' of RateLimit is a Python object, which a file cannot "
            "contain; remove it, or name a class of your own as module:Name"
        ),
        '- middleware[3].options.shared (line 32): got "yes", expected true or false',
        '- middleware[3].options.tools (line 33): got "read", expected a list of strings or null',
    ]


def test_options_of_built_in_middleware_are_read_with_variables_and_budgets(tmp_path: Path) -> None:
    tree = {
        "toolboxes": {},
        "middleware": [
            {"use": "Timeout", "options": {"seconds": "${SECONDS}", "tools": {"slow": None}}},
            {
                "use": "TokenBudget",
                "options": {"default": None, "tools": {"a": {"tokens": 500, "action": "warn"}, "b": 90}},
            },
            {"use": "RateLimit", "options": {"limit": "${LIMIT}", "by": ["tool", "client"]}},
            {"use": "Logging", "options": {"level": "WARNING"}},
        ],
    }
    timeout, budget, rate, logging = read(tmp_path, tree, {"SECONDS": "2.5", "LIMIT": "7"}).middleware
    assert timeout.options == {"seconds": 2.5, "tools": {"slow": None}}
    assert budget.options == {"default": None, "tools": {"a": Budget(500, "warn"), "b": 90}}
    assert rate.options == {"limit": 7, "by": ("tool", "client")}
    assert logging.options == {"level": "WARNING"}


def test_every_middleware_that_can_be_named_is_one() -> None:
    known = {
        name
        for name in pegboard.middleware.__all__
        if inspect.isclass(found := getattr(pegboard.middleware, name)) and issubclass(found, Middleware)
    }
    assert set(MIDDLEWARE) == known - {"Middleware"}


# Secrets.


def test_no_secret_is_shown_by_a_configuration_or_a_mistake(tmp_path: Path) -> None:
    tree: dict[str, Any] = {
        "toolboxes": {
            "dev": {
                "description": "x",
                "middleware": [{"use": "a.b:C", "options": {"apiKey": "options-5ecret"}}],
                "mcpServers": {
                    "fs": {
                        "command": "a",
                        "args": ["--key", "${KEY}"],
                        "env": {"TOKEN": "token-5ecret", "PLAIN": "env-5ecret", "LEVEL": "warning"},
                        "inherit": ["INHERITED_KEY"],
                        "tools": {"read": {"arguments": {"token": {"value": "fixed-5ecret"}}}},
                    },
                    "web": {
                        "url": "https://ada:pass-5ecret@x.example/mcp?api_key=query-5ecret",
                        "headers": {"Authorization": "Bearer bearer-5ecret"},
                    },
                    "login": {"url": "https://x.example", "auth": {"clientId": "a", "clientSecret": "client-5ecret"}},
                },
            }
        }
    }
    environ = {"KEY": "variable-5ecret", "INHERITED_KEY": "inherited-5ecret"}
    config = read(tmp_path, tree, environ)
    assert "5ecret" not in repr(config) + repr(config.toolboxes) + repr(config.toolboxes["dev"].servers["fs"].tools)
    assert "5ecret" not in repr(config.toolboxes["dev"].servers["login"].auth)
    words = ("options", "variable", "token", "env", "inherited", "pass", "query", "bearer", "client", "fixed")
    assert {f"{word}-5ecret" for word in words} <= config.secrets
    assert "warning" not in config.secrets
    told = " ".join(f"{word}-5ecret" for word in words)
    assert "5ecret" not in redact(told, config.secrets)

    servers = tree["toolboxes"]["dev"]["mcpServers"]
    servers["fs"]["env"]["TOKEN"] = ["token-5ecret"]
    servers["fs"]["timeout"] = "${KEY}"
    servers["web"]["url"] = "ftp://ada:pass-5ecret@x.example/mcp?api_key=query-5ecret"
    servers["login"]["auth"]["kind"] = "client-5ecret"
    servers["login"]["cwd"] = 5
    found = mistakes(tmp_path, tree, environ)
    assert len(found) == 5
    assert "5ecret" not in "\n".join(found)


@given(st.text(min_size=6).filter(lambda text: "$" not in text and text not in "env.TOKEN mistake expected"))
def test_values_of_env_never_appear_in_errors(tmp_path_factory: pytest.TempPathFactory, value: str) -> None:
    folder = tmp_path_factory.getbasetemp()
    tree = box({"command": "a", "env": {"TOKEN": [value], "OTHER": value}, "args": 1})
    write(folder, tree)
    with pytest.raises(SetupError) as caught:
        read_config(folder / "pegboard.json", {})
    assert value not in str(caught.value).replace(str(folder), "").replace("***", "") or value.isspace()


# Whatever is written.

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(["", "a", "${A}", "${NOT_SET}", "\0", "x y", "://"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["", "a", "name", "use", "${A}"]), inner, max_size=2),
    max_leaves=4,
)  # fmt: skip
CODEX = {
    "mcp_servers": {
        "a": {
            "command": "x",
            "env_vars": ["A"],
            "enabled_tools": ["a"],
            "tool_timeout_sec": 1,
            "http_headers": {"a": "b"},
        },
        "b": {"url": "https://x.example", "bearer_token_env_var": "A", "env_http_headers": {"a": "A"}, "scopes": ["a"]},
    }
}
VS_CODE = {
    "inputs": [{"id": "a", "description": "x", "default": "y"}],
    "servers": {"a": {"command": "x", "env": {"A": "${input:a}"}, "oauth": {"scopes": "a"}}},
}
GEMINI = {
    "mcp": {"allowed": ["a"], "excluded": []},
    "mcpServers": {
        "a": {"httpUrl": "https://x.example", "timeout": 5, "includeTools": ["a"], "oauth": {"enabled": True}}
    },
}
CLAUDE = {
    "mcpServers": {
        "a": {"serverUrl": "https://x.example", "auth": {"CLIENT_ID": "a"}, "disabledTools": ["a"], "timeout": 3000},
        "b": {"command": "x", "tools": ["a"], "type": "local", "envFile": ".env"},
    }
}


def places(tree: Any) -> list[tuple[Any, ...]]:
    inside = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    return [(), *((key, *rest) for key, item in inside for rest in places(item))]


@given(st.data(), st.sampled_from([FULL, CODEX, VS_CODE, GEMINI, CLAUDE]), JSON)
def test_whatever_stands_anywhere_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, whole: dict[str, Any], value: Any
) -> None:
    changed = copy.deepcopy(whole)
    place = data.draw(st.sampled_from(places(whole)))
    if place:
        inside: Any = changed
        for key in place[:-1]:
            inside = inside[key]
        inside[place[-1]] = value
    else:
        changed = value
    told, config = "", None
    try:
        config = read(tmp_path_factory.getbasetemp(), json.dumps(changed), {"A": "ab", "HOME": "/"})
    except SetupError as refused:
        told = str(refused)
    if config is None:
        assert re.match(r".*pegboard\.json has \d+ mistakes?( and \d+ warnings?)?:\n- ", told)
    else:
        assert msgspec.convert(msgspec.to_builtins(config), GatewayConfig) == config
        for server in (server for toolbox in config.toolboxes.values() for server in toolbox.servers.values()):
            assert server.problem or (server.command[0] if server.kind == "stdio" else server.url or server.board)
        if "toolboxes" in changed:
            assert SCHEMA.is_valid(changed)


# Where it is.


def test_a_configuration_is_found_by_its_variable_or_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SetupError, match=r"pass a file, set PEGBOARD_CONFIG, or create pegboard\.json here"):
        find_config({})
    write(tmp_path, {}, "workbench-config.json")
    assert find_config({}) == Path("workbench-config.json")
    write(tmp_path, {}, "pegboard.toml")
    assert find_config({}) == Path("pegboard.toml")
    assert find_config({"WORKBENCH_CONFIG": "a.json"}) == Path("a.json")
    assert find_config({"WORKBENCH_CONFIG": "a.json", "PEGBOARD_CONFIG": "b.json"}) == Path("b.json")


# The document and its examples.

ROOT = Path(__file__).resolve().parents[2]


def test_the_examples_are_read_without_a_warning() -> None:
    workshop = read_config(ROOT / "examples" / "workshop.json", {})
    remote = read_config(ROOT / "examples" / "remote_servers.toml", {"TICKETS_TOKEN": SECRET, "DISPLAY": ":0"})
    users = read_config(ROOT / "examples" / "user_connections.json", {})
    assert (workshop.warnings, remote.warnings, users.warnings) == ((), (), ())
    assert SCHEMA.is_valid(read_source(ROOT / "examples" / "user_connections.json").tree)
    assert SCHEMA.is_valid(read_source(ROOT / "examples" / "workshop.json").tree)
    assert SCHEMA.is_valid(read_source(ROOT / "examples" / "remote_servers.toml").tree)


def test_the_snippets_of_the_document_stand_in_the_examples() -> None:
    text = (ROOT / "docs" / "gateway-config.md").read_text()
    snippets = re.findall(r"^```(?:jsonc|toml)\n(?://|#) (examples/\S+)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert len(snippets) == text.count("```jsonc") + text.count("```toml") >= 4
    for name, code in snippets:
        assert code in (ROOT / name).read_text()


def test_the_document_names_every_key() -> None:
    text = (ROOT / "docs" / "gateway-config.md").read_text()
    keys = {*ROOT_SHAPE.fields, *TOOLBOX.fields, *SERVER.fields} - {"$schema"}
    assert {key for key in keys if f"`{key}`" not in text} == set()
