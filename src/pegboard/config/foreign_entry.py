"""One server entry in the format of another program.

Settings that only concern those programs (enabled, allowed tools, timeouts) are ignored.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import Struct, field

from pegboard.call import Json
from pegboard.errors import SetupError

_ROOTS: Final = ("mcpServers", "servers", "mcp_servers", "toolboxes")
_COMMANDS: Final = frozenset({"stdio", "local"})
_URLS: Final = frozenset(
    {"http", "sse", "streamable-http", "streamableHttp", "streamable_http", "ws", "websocket", "remote"}
)
# The name of a variable is in capitals unless it says that it is one: what a shell is to read stays as it is.
_VARIABLE: Final = re.compile(r"\$\{(?:([A-Z_][A-Z0-9_]*)|env:([A-Za-z_][A-Za-z0-9_]*))(?::-([^{}]*+))?\}")
_HOST_ONLY: Final = re.compile(r"\$\{(?:input:[^{}]*+|workspaceFolder[^{}]*+|userHome|command:[^{}]*+)\}")


class ServerEntry(Struct, frozen=True):
    """Where a server is: a command of several words, or a URL; never both."""

    command: tuple[str, ...]
    url: str
    env: Mapping[str, str]
    cwd: str | None
    headers: Mapping[str, str]
    connect_timeout: float | None


class _RawEntry(Struct):
    """Every spelling of these programs."""

    type: str | None = None
    transport: str | None = None
    command: str | list[str] | None = None
    args: list[str] = []
    env: dict[str, str | int | float | bool | None] = {}
    env_vars: list[str] = []
    env_file: str | None = field(name="envFile", default=None)
    cwd: str | None = None
    url: str | None = None
    http_url: str | None = field(name="httpUrl", default=None)
    server_url: str | None = field(name="serverUrl", default=None)
    headers: dict[str, str] = {}
    http_headers: dict[str, str] = {}
    env_http_headers: dict[str, str] = {}
    bearer_token_env_var: str | None = None
    connect_timeout: float | None = field(name="connectTimeout", default=None)
    startup_timeout_sec: float | None = None


def read_server_entry(entry: Mapping[str, Any], environment: Mapping[str, str] = os.environ) -> ServerEntry:
    """What an entry says; SetupError where that is no server, or a variable that it names is not set."""
    root = next((root for root in _ROOTS if isinstance(entry.get(root), Mapping)), None)
    if root is not None:
        known = ", ".join(map(repr, entry[root]))
        raise SetupError(f"This is a whole configuration; take one of its servers, as in [{root!r}][…]: {known}")
    expanded = _expanded(entry, "", lambda name, default: _variable(environment, name, default))
    try:
        written = msgspec.convert(expanded, _RawEntry)
    except msgspec.ValidationError as problem:
        raise SetupError(f"This is no entry of a server: {problem}") from None
    url = written.url or written.http_url or written.server_url or ""
    if bool(written.command) == bool(url):
        raise SetupError("An entry of a server has either a command or a url")
    _check_kind(written.type or written.transport, is_url=bool(url))
    words = [written.command] if isinstance(written.command, str) else list(written.command or ())
    return ServerEntry(
        command=(*words, *written.args),
        url=url,
        env={} if url else _env(written, environment),
        cwd=written.cwd,
        headers=_headers(written, environment) if url else {},
        connect_timeout=written.connect_timeout or written.startup_timeout_sec,
    )


def _check_kind(kind: str | None, *, is_url: bool) -> None:
    if kind is None:
        return
    if kind not in _COMMANDS | _URLS:
        raise SetupError(f"There is no type of server {kind[:40]!r}; known are {', '.join(sorted(_COMMANDS | _URLS))}")
    if (kind in _URLS) != is_url:
        raise SetupError(f"An entry of type {kind!r} has a {'command' if is_url else 'url'}")


def _env(written: _RawEntry, environment: Mapping[str, str]) -> dict[str, str]:
    env = {name: environment[name] for name in written.env_vars if name in environment}
    if written.env_file is not None:
        env |= _read_env_file(Path(written.env_file))
    for name, value in written.env.items():
        if value is not None:
            env[name] = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return env


def _headers(written: _RawEntry, environment: Mapping[str, str]) -> dict[str, str]:
    headers = {**written.http_headers, **written.headers}
    for header, name in written.env_http_headers.items():
        headers[header] = _variable(environment, name, None)
    if written.bearer_token_env_var is not None:
        headers["Authorization"] = "Bearer " + _variable(environment, written.bearer_token_env_var, None)
    return headers


def _read_env_file(path: Path) -> dict[str, str]:
    """Lines of NAME=value, with comments and quotes as shells have them."""
    try:
        lines = path.expanduser().read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as problem:
        raise SetupError(f"envFile {path} cannot be read: {problem}") from None
    found = {}
    for line in lines:
        name, equals, value = line.strip().removeprefix("export ").partition("=")
        if not equals or name.startswith("#"):
            continue
        value = value.strip()
        if len(value) > 1 and value[0] == value[-1] and value[0] in "'\"":
            value = value[1:-1]
        found[name.strip()] = value
    return found


def _expanded(value: Json, where: str, look_up: Callable[[str, str | None], str]) -> Json:
    match value:
        case str():
            told = _HOST_ONLY.search(value)
            if told is not None:
                raise SetupError(
                    f"{where}: {told[0]} is known to the program it was written for alone; write its value"
                )
            try:
                return _VARIABLE.sub(lambda found: look_up(found[1] or found[2], found[3]), value)
            except SetupError as problem:
                raise SetupError(f"{where}: {problem}") from None
        case Mapping():
            return {name: _expanded(one, f"{where}.{name}".lstrip("."), look_up) for name, one in value.items()}
        case list() | tuple():
            return [_expanded(one, f"{where}[{index}]", look_up) for index, one in enumerate(value)]
        case _:
            return value


def _variable(environment: Mapping[str, str], name: str, default: str | None) -> str:
    value = environment.get(name, default)
    if value is None:
        raise SetupError(f"the environment variable {name} is not set")
    return value
