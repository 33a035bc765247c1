"""Configuration files of other programs, converted to ours.

    mcpServers      Claude Desktop, Claude Code, Cursor and similar; Gemini, if the file shows it
    servers         VS Code
    mcp_servers     Codex

Settings that only concern these programs are ignored, with a warning if a user may rely on one, or if a key looks
like a misspelled one. Our own keys may be used in any of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from pegboard.call import Json
from pegboard.config.config_keys import ROOT, SERVER
from pegboard.config.mistakes import ConfigReport, UnresolvedText, did_you_mean
from pegboard.config.source_file import KeyPath
from pegboard.config.typos import find_root_typos, find_typos
from pegboard.config.variables import Input, VariableSyntax
from pegboard.protocol.revisions import REVISIONS

MAIN: Final = "main"

_SERVERS: Final = ("toolboxes", MAIN, "mcpServers")
_PROJECT_FOLDERS: Final = frozenset({".vscode", ".cursor", ".gemini", ".codex"})
_GEMINI: Final = frozenset({"httpUrl", "includeTools", "excludeTools", "trust"})
# What is read of a server besides our own keys.
_KEYS_OF_CLAUDE: Final = ("serverUrl", "disabledTools", "oauth")
_KEYS_OF_GEMINI: Final = ("httpUrl", "tcp", "includeTools", "excludeTools", "oauth")
_KEYS_OF_VSCODE: Final = ("oauth",)
_KEYS_OF_CODEX: Final = (
    "startup_timeout_ms", "startup_timeout_sec", "tool_timeout_sec", "env_vars", "enabled_tools", "disabled_tools",
    "http_headers", "env_http_headers", "bearer_token_env_var", "scopes",
)  # fmt: skip
_TRANSPORT_KEYS: Final = frozenset({"command", "url", "board", "serverUrl", "httpUrl", "tcp"})
# Keys of ours that mean something else in their files.
_FOREIGN_KEYS: Final = frozenset({"timeout", "version", "tools", "auth", "arguments"})
_UNSUPPORTED: Final = {
    "sandboxEnabled": "the server runs without the sandbox that VS Code would give it",
    "headersHelper": "is a program that makes headers, which is not run here; give 'headers' or 'auth'",
    "authProviderType": "is not known here; give 'headers' or 'auth'",
    "experimental_environment": "is not known here; the server is started on this machine",
}


class TranslatedFile(NamedTuple):
    """A file in our own shape: how its variables are written, and where its relative paths begin."""

    tree: Json
    syntax: VariableSyntax
    folder: Path


def translate(tree: Json, file: Path, notes: ConfigReport) -> TranslatedFile:
    """The tree of a file as our own shape; from here on `notes` tells places as the file has them."""
    own = TranslatedFile(tree, VariableSyntax(), file.parent)
    if not isinstance(tree, dict):
        return own
    if "toolboxes" in tree:
        loose = [key for key in ("mcpServers", "servers", "mcp_servers") if key in tree]
        for key in loose:
            notes.add_mistake((key,), "stands beside 'toolboxes'", fix="move these servers into a toolbox")
        return own._replace(tree={key: value for key, value in tree.items() if key not in loose})
    settings = tree.get("mcp")
    if "mcp_servers" in tree:
        return _Translation(tree, ("mcp_servers",), file, notes).speak(_codex, _KEYS_OF_CODEX, VariableSyntax())
    if "servers" in tree:
        return _Translation(tree, ("servers",), file, notes).speak(
            _vscode, _KEYS_OF_VSCODE, _prompts_for_inputs(tree, file)
        )
    if "mcpServers" in tree:
        translation = _Translation(tree, ("mcpServers",), file, notes)
        if _is_gemini(tree["mcpServers"], file):
            return translation.speak(_gemini(settings), _KEYS_OF_GEMINI, VariableSyntax(bare=True))
        return translation.speak(_claude, _KEYS_OF_CLAUDE, VariableSyntax(fixed=_words(file)))
    if isinstance(settings, dict) and "servers" in settings:
        return _Translation(tree, ("mcp", "servers"), file, notes).speak(
            _vscode, _KEYS_OF_VSCODE, _prompts_for_inputs(settings, file)
        )
    return own._replace(tree=_explain(tree, notes))


def _explain(tree: dict[str, Json], notes: ConfigReport) -> Json:
    """What a file without any of the known keys might want to be; what was told of is not there any more."""
    if tree and all(isinstance(item, dict) and ("command" in item or "url" in item) for item in tree.values()):
        notes.refuse("the file: these look like servers; put them into an object under the key 'mcpServers'")
        return {"toolboxes": UnresolvedText()}
    told = {}
    for key in tree:
        hint = did_you_mean(key, ["toolboxes", "mcpServers", "mcp_servers"])
        if key not in ROOT.fields and hint.startswith("did"):
            notes.add_mistake((key,), "is no key of a configuration", fix=hint)
            told["toolboxes"] = UnresolvedText()
    return {key: value for key, value in tree.items() if not told or key in ROOT.fields} | told


class _ForeignEntry:
    """One of their servers on its way to ours."""

    def __init__(
        self,
        name: str,
        raw: Mapping[str, Json],
        keys: Collection[str],
        place: KeyPath,
        origin: KeyPath,
        translation: _Translation,
    ) -> None:
        self.name = name
        self.raw = {key: value for key, value in raw.items() if value is not None}
        self.made: dict[str, Any] = {}
        self._place = place
        self._origin = origin
        self._translation = translation
        for key, value in self.raw.items():
            if key in SERVER.fields and key not in _FOREIGN_KEYS:
                self.made[key] = value
            elif key in _UNSUPPORTED and value is not False:
                self.warn(key, _UNSUPPORTED[key])
        roadless = not _TRANSPORT_KEYS & self.raw.keys()
        if roadless:
            self._suggest()
        for key, meant in find_typos(self.raw, keys).items():
            if not (roadless and meant in ("command", "url")):
                self.warn(key, f"is not known, and not used; did you mean {meant!r}?")

    def warn(self, key: str, text: str) -> None:
        self._translation.notes.warn((*self._place, key), text)

    def put(self, key: str, value: Json, *, said: str) -> None:
        """Our key with what their key `said`."""
        self.made[key] = value
        self.came((key,), (said,))

    def came(self, ours: KeyPath, theirs: KeyPath) -> None:
        self._translation.came_from[(*self._place, *ours)] = (*self._origin, *theirs)

    def move(self, theirs: str, ours: str, change: Callable[[Json], Json] = lambda value: value) -> None:
        if theirs in self.raw:
            self.put(ours, change(self.raw[theirs]), said=theirs)

    def filter(self, only: str, without: str) -> None:
        """Lists of tools by name, those shown and those left out, as our filters."""
        shown, hidden = self.raw.get(only), self.raw.get(without)
        for key, names in ((only, shown), (without, hidden)):
            if names is not None and not isinstance(names, list):
                self.put("toolFilters", names, said=key)
                return
        if shown is not None or hidden is not None:
            kept = ["*"] if shown is None else [_exactly(name) for name in shown]
            left_out = [f"!{_exactly(name)}" if isinstance(name, str) else name for name in hidden or []]
            self.put("toolFilters", [*kept, *left_out], said=only if shown is not None else without)

    def _suggest(self) -> None:
        """What could be a misspelt way to the server; other unknown keys are their programs' own."""
        for key in self.raw:
            hint = did_you_mean(key, ["command", "url"])
            if key not in SERVER.fields and hint.startswith("did"):
                self._translation.notes.add_mistake((*self._place, key), "is not known", fix=hint)


class _Translation:
    """Their file on its way to ours; it remembers where each thing came from."""

    def __init__(self, tree: dict[str, Json], root: KeyPath, file: Path, notes: ConfigReport) -> None:
        self.notes = notes
        self.came_from: dict[KeyPath, KeyPath] = {_SERVERS: root, _SERVERS[:2]: (), _SERVERS[:1]: ()}
        self._tree = tree
        self._root = root
        self._file = file
        notes.locate = self._locate

    def speak(
        self, dialect: Callable[[_ForeignEntry], None], keys: Collection[str], syntax: VariableSyntax
    ) -> TranslatedFile:
        raw: Json = self._tree
        for key in self._root:
            raw = raw[key]
        servers = raw
        if isinstance(raw, dict):
            servers = {}
            for name, entry in raw.items():
                mended = _fix_name(name)
                place, origin = (*_SERVERS, mended), (*self._root, name)
                if mended != name:
                    self.came_from[place] = origin
                    self.notes.warn(place, f"is served as {mended!r}: names have only A-Z a-z 0-9 _ -, and no '__'")
                if mended in servers:
                    self.notes.add_mistake(
                        place, f"another server is served as {mended!r} too", fix="rename one of them"
                    )
                if not isinstance(entry, dict):
                    servers[mended] = entry
                    continue
                made = _ForeignEntry(name, entry, keys, place, origin, self)
                dialect(made)
                servers[mended] = made.made
        toolbox: dict[str, Json] = {"description": _describe(servers, self._file), "mcpServers": servers}
        if "names" in self._tree:
            toolbox["names"] = self._tree["names"]
            self.came_from[(*_SERVERS[:2], "names")] = ("names",)
        for key, meant in find_root_typos(self._tree, str(self._root[0])).items():
            self.notes.warn((key,), f"is not known, and not used; did you mean {meant!r}?")
        ours = {key: self._tree[key] for key in ROOT.fields if key in self._tree and key != "$schema"}
        return TranslatedFile({**ours, "toolboxes": {MAIN: toolbox}}, syntax, _project(self._file))

    def _locate(self, place: KeyPath) -> KeyPath:
        for length in range(len(place), 0, -1):
            origin = self.came_from.get(place[:length])
            if origin is not None:
                return (*origin, *place[length:])
        return place


# The dialects.


def _claude(entry: _ForeignEntry) -> None:
    """Claude Desktop and Code, Cursor, and those who write as they do."""
    if entry.raw.get("type") == "local":
        entry.put("type", "stdio", said="type")
    entry.move("serverUrl", "url")
    entry.move("timeout", "timeout", _seconds_or_milliseconds)
    tools = entry.raw.get("tools")
    if isinstance(tools, dict):
        entry.move("tools", "tools")
    entry.filter("tools" if isinstance(tools, list) else "", "disabledTools")
    if entry.raw.get("version") in REVISIONS:
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


def _gemini(settings: Json) -> Callable[[_ForeignEntry], None]:
    """Gemini, whose settings may say besides which servers are used."""
    chosen = settings if isinstance(settings, dict) else {}
    allowed, excluded = chosen.get("allowed"), chosen.get("excluded")

    def speak(entry: _ForeignEntry) -> None:
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

    return speak


def _vscode(entry: _ForeignEntry) -> None:
    env = entry.raw.get("env")
    if isinstance(env, dict):
        # VS Code takes numbers there, and null for what is not to be set.
        texts = {key: str(value) if type(value) in (int, float) else value for key, value in env.items()}
        entry.made["env"] = {key: value for key, value in texts.items() if value is not None}
    _oauth(entry)


def _codex(entry: _ForeignEntry) -> None:
    entry.move("startup_timeout_ms", "connectTimeout", _seconds)
    entry.move("startup_timeout_sec", "connectTimeout")
    entry.move("tool_timeout_sec", "timeout")
    entry.move("env_vars", "inherit", _names)
    entry.filter("enabled_tools", "disabled_tools")
    entry.move("http_headers", "headers")
    _codex_headers(entry)
    if "scopes" in entry.raw and "bearer_token_env_var" not in entry.raw:
        entry.put("auth", {"scopes": entry.raw["scopes"]}, said="scopes")


def _codex_headers(entry: _ForeignEntry) -> None:
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


def _oauth(entry: _ForeignEntry) -> None:
    """`oauth` as Claude Code, Gemini and VS Code have it."""
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


# What their values mean in ours.


def _is_gemini(servers: Json, file: Path) -> bool:
    entries = servers.values() if isinstance(servers, dict) else ()
    return file.parent.name == ".gemini" or any(isinstance(entry, dict) and _GEMINI & entry.keys() for entry in entries)


def _prompts_for_inputs(tree: Mapping[str, Json], file: Path) -> VariableSyntax:
    """VS Code's words, with the questions that the file would ask a person."""
    inputs = tree.get("inputs")
    found: dict[str, Input] = {}
    for entry in inputs if isinstance(inputs, list) else ():
        if isinstance(entry, dict) and isinstance(entry.get("id"), str):
            default = entry.get("default")
            about = entry.get("description")
            found[entry["id"]] = Input(
                about if isinstance(about, str) else "", default if isinstance(default, str) else None
            )
    return VariableSyntax(fixed=_words(file), inputs=found)


def _words(file: Path) -> dict[str, str]:
    project = str(_project(file))
    return {
        "workspaceFolder": project,
        "workspaceFolderBasename": Path(project).name,
        "CLAUDE_PROJECT_DIR": project,
        "userHome": str(Path("~").expanduser()),
        "pathSeparator": "/",
        "/": "/",
    }


def _project(file: Path) -> Path:
    """The folder a file speaks of: an editor's own folder is inside of it."""
    return file.parent.parent if file.parent.name in _PROJECT_FOLDERS else file.parent


def _fix_name(name: str) -> str:
    """A name that toolboxes take, for servers that are called as people like."""
    mended = re.sub(r"_{2,}", "_", re.sub(r"[^A-Za-z0-9_-]+", "-", name)).strip("_")
    return mended if mended.strip("-") else name


def _describe(servers: Json, file: Path) -> str:
    names = list(servers) if isinstance(servers, dict) else []
    more = ", …" if len(names) > 12 else ""
    return f"The servers of {file.name}: {', '.join(names[:12])}{more}"


def _exactly(name: Json) -> Json:
    """A name as a pattern that only it fits."""
    return re.sub(r"([*?\[])", r"[\1]", name) if isinstance(name, str) and name != "*" else name


def _from_variable(name: Json, before: str = "") -> Json:
    return f"{before}${{env:{name}}}" if isinstance(name, str) else name


def _seconds(value: Json) -> Json:
    return value / 1000 if isinstance(value, int | float) and not isinstance(value, bool) else value


def _seconds_or_milliseconds(value: Json) -> Json:
    """Those who write seconds write tens or hundreds of them, those who write milliseconds thousands."""
    many = isinstance(value, int | float) and not isinstance(value, bool) and value >= 1000
    return _seconds(value) if many else value


def _names(value: Json) -> Json:
    """Codex's `env_vars`: names, or tables with a name."""
    if not isinstance(value, list):
        return value
    return [item.get("name") if isinstance(item, dict) else item for item in value]
