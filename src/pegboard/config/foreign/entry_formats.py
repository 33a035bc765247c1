"""The servers of other programs' files, entry by entry, as our own format.

The keys that these programs keep for themselves are ignored, with a warning where a user might rely on one, and where
a key looks like a typo of one that is read. Our own keys may be used in any of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from pegboard.call import Json
from pegboard.config.config_keys import ROOT, SERVER
from pegboard.config.mistakes import ConfigReport, did_you_mean
from pegboard.config.source_file import KeyPath
from pegboard.config.variables import Input, VariableSyntax
from pegboard.protocol.json_values import as_list
from pegboard.protocol.revisions import SUPPORTED
from pegboard.tools.naming import find_misspelt

# The keys of a server that are read besides our own.
_KEYS_OF_CLAUDE: Final = ("serverUrl", "disabledTools", "oauth")
_KEYS_OF_GEMINI: Final = ("httpUrl", "tcp", "includeTools", "excludeTools", "oauth")
_KEYS_OF_VSCODE: Final = ("oauth",)
_KEYS_OF_OPENCODE: Final = ("environment", "oauth")
_OF_OPENCODE: Final = re.compile(r"\{(env:[A-Za-z_][A-Za-z0-9_]*|file:[^{}]+)\}")
CODEX_KEYS: Final = (
    "startup_timeout_ms", "startup_timeout_sec", "tool_timeout_sec", "env_vars", "enabled_tools", "disabled_tools",
    "http_headers", "env_http_headers", "bearer_token_env_var", "scopes",
)  # fmt: skip
_TRANSPORT_KEYS: Final = frozenset({"command", "url", "board", "serverUrl", "httpUrl", "tcp"})
# Keys of ours that have another meaning in foreign files.
_FOREIGN_KEYS: Final = frozenset({"timeout", "version", "tools", "auth", "arguments"})
_UNSUPPORTED: Final = {
    "sandboxEnabled": "the server runs without the sandbox of VS Code",
    "headersHelper": "names a program that creates headers; Pegboard does not run it, use 'headers' or 'auth'",
    "authProviderType": "is not supported; use 'headers' or 'auth'",
    "experimental_environment": "is not supported; the server is started on this machine",
}

# Other programs' names for our keys, so that a typo in theirs leads to ours.
_OTHER_WORDS: Final = {"environment": "env", "envs": "env", "environ": "env", "arguments": "args", "parameters": "args"}
# Keys of other programs that look like typos of ours: of a server, and of the file.
_NO_TYPO: Final = "scope"
_NO_ROOT_TYPOS: Final = ("author", "authors")
_ROOTS: Final = (*(key for key in ROOT.fields if key not in ("$schema", "toolboxes")), "names")
# The keys that limit what others may do: ignoring a misspelt one would give away what it protects.
PROTECTIVE_ROOTS: Final = frozenset({"auth", "lock", "principals", "quotas", "rules", "vault"})
_PROTECTIVE: Final = frozenset(
    {
        "auth", "confine", "disabled", "disabledTools", "disabled_tools", "enabled", "enabled_tools", "excludeTools",
        "includeTools", "share", "toolFilters",
    }
)  # fmt: skip


def find_typos(server: Collection[str], dialect: Collection[str]) -> Mapping[str, str]:
    """The misspelt keys of a server, with the key that was meant; `dialect` are further keys of its file format."""
    words = {**_OTHER_WORDS, **{key: key for key in (*SERVER.fields, *dialect)}}
    return _near(server, words, {*SERVER.fields, *dialect, _NO_TYPO})


def find_root_typos(root: Collection[str], servers: str) -> Mapping[str, str]:
    """The same for the keys beside `servers`."""
    return _near(root, {key: key for key in _ROOTS}, {*ROOT.fields, "names", servers, *_NO_ROOT_TYPOS})


def _near(given: Collection[str], words: Mapping[str, str], known: Collection[str]) -> dict[str, str]:
    found = {key: find_misspelt(key, words) for key in given if key not in known}
    return {key: words[word] for key, word in found.items() if word is not None}


class ForeignEntry:
    """A server entry of another program while it is translated: `raw` in its format, `made` in ours."""

    def __init__(
        self,
        name: str,
        raw: Mapping[str, Json],
        keys: Collection[str],
        place: KeyPath,
        origin: KeyPath,
        notes: ConfigReport,
    ) -> None:
        self.name = name
        self.raw = {key: value for key, value in raw.items() if value is not None}
        self.made: dict[str, Any] = {}
        self._place = place
        self._origin = origin
        self._notes = notes
        for key, value in self.raw.items():
            if key in SERVER.fields and key not in _FOREIGN_KEYS:
                self.made[key] = value
            elif key in _UNSUPPORTED and value is not False:
                self.warn(key, _UNSUPPORTED[key])
        roadless = not _TRANSPORT_KEYS & self.raw.keys()
        if roadless:
            self._suggest()
        notes.unread[place] = tuple(
            key for key in self.raw if key not in SERVER.fields and key not in keys and key not in _UNSUPPORTED
        )
        for key, meant in find_typos(self.raw, keys).items():
            if meant in _PROTECTIVE:
                notes.fail_server((*place, key), f"is unknown; did you mean {meant!r}, which limits what may be used?")
            elif not (roadless and meant in ("command", "url")):
                self.warn(key, f"is unknown and ignored; did you mean {meant!r}?")

    def warn(self, key: str, text: str) -> None:
        self._notes.warn((*self._place, key), text)

    def put(self, key: str, value: Json, *, said: str) -> None:
        """Set our key from their key `said`."""
        self.made[key] = value
        self.came((key,), (said,))

    def came(self, ours: KeyPath, theirs: KeyPath) -> None:
        self._notes.origins[(*self._place, *ours)] = (*self._origin, *theirs)

    def move(self, theirs: str, ours: str, change: Callable[[Json], Json] = lambda value: value) -> None:
        if theirs in self.raw:
            self.put(ours, change(self.raw[theirs]), said=theirs)

    def filter(self, only: str, without: str) -> None:
        """Lists of shown and excluded tools, as our filters."""
        shown, hidden = self.raw.get(only), self.raw.get(without)
        for key, names in ((only, shown), (without, hidden)):
            if names is not None and not isinstance(names, list):
                self.put("toolFilters", names, said=key)
                return
        if shown is not None or hidden is not None:
            kept = ["*"] if shown is None else [_exactly(name) for name in as_list(shown)]
            left_out = [f"!{_exactly(name)}" if isinstance(name, str) else name for name in as_list(hidden)]
            self.put("toolFilters", [*kept, *left_out], said=only if shown is not None else without)

    def _suggest(self) -> None:
        """A possible misspelling of the transport key; other unknown keys belong to their programs."""
        for key in self.raw:
            hint = did_you_mean(key, ["command", "url"])
            if key not in SERVER.fields and hint.startswith("did"):
                self._notes.add_mistake((*self._place, key), "is unknown", fix=hint)


class EntryFormat(NamedTuple):
    """The format of one program's servers: the conversion, its keys besides ours, and its variables."""

    convert: Callable[[ForeignEntry], None]
    keys: Collection[str]
    syntax: VariableSyntax


def claude_format(project: Path) -> EntryFormat:
    return EntryFormat(_claude, _KEYS_OF_CLAUDE, VariableSyntax(fixed=_words(project)))


def unknown_format(project: Path) -> EntryFormat:
    """An entry without its file: Claude's format, with the additions of VS Code."""

    def convert(entry: ForeignEntry) -> None:
        _claude(entry)
        _vscode_env(entry)

    return EntryFormat(convert, _KEYS_OF_CLAUDE, VariableSyntax(fixed=_words(project), inputs={}))


def _claude(entry: ForeignEntry) -> None:
    """Claude Desktop and Code, Cursor, and programs with the same format."""
    if entry.raw.get("type") == "remote":
        del entry.made["type"]
    entry.move("serverUrl", "url")
    entry.move("timeout", "timeout", _seconds_or_milliseconds)
    tools = entry.raw.get("tools")
    if isinstance(tools, dict):
        entry.move("tools", "tools")
    entry.filter("tools" if isinstance(tools, list) else "", "disabledTools")
    if entry.raw.get("version") in SUPPORTED:
        entry.move("version", "version")
    if entry.raw.get("arguments") in ("lenient", "strict"):
        entry.move("arguments", "arguments")
    auth = entry.raw.get("auth")
    if isinstance(auth, dict) and "CLIENT_ID" in auth:
        named = {"clientId": "CLIENT_ID", "clientSecret": "CLIENT_SECRET", "scopes": "scopes"}
        entry.put("auth", {ours: auth[key] for ours, key in named.items() if key in auth}, said="auth")
    else:
        entry.move("auth", "auth")
    _oauth(entry)


def gemini_format(settings: Json) -> EntryFormat:
    """Gemini, whose settings may also list the servers in use."""
    chosen = settings if isinstance(settings, dict) else {}
    allowed, excluded = chosen.get("allowed"), chosen.get("excluded")

    def convert(entry: ForeignEntry) -> None:
        if "url" in entry.raw and "type" not in entry.raw:
            entry.put("transport", "sse", said="url")
        for key, kind in (("httpUrl", "http"), ("tcp", "websocket")):
            if key in entry.raw:
                entry.move(key, "url")
                entry.put("transport", kind, said=key)
        entry.move("timeout", "timeout", _seconds)
        entry.filter("includeTools", "excludeTools")
        if (isinstance(allowed, list) and entry.name not in allowed) or (
            isinstance(excluded, list) and entry.name in excluded
        ):
            entry.made["enabled"] = False
        _oauth(entry)

    return EntryFormat(convert, _KEYS_OF_GEMINI, VariableSyntax(bare=True))


def zed_format() -> EntryFormat:
    return EntryFormat(_zed, (), VariableSyntax())


def _zed(entry: ForeignEntry) -> None:
    command = entry.raw.get("command")
    if isinstance(command, dict):
        # Zed wrote the whole command as one object before 2025.
        for ours, theirs in (("command", "path"), ("args", "args"), ("env", "env")):
            if command.get(theirs) is not None:
                entry.made[ours] = command[theirs]
                entry.came((ours,), ("command", theirs))
    entry.move("timeout", "timeout", _seconds_or_milliseconds)


def opencode_format() -> EntryFormat:
    return EntryFormat(_opencode, _KEYS_OF_OPENCODE, VariableSyntax())


def _opencode(entry: ForeignEntry) -> None:
    entry.made.pop("type", None)
    entry.move("environment", "env")
    entry.move("timeout", "timeout", _seconds)
    _oauth(entry)
    for key, value in entry.made.items():
        entry.made[key] = _braced(value)


def _braced(value: Json) -> Json:
    """The variables of opencode, `{env:NAME}` and `{file:PATH}`, in our form."""
    match value:
        case str():
            return _OF_OPENCODE.sub(r"${\1}", value)
        case list():
            return [_braced(item) for item in value]
        case dict():
            return {key: _braced(item) for key, item in value.items()}
    return value


def _vscode(entry: ForeignEntry) -> None:
    _vscode_env(entry)
    # Not a key of VS Code: it was added for us.
    entry.move("timeout", "timeout", _seconds_or_milliseconds)
    _oauth(entry)


def _vscode_env(entry: ForeignEntry) -> None:
    env = entry.raw.get("env")
    if isinstance(env, dict):
        # VS Code allows numbers there, and null for unset.
        texts = {key: str(value) if type(value) in (int, float) else value for key, value in env.items()}
        entry.made["env"] = {key: value for key, value in texts.items() if value is not None}


def codex_format() -> EntryFormat:
    return EntryFormat(_codex, CODEX_KEYS, VariableSyntax())


def _codex(entry: ForeignEntry) -> None:
    entry.move("startup_timeout_ms", "connectTimeout", _seconds)
    entry.move("startup_timeout_sec", "connectTimeout")
    entry.move("timeout", "timeout", _seconds_or_milliseconds)
    entry.move("tool_timeout_sec", "timeout")
    entry.move("env_vars", "inherit", _names)
    entry.filter("enabled_tools", "disabled_tools")
    entry.move("http_headers", "headers")
    _codex_headers(entry)
    if "scopes" in entry.raw and "bearer_token_env_var" not in entry.raw:
        entry.put("auth", {"scopes": entry.raw["scopes"]}, said="scopes")


def _codex_headers(entry: ForeignEntry) -> None:
    """Headers by value, by the variable that holds one, and the variable that holds a token."""
    headers, named = entry.made.get("headers", {}), entry.raw.get("env_http_headers", {})
    if not isinstance(headers, dict):
        return
    if not isinstance(named, dict):
        entry.put("headers", named, said="env_http_headers")
        return
    token = entry.raw.get("bearer_token_env_var")
    entry.made["headers"] = headers = dict(headers)
    for name, variable in named.items():
        headers[name] = _from_variable(variable)
        entry.came(("headers", name), ("env_http_headers", name))
    if token is not None:
        headers["Authorization"] = _from_variable(token, "Bearer ")
        entry.came(("headers", "Authorization"), ("bearer_token_env_var",))
    if not headers:
        del entry.made["headers"]


def _oauth(entry: ForeignEntry) -> None:
    """`oauth` in the format of Claude Code, Gemini and VS Code."""
    oauth = entry.raw.get("oauth")
    if not isinstance(oauth, dict) or oauth.get("enabled") is False:
        return
    scopes = oauth.get("scopes")
    auth: dict[str, Json] = {key: oauth[key] for key in ("clientId", "clientSecret", "issuer") if key in oauth}
    if scopes:
        auth["scopes"] = scopes.split() if isinstance(scopes, str) else scopes
    if "callbackPort" in oauth:
        auth["redirectPort"] = oauth["callbackPort"]
    entry.put("auth", auth, said="oauth")


def vscode_format(tree: Mapping[str, Json], project: Path) -> EntryFormat:
    """VS Code, with its inputs, which it asks a person for."""
    inputs = tree.get("inputs")
    found: dict[str, Input] = {}
    for entry in inputs if isinstance(inputs, list) else ():
        if isinstance(entry, dict) and isinstance(entry.get("id"), str):
            default = entry.get("default")
            about = entry.get("description")
            found[entry["id"]] = Input(
                about if isinstance(about, str) else "", default if isinstance(default, str) else None
            )
    return EntryFormat(_vscode, _KEYS_OF_VSCODE, VariableSyntax(fixed=_words(project), inputs=found))


def _words(project: Path) -> dict[str, str]:
    return {
        "workspaceFolder": str(project),
        "workspaceFolderBasename": project.name,
        "CLAUDE_PROJECT_DIR": str(project),
        "userHome": str(Path("~").expanduser()),
        "pathSeparator": "/",
        "/": "/",
    }


def _exactly(name: Json) -> Json:
    """A pattern that matches only this name."""
    return re.sub(r"([*?\[])", r"[\1]", name) if isinstance(name, str) and name != "*" else name


def _from_variable(name: Json, before: str = "") -> Json:
    return f"{before}${{env:{name}}}" if isinstance(name, str) else name


def _seconds(value: Json) -> Json:
    return value / 1000 if isinstance(value, int | float) and not isinstance(value, bool) else value


def _seconds_or_milliseconds(value: Json) -> Json:
    """Values in seconds are tens or hundreds, values in milliseconds thousands."""
    many = isinstance(value, int | float) and not isinstance(value, bool) and value >= 1000
    return _seconds(value) if many else value


def _names(value: Json) -> Json:
    """Codex's `env_vars`: names, or tables with a name."""
    if not isinstance(value, list):
        return value
    return [item.get("name") if isinstance(item, dict) else item for item in value]
