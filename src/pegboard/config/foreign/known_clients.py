"""The MCP clients that Pegboard knows: where each keeps its servers, and how it writes an entry."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import Struct

from pegboard.call import Json
from pegboard.config.source_file import KeyPath
from pegboard.errors import SetupError
from pegboard.protocol.json_values import as_object

REFERENCE: Final = re.compile(r"\$\{(?:env:)?([A-Za-z_][A-Za-z0-9_]*)\}")
"""A variable in a value: `${NAME}`."""

_TRANSPORT: Final = frozenset(
    {"type", "command", "args", "env", "environment", "env_vars", "cwd", "url", "httpUrl", "serverUrl", "headers"}
    | {"http_headers", "env_http_headers", "bearer_token_env_var", "transport"}
)


class ServerAddress(Struct, frozen=True, kw_only=True):
    """How a client reaches a server: a command with its variables, or a URL with its headers.

    The values of `env` and `headers` may have variables, as `${NAME}`.
    """

    name: str
    command: tuple[str, ...] = ()
    env: Mapping[str, str] = {}
    url: str = ""
    headers: Mapping[str, str] = {}

    @property
    def variables(self) -> tuple[str, ...]:
        """The names of the variables in its values."""
        texts = (*self.env.values(), *self.headers.values())
        return tuple(dict.fromkeys(name for text in texts for name in REFERENCE.findall(text)))


class ClientFile(NamedTuple):
    """A file of a client: `base` is the folder that it belongs to, the user's or the project's."""

    scope: str
    path: Path
    base: Path


class KnownClient(Struct, frozen=True, kw_only=True):
    """A client: the names of its files, the key of its servers, and the keys of an entry.

    Some files have the servers under the key `inner` of `root`. `files` are by scope and system; of alternatives the first is created. `url` is the key of a URL, empty if entries
    cannot have one. `reference` is how it writes a variable, empty if it cannot. `adder` is a command that adds a URL.
    `write` replaces what the other keys say about an entry.
    """

    title: str
    root: str
    inner: str = ""
    files: Mapping[str, Mapping[str, tuple[str, ...]]]
    url: str = "url"
    local_type: Mapping[str, Json] = {}
    remote_type: Mapping[str, Json] = {}
    env: str = "env"
    headers: str = "headers"
    reference: str = ""
    adder: str = ""
    one_command: bool = False
    write: Callable[[ServerAddress], dict[str, Json]] | None = None

    def locate(self, scope: str, project: Path, environ: Mapping[str, str] = os.environ) -> ClientFile:
        """The file of a scope: the one that exists, else the one to create."""
        if scope not in self.files:
            raise SetupError(f"{self.title} has no {scope} scope; use {' or '.join(self.files)}")
        by_system = self.files[scope]
        candidates = by_system.get(sys.platform, by_system[""])
        folders = _folders(project, environ)
        paths = [Path(text.format_map(folders)) for text in candidates]
        base = project if scope == "project" else Path(folders["home"])
        found = next((path for path in paths if path.exists()), paths[0])
        return ClientFile(scope, found, base if found.is_relative_to(base) else found.parent)

    def entry(self, server: ServerAddress) -> dict[str, Json]:
        """The entry of a server in this client's format; SetupError if the format cannot express it."""
        if server.url and not self.url:
            raise SetupError(f"{self.title} has no entries with a URL")
        if self.write is not None:
            return self.write(server)
        if server.variables and not self.reference:
            raise SetupError(f"{self.title} has no variables in its file, so it cannot use ${{{server.variables[0]}}}")
        if server.url:
            made = {**self.remote_type, self.url: server.url}
            return made | ({self.headers: self._written(server.headers)} if server.headers else {})
        program, *words = server.command
        command: dict[str, Json] = (
            {"command": [program, *words]} if self.one_command else {"command": program, "args": words}
        )
        made = {**self.local_type, **command}
        return made | ({self.env: self._written(server.env)} if server.env else {})

    def reaches(self, server: ServerAddress) -> bool:
        """Whether an entry can have the server's URL and variables."""
        return bool(self.url) and (not server.variables or bool(self.reference) or self.write is not None)

    def inputs(self, server: ServerAddress) -> list[Json]:
        """What the client has to ask for, since it has no variables of the environment."""
        if "input:" not in self.reference:
            return []
        return [
            {"type": "promptString", "id": name, "description": f"{name} of {server.name}", "password": True}
            for name in server.variables
        ]

    def document(self, server: ServerAddress) -> dict[str, Json]:
        """A whole file with only this server."""
        inputs = self.inputs(server)
        return ({"inputs": inputs} if inputs else {}) | {self.root: {server.name: self.entry(server)}}

    def place(self, tree: Json) -> KeyPath:
        """Where a file has its servers."""
        settings = as_object(as_object(tree).get(self.root))
        # An entry has a type, also the one of a server that is called as the inner key.
        is_nested = isinstance(settings.get(self.inner), dict) and not any(
            "type" in as_object(entry) for entry in settings.values()
        )
        return (self.root, self.inner) if self.inner and is_nested else (self.root,)

    def _written(self, values: Mapping[str, str]) -> dict[str, Json]:
        return {
            name: REFERENCE.sub(lambda found: self.reference.replace("NAME", found[1]), text)
            for name, text in values.items()
        }


def _codex_entry(server: ServerAddress) -> dict[str, Json]:
    """Codex has no variables in texts, but keys that name one."""
    made: dict[str, Any] = {}
    if not server.url:
        named = [name for name, text in server.env.items() if REFERENCE.fullmatch(text)]
        fixed = {name: text for name, text in server.env.items() if name not in named}
        for name in named:
            _expect_codex(server.env[name] == f"${{{name}}}", name)
        for name, text in fixed.items():
            _expect_codex(not REFERENCE.search(text), name)
        made = {"command": server.command[0], "args": list(server.command[1:])}
        made |= {"env": fixed} if fixed else {}
        return made | ({"env_vars": named} if named else {})
    made["url"] = server.url
    for name, text in server.headers.items():
        bearer = REFERENCE.fullmatch(text.removeprefix("Bearer ")) if name.lower() == "authorization" else None
        whole = REFERENCE.fullmatch(text)
        if bearer is not None and text.startswith("Bearer "):
            made["bearer_token_env_var"] = bearer[1]
        elif whole is not None:
            made.setdefault("env_http_headers", {})[name] = whole[1]
        else:
            _expect_codex(not REFERENCE.search(text), name)
            made.setdefault("http_headers", {})[name] = text
    return made


def _expect_codex(fits: bool, name: str) -> None:
    if not fits:
        raise SetupError(
            f"Codex cannot put a variable into a part of {name}: the whole value has to be ${{NAME}}, "
            "or `Bearer ${NAME}` in the header Authorization"
        )


def is_same_server(old: Mapping[str, Json], new: Mapping[str, Json]) -> bool:
    """Whether two entries of a client start the same command, or have the same URL."""
    keys = ("command", "args", "url", "httpUrl", "serverUrl")
    return all((old.get(key) or None) == (new.get(key) or None) for key in keys)


def merged_entry(old: Json, new: Mapping[str, Json]) -> dict[str, Json]:
    """The entry for a client's file: what a user added to the old one is kept."""
    if not isinstance(old, dict):
        return dict(new)
    if not is_same_server(old, new):
        return {**{key: value for key, value in old.items() if key not in _TRANSPORT}, **new}
    merged = dict(old)
    for key, value in new.items():
        before = old.get(key)
        merged[key] = {**before, **value} if isinstance(before, dict) and isinstance(value, dict) else value
    return merged


def known_client(name: str) -> KnownClient:
    """The client with a name; SetupError names the others."""
    if name not in CLIENTS:
        raise SetupError(f"unknown client {name!r}; use one of {', '.join(CLIENTS)}")
    return CLIENTS[name]


def connection_texts(name: str, url: str) -> Iterator[tuple[str, str, str]]:
    """For each client that connects to URLs: its title, where the text belongs, and the text."""
    server = ServerAddress(name=name, url=url)
    for client in CLIENTS.values():
        if client.adder:
            yield client.title, "in a terminal", client.adder.replace("NAME", name).replace("URL", url)
        elif client.url:
            scope = "project" if "project" in client.files else "user"
            file = client.files[scope].get(sys.platform, client.files[scope][""])[0]
            text = msgspec.json.format(msgspec.json.encode(client.document(server)), indent=2).decode()
            yield (
                client.title,
                file.replace("{project}/", "").replace("{home}", "~").replace("{config}", "~/.config"),
                text,
            )


def _folders(project: Path, environ: Mapping[str, str]) -> dict[str, str]:
    home = environ.get("USERPROFILE" if sys.platform == "win32" else "HOME") or str(Path("~").expanduser())
    return {
        "home": home,
        "project": str(project),
        "config": environ.get("XDG_CONFIG_HOME") or f"{home}/.config",
        "appdata": environ.get("APPDATA") or f"{home}/AppData/Roaming",
        "support": f"{home}/Library/Application Support",
        "claude": environ.get("CLAUDE_CONFIG_DIR") or home,
        "codex": environ.get("CODEX_HOME") or f"{home}/.codex",
    }


def _files(user: str, project: str = "", *, darwin: str = "", win32: str = "") -> dict[str, dict[str, tuple[str, ...]]]:
    """The files of a client by scope and system; `|` stands between alternatives."""
    of_user = {"": user, "darwin": darwin, "win32": win32}
    files = {"user": {system: tuple(text.split("|")) for system, text in of_user.items() if text}}
    return files | ({"project": {"": tuple(project.split("|"))}} if project else {})


CLIENTS: Final[Mapping[str, KnownClient]] = {
    "claude-code": KnownClient(
        title="Claude Code",
        root="mcpServers",
        files=_files("{claude}/.claude.json", "{project}/.mcp.json"),
        local_type={"type": "stdio"},
        remote_type={"type": "http"},
        reference="${NAME}",
        adder="claude mcp add --transport http NAME URL",
    ),
    "claude-desktop": KnownClient(
        title="Claude Desktop",
        root="mcpServers",
        files=_files(
            "{config}/Claude/claude_desktop_config.json",
            darwin="{support}/Claude/claude_desktop_config.json",
            win32="{appdata}/Claude/claude_desktop_config.json",
        ),
        url="",
    ),
    "codex": KnownClient(
        title="Codex CLI",
        root="mcp_servers",
        files=_files("{codex}/config.toml", "{project}/.codex/config.toml"),
        adder="codex mcp add NAME --url URL",
        write=_codex_entry,
    ),
    "gemini": KnownClient(
        title="Gemini CLI",
        root="mcpServers",
        files=_files("{home}/.gemini/settings.json", "{project}/.gemini/settings.json"),
        url="httpUrl",
        reference="${NAME}",
        adder="gemini mcp add -s user -t http NAME URL",
    ),
    "cursor": KnownClient(
        title="Cursor",
        root="mcpServers",
        files=_files("{home}/.cursor/mcp.json", "{project}/.cursor/mcp.json"),
        reference="${env:NAME}",
    ),
    "vscode": KnownClient(
        title="VS Code",
        root="servers",
        files=_files(
            "{config}/Code/User/mcp.json",
            "{project}/.vscode/mcp.json",
            darwin="{support}/Code/User/mcp.json",
            win32="{appdata}/Code/User/mcp.json",
        ),
        local_type={"type": "stdio"},
        remote_type={"type": "http"},
        reference="${input:NAME}",
    ),
    "windsurf": KnownClient(
        title="Windsurf",
        root="mcpServers",
        files=_files("{home}/.codeium/windsurf/mcp_config.json"),
        url="serverUrl",
        reference="${env:NAME}",
    ),
    "zed": KnownClient(
        title="Zed",
        root="context_servers",
        files=_files(
            "{config}/zed/settings.json",
            "{project}/.zed/settings.json",
            darwin="{home}/.config/zed/settings.json",
            win32="{appdata}/Zed/settings.json",
        ),
    ),
    "opencode": KnownClient(
        title="opencode",
        root="mcp",
        inner="servers",
        files=_files(
            "{config}/opencode/opencode.json|{config}/opencode/opencode.jsonc",
            "{project}/opencode.json|{project}/opencode.jsonc|{project}/.opencode/opencode.json",
        ),
        local_type={"type": "local", "enabled": True},
        remote_type={"type": "remote", "enabled": True},
        env="environment",
        reference="{env:NAME}",
        one_command=True,
    ),
}
"""The clients by the names of the command line."""
