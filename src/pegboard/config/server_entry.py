"""One server of a configuration: the meaning of its keys together."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import SplitResult, parse_qsl, urlsplit

from msgspec import UNSET, Struct
from msgspec.structs import replace

from pegboard.call import Json
from pegboard.config.config_keys import SERVER
from pegboard.config.confinement_keys import Confinement
from pegboard.config.inherited_variables import BASIC_VARIABLES
from pegboard.config.mistakes import ConfigReport
from pegboard.config.principal_headers import refers_to_principal, wrong_reference
from pegboard.config.source_file import KeyPath
from pegboard.middleware.observability.masking import is_secret, secret_arguments
from pegboard.tools.naming import suggest

_TRANSPORT_KEYS: Final = {"stdio": "command", "http": "url", "sse": "url", "websocket": "url", "board": "board"}
_SCHEMES: Final = {"http": ("http", "https"), "sse": ("http", "https"), "websocket": ("ws", "wss")}
_OF_CHILDREN: Final = ("command", "args", "env", "env_file", "inherit", "cwd", "confine", "resources")
_UNUSED: Final = {
    "stdio": ("url", "headers", "auth", "board"),
    "http": (*_OF_CHILDREN, "board"),
    "board": (*_OF_CHILDREN, "url", "headers", "auth"),
}
_LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")
_KEYS: Final = {"env_file": "envFile", "idle_seconds": "idleTimeout", "max_timeout": "maxTimeout"}
_HEADER: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+\Z")
_ORDINARY: Final = re.compile(r"[A-Za-z]+|\$\w+|[\d.:]+|[.~]{0,2}/[\w./-]*|https?://[\w.:/-]*")
_ENV_LINE: Final = re.compile(r"\s*+(?:export\s++)?([A-Za-z_][A-Za-z0-9_]*+)\s*+=(.*+)")
_ENV_FILE_BYTES: Final = 1024 * 1024


class ServerEntryReader(Struct, eq=False):
    """Reads the servers of one configuration, whose relative paths start at `folder`.

    `boards` are the names of boards that the program has itself.
    """

    folder: Path
    environ: Mapping[str, str]
    notes: ConfigReport
    boards: Collection[str] = ()

    def ignored_variables(self) -> ServerEntryReader:
        """The same without reporting mistakes."""
        notes = ConfigReport(self.notes.file)
        notes.secrets = self.notes.secrets
        return ServerEntryReader(self.folder, self.environ, notes, self.boards)

    def resolve(self, values: dict[str, Any], place: KeyPath, written: Mapping[str, Json]) -> dict[str, Any]:
        """The attributes of a ServerConfig from the values of its keys; `written` are the keys in the file."""
        kind = self._kind(values, place, written, self.notes.describe_server(place))
        settled = {"name": place[-1] if place else "", "kind": kind or "stdio", **values}
        if "disabled" in values:
            settled["enabled"] = not settled.pop("disabled") and values.get("enabled", True)
        settled["confine"] = self._confine(values.get("confine"), place)
        settled.pop("transport", None)
        settled.pop("type", None)
        args = settled.pop("args", ())
        env_file = settled.pop("env_file", None)
        if kind is None:
            return settled
        for key in _UNUSED["http" if kind in _SCHEMES else kind]:
            if key in values:
                self.notes.warn((*place, _KEYS.get(key, key)), f"is not used by a server over {kind}")
        if kind == "stdio":
            self._start(settled, args, env_file, place)
        elif kind == "board":
            self._find_board(settled, place)
        else:
            self._address(settled, kind, place)
        self._separate_callers(settled, values, place)
        self._deadlines(settled, values, place)
        if "tool_filters" in settled:
            settled["tool_filters"] = _whole_filters(settled["tool_filters"])
        settled["roots"] = tuple(self._root(root) for root in settled.get("roots", ()))
        self._check_tools(settled.get("tools", {}), (*place, "tools"))
        return settled

    def path(self, text: str) -> Path:
        """A path in the file, made absolute."""
        return Path(os.path.normpath(self.folder / Path(text).expanduser()))

    def _kind(self, values: dict[str, Any], place: KeyPath, written: Mapping[str, Json], who: str) -> str | None:
        """The transport of a server; None if it is unclear."""
        named = values.get("transport") or values.get("type")
        # An empty command is a placeholder, which some programs require.
        given = [key for key in ("command", "url", "board") if values.get(key) and values[key][0]]
        wanted = _TRANSPORT_KEYS[named] if named is not None else None
        if not given or (wanted is not None and wanted not in given):
            # A key that could not be read has already been reported.
            if all(
                key in values or key not in written for key in ([wanted] if wanted else ["command", "url", "board"])
            ):
                self._report_missing(wanted, place, written, who)
            return None
        if wanted is None and len(given) > 1:
            both = " and ".join(map(repr, given))
            self.notes.add_mistake(
                place,
                f"{who} has {both}",
                expected="only one of them",
                fix="choose one with 'transport', or remove one",
            )
            return None
        if named is not None:
            return str(named)
        if given[0] != "url":
            return "stdio" if given[0] == "command" else "board"
        return "websocket" if values["url"].startswith(("ws://", "wss://")) else "http"

    def _report_missing(self, wanted: str | None, place: KeyPath, written: Mapping[str, Json], who: str) -> None:
        roads = ["command", "url", "board"]
        if any(key not in SERVER.fields and suggest(key, roads) for key in written):
            # A misspelt key has already been reported.
            return
        fix = "add it, or 'url' for a remote server, or 'board' for a Python file" if wanted is None else "add it"
        self.notes.add_mistake(place, f"{who} must have a '{wanted or 'command'}' field", fix=fix)

    def _start(self, settled: dict[str, Any], args: tuple[str, ...], env_file: str | None, place: KeyPath) -> None:
        program, *more = settled["command"]
        args = (*more, *args)
        if program.startswith("~") or (os.sep in program and not Path(program).is_absolute()):
            program = str(self.path(program))
        elif " " in program and not args and not Path(program).exists():
            words = program.split()
            self.notes.warn((*place, "command"), f"contains spaces; put the arguments into 'args', as in {words[1:]}")
        settled["command"] = (program, *args)
        for _, secret in secret_arguments(args):
            self.notes.keep_secret(secret)
        # The folder of the file has the secrets of other servers: a confined one does not run there by default.
        if settled["confine"] is None or "cwd" in settled:
            folder = self.path(settled.get("cwd", "."))
            if not folder.is_dir():
                missing = f"folder not found: {folder}"
                self.notes.add_mistake((*place, "cwd"), missing, fix="create it, or choose another")
            settled["cwd"] = str(folder)
        if env_file is not None:
            settled["env"] = {**self._read_env(env_file, place), **settled.get("env", {})}
        for name in settled.get("env", {}):
            if not name or "=" in name or "\0" in name:
                self.notes.add_mistake(
                    (*place, "env", name), "is not a valid variable name", fix="use only A-Z, 0-9 and _"
                )
        self.inherited(settled.get("inherit", ()), (*place, "inherit"))

    def _confine(self, confinement: bool | Confinement | None, place: KeyPath) -> Confinement | None:
        """The confinement, with absolute paths."""
        if isinstance(confinement, bool):
            confinement = Confinement() if confinement else None
        if confinement is None:
            return None
        read = self._existing(confinement.read, place, "read")
        return replace(confinement, read=read, write=self._existing(confinement.write, place, "write"))

    def _existing(self, paths: tuple[str, ...], place: KeyPath, key: str) -> tuple[str, ...]:
        found = tuple(str(self.path(path)) for path in paths)
        for number, path in enumerate(found):
            if not Path(path).exists():
                self.notes.add_mistake(
                    (*place, "confine", key, number), f"not found: {path}", fix="create it, or remove it from the list"
                )
        return found

    def inherited(self, names: Sequence[str], place: KeyPath) -> Sequence[str]:
        """The names of variables to inherit; their values are secrets, and a missing one gets a warning."""
        for position, name in enumerate(names):
            if name not in self.environ:
                self.notes.warn((*place, position), f"{name} is not set in the environment of the gateway")
            elif name not in BASIC_VARIABLES:
                self.notes.keep_secret(self.environ[name])
        return names

    def _read_env(self, text: str, place: KeyPath) -> dict[str, str]:
        path = self.path(text)
        try:
            with path.open(encoding="utf-8-sig") as file:
                lines = file.read(_ENV_FILE_BYTES).splitlines()
        except (OSError, ValueError):
            self.notes.add_mistake(
                (*place, "envFile"), f"{path} cannot be read", expected="a file of NAME=value lines in UTF-8"
            )
            return {}
        found: dict[str, str] = {}
        for number, line in enumerate(lines, 1):
            if not line.strip() or line.lstrip().startswith("#"):
                continue
            parts = _ENV_LINE.fullmatch(line)
            if parts is None:
                self.notes.add_mistake((*place, "envFile"), f"{path}:{number} is not NAME=value", fix="fix that line")
                continue
            value = parts[2].strip()
            quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "\"'"
            found[parts[1]] = value[1:-1] if quoted else value
            self.notes.keep_secret(found[parts[1]])
        return found

    def _find_board(self, settled: dict[str, Any], place: KeyPath) -> None:
        text = settled["board"]
        if text in self.boards:
            return
        file, colon, name = text.rpartition(":")
        file, name = (file, name) if colon and name.isidentifier() else (text, "")
        path = self.path(file)
        if not path.is_file():
            self.notes.add_mistake((*place, "board"), f"file not found: {path}", expected="a Python file with a board")
        settled["board"] = f"{path}:{name}" if name else str(path)

    def _address(self, settled: dict[str, Any], kind: str, place: KeyPath) -> None:
        url, headers, auth = settled["url"], settled.get("headers", {}), settled.get("auth")
        expected = "a URL that starts with " + " or ".join(f"{scheme}://" for scheme in _SCHEMES[kind])
        parts = _split(url)
        if (
            parts is None
            or not parts.hostname
            or parts.scheme not in _SCHEMES[kind]
            or any(letter.isspace() for letter in url)
        ):
            # Only the origin of a URL is shown: the rest may contain a key.
            got = f"{parts.scheme}://{parts.hostname}" if parts and parts.scheme and parts.hostname else UNSET
            self.notes.add_mistake((*place, "url"), f"is not a URL of a server over {kind}", got=got, expected=expected)
            return
        for key, value in [("password", parts.password or ""), *parse_qsl(parts.query)]:
            if is_secret(key):
                self.notes.keep_secret(value)
        self._check_headers(headers, (*place, "headers"))
        settled["headers"] = {name: value for name, value in headers.items() if not refers_to_principal(value)}
        settled["principal_headers"] = {name: value for name, value in headers.items() if refers_to_principal(value)}
        credentials = next((name for name in headers if name.lower() == "authorization"), None)
        if auth is not None and auth.get("kind", "oauth") != "none":
            if credentials is not None:
                problem = f"has both 'auth' and the header {credentials}"
                self.notes.add_mistake(place, problem, expected="only one of them", fix="remove the other")
            if kind == "websocket":
                self.notes.add_mistake(
                    (*place, "auth"), "is only for servers over HTTP", fix="use a header Authorization"
                )
            self._check_auth(auth, (*place, "auth"))
            if "private_key" in auth and not auth["private_key"].lstrip().startswith("-----"):
                auth["private_key"] = str(self.path(auth["private_key"]))
        if parts.scheme in ("http", "ws") and (credentials or auth) and parts.hostname not in _LOOPBACK:
            warning = f"credentials are sent to {parts.hostname} unencrypted; use {parts.scheme}s:// if possible"
            self.notes.warn((*place, "url"), warning)

    def _check_headers(self, headers: Mapping[str, str], place: KeyPath) -> None:
        for name, value in headers.items():
            if not _HEADER.match(name):
                self.notes.add_mistake((*place, name), "is not a valid header name", fix="use A-Z a-z 0-9 -")
            elif any(ord(letter) < 32 and letter != "\t" for letter in value):
                problem = "contains a line break or another control character"
                self.notes.add_mistake((*place, name), problem, fix="remove it")
            elif wrong := wrong_reference(value):
                self.notes.add_mistake(
                    (*place, name), got=wrong, expected="${principal.id} or ${principal.claims.NAME}"
                )

    def _separate_callers(self, settled: dict[str, Any], given: dict[str, Any], place: KeyPath) -> None:
        """Give each caller a connection of its own where requests carry something of the caller."""
        auth = settled.get("auth", {})
        personal = auth.get("kind") in ("header", "exchange") or auth.get("per") == "user"
        if not (personal or settled.get("principal_headers")):
            return
        if given.get("share") == "all":
            self.notes.warn(
                (*place, "share"), "all is not used: requests act for their caller, so each has a connection"
            )
        if settled.get("share", "all") == "all":
            settled["share"] = "principal"

    def _check_auth(self, auth: dict[str, Any], place: KeyPath) -> None:
        kind = auth.get("kind", "oauth")
        if "per" in auth and kind != "oauth":
            self.notes.add_mistake((*place, "per"), f"is for oauth; {kind} has no such choice", fix="remove it")
        if kind == "header":
            auth.setdefault("header", "Authorization")
            auth.setdefault("scheme", "Bearer" if auth["header"].lower() == "authorization" else "")
            if not _HEADER.match(auth["header"]):
                self.notes.add_mistake((*place, "header"), "is not a valid header name", fix="use A-Z a-z 0-9 -")
        if kind == "exchange" and "client_id" not in auth:
            self.notes.add_mistake(place, "an exchange needs a 'clientId'", fix="add it")
        if kind == "exchange" and "issuer" not in auth and "identity_provider" not in auth:
            # The server could name an authorization server of its own, which would get the tokens of all callers.
            problem = "an exchange needs the 'issuer' that may get the tokens of callers"
            self.notes.add_mistake(place, problem, fix="add the URL of the server's authorization server")
        if "client_secret" in auth and "client_id" not in auth:
            self.notes.add_mistake(place, "has a 'clientSecret' but no 'clientId'", fix="add 'clientId'")
        if auth.get("kind") == "client_credentials":
            if "client_id" not in auth:
                self.notes.add_mistake(place, "client_credentials need a 'clientId'", fix="add it")
            if ("client_secret" in auth) == ("private_key" in auth):
                self.notes.add_mistake(
                    place, "client_credentials need either a 'clientSecret' or a 'privateKey'", fix="give one"
                )

    def _deadlines(self, settled: dict[str, Any], given: dict[str, Any], place: KeyPath) -> None:
        timeout = settled.get("timeout", 60.0)
        if "max_timeout" not in given:
            settled["max_timeout"] = max(600.0, timeout)
        elif "timeout" not in given:
            settled["timeout"] = min(timeout, settled["max_timeout"])
        elif timeout > settled["max_timeout"]:
            self.notes.add_mistake(
                (*place, "timeout"),
                got=timeout,
                expected=f"at most 'maxTimeout', which is {settled['max_timeout']:g}",
                fix="raise 'maxTimeout' or lower this",
            )

    def _root(self, text: str) -> str:
        return text if "://" in text else self.path(text).as_uri()

    def _check_tools(self, tools: Mapping[str, Mapping[str, Any]], place: KeyPath) -> None:
        names: dict[str, str] = {}
        for own, tool in tools.items():
            name = tool.get("name")
            if name is not None:
                if not re.fullmatch(r"[A-Za-z0-9_.-]{1,128}", name):
                    expected = "1 to 128 of A-Z a-z 0-9 _ . -"
                    self.notes.add_mistake(
                        (*place, own, "name"), "is not a valid tool name", got=name, expected=expected
                    )
                if names.setdefault(name, own) != own:
                    self.notes.add_mistake(
                        (*place, own, "name"), f"{names[name]!r} is also called {name!r}", fix="choose another"
                    )
            schema = tool.get("input_schema")
            if schema is not None and schema.get("type") != "object":
                expected = 'a JSON Schema with "type": "object"'
                self.notes.add_mistake((*place, own, "inputSchema"), got=schema, expected=expected)
            for key, argument in tool.get("arguments", {}).items():
                if "value" in argument and "default" in argument:
                    self.notes.add_mistake(
                        (*place, own, "arguments", key),
                        "has both 'value' and 'default'",
                        fix="keep 'value' if callers must not change it, else 'default'",
                    )


def _split(url: str) -> SplitResult | None:
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        return None
    return parts


def collect_secrets(value: Any, notes: ConfigReport, *, private: bool = False) -> None:
    """Record the values of env, headers and secret keys as secrets; ordinary words are not secret.

    Values of variables were recorded when they were inserted.
    """
    if isinstance(value, list | tuple):
        for item in value:
            collect_secrets(item, notes)
    if not isinstance(value, dict):
        return
    for key, item in value.items():
        named = is_secret(key) or (private and key in ("value", "default"))
        if isinstance(item, str) and named:
            _collect_secret(item, notes)
        elif key in ("env", "headers") and isinstance(item, dict):
            for name, text in item.items():
                if isinstance(text, str) and (is_secret(name) or not _ORDINARY.fullmatch(text)):
                    _collect_secret(text, notes)
        else:
            collect_secrets(item, notes, private=named)


def _collect_secret(text: str, notes: ConfigReport) -> None:
    """A secret, and the part after the scheme in one such as `Bearer abc`."""
    notes.keep_secret(text)
    notes.keep_secret(text.rpartition(" ")[2])


def _whole_filters(filters: tuple[str, ...]) -> tuple[str, ...]:
    """Filters with exclusions only start from all tools."""
    return ("*", *filters) if filters and all(name.startswith("!") for name in filters) else filters
