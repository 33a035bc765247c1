"""The configuration of a gateway, read from its file."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import msgspec
from msgspec import Struct

from pegboard.accounts.quota import Quotas
from pegboard.call import Json
from pegboard.catalog.instructions_template import InstructionsTemplate, read_instructions
from pegboard.config.config_keys import ROOT, SERVER, AuthConfig, MiddlewareConfig, RepairNotes, ToolOverride
from pegboard.config.confinement_keys import ChildResources, Confinement
from pegboard.config.foreign.client_formats import translate
from pegboard.config.inbound_auth import InboundAuthConfig
from pegboard.config.inherited_variables import network_secrets
from pegboard.config.middleware_options import check_middleware_entries
from pegboard.config.mistakes import ConfigReport, did_you_mean
from pegboard.config.rule_keys import check_approvers, check_patterns
from pegboard.config.secret_sources import SOURCES, SecretSources
from pegboard.config.server_entry import ServerEntryReader, collect_secrets
from pegboard.config.source_file import KeyPath, ParsedSource, parse_source, read_source
from pegboard.config.variables import Variables
from pegboard.errors import DeclarationError, SetupError
from pegboard.protocol.json_values import as_object
from pegboard.rules.rule import Rule
from pegboard.tools.qualified_names import check_part

Mode: TypeAlias = Literal["all", "dynamic", "proxy", "auto"]
Names: TypeAlias = Literal["qualified", "plain"]
Strictness: TypeAlias = Literal["lenient", "strict"]
Share: TypeAlias = Literal["all", "principal", "session"]
Kind: TypeAlias = Literal["stdio", "http", "sse", "websocket", "board"]
LockPolicy: TypeAlias = Literal["off", "report", "quarantine"]

_KEPT_IF_UNUSABLE: Final = ("name", "kind", "enabled", "required")
FILES: Final = ("pegboard.json", "pegboard.toml", "workbench-config.json")
"""The default names of configuration files."""


class ServerConfig(Struct, frozen=True, kw_only=True):
    """One downstream server, with the keys of docs/gateway-config.md; its repr contains no secrets.

    `env` is the environment of a child, besides what `inherit` names and what every program needs. Paths are absolute.
    `connect_timeout`, `max_timeout` and `idle_seconds` are in seconds; `tool_filters` choose which tools are served.
    `repair_notes` is where results report repairs. `principal_headers` refer to the caller. `confine` and `resources` limit a child. `problem` says why the entry cannot be used, such as a missing variable.
    """

    name: str
    kind: Kind
    command: tuple[str, ...] = ()
    env: Mapping[str, str] = {}
    inherit: tuple[str, ...] = ()
    cwd: str | None = None
    url: str = ""
    headers: Mapping[str, str] = {}
    board: str = ""
    version: str | None = None
    timeout: float = 60.0
    connect_timeout: float = 10.0
    max_timeout: float = 600.0
    share: Share = "all"
    lazy: bool = False
    required: bool = False
    enabled: bool = True
    concurrency: int = 64
    idle_seconds: float | None = None
    tool_filters: tuple[str, ...] = ("*",)
    tools: Mapping[str, ToolOverride] = {}
    arguments: Strictness | None = None
    repair_notes: RepairNotes | None = None
    tags: tuple[str, ...] = ()
    category: str = ""
    roots: tuple[str, ...] = ()
    middleware: tuple[MiddlewareConfig, ...] = ()
    auth: AuthConfig | None = None
    confine: Confinement | None = None
    resources: ChildResources | None = None
    principal_headers: Mapping[str, str] = {}
    problem: str = ""

    @property
    def of_each_user(self) -> bool:
        """Whether each user connects the server themselves."""
        return self.auth is not None and (self.auth.kind == "header" or self.auth.per == "user")

    @property
    def own_headers(self) -> Mapping[str, str]:
        """The headers of the gateway's own requests, such as those for lists."""
        auth = self.auth
        if auth is None or auth.kind != "header" or auth.key is None:
            return self.headers
        return {**self.headers, auth.header: f"{auth.scheme} {auth.key}".strip()}

    @property
    def exchanges(self) -> bool:
        """Whether the caller's token is exchanged for one of the server."""
        return self.auth is not None and self.auth.kind == "exchange"

    @property
    def is_personal(self) -> bool:
        """Whether requests carry something of their caller, so that callers cannot share a connection."""
        return bool(self.principal_headers) or self.of_each_user or self.exchanges

    def child_env(self, environ: Mapping[str, str]) -> dict[str, str]:
        """The variables of a child process besides those that every program needs."""
        return {**{name: environ[name] for name in self.inherit if name in environ}, **self.env}

    def __repr__(self) -> str:
        return f"ServerConfig(name={self.name!r}, kind={self.kind!r})"


class ToolboxConfig(Struct, frozen=True, kw_only=True):
    """A set of servers that are shown together, with the keys of docs/gateway-config.md.

    `mode` is that of its endpoint, `repair_notes` where the results of its tools report repairs.
    """

    name: str
    description: str
    names: Names = "qualified"
    mode: Mode | None = None
    arguments: Strictness | None = None
    repair_notes: RepairNotes | None = None
    middleware: tuple[MiddlewareConfig, ...] = ()
    servers: Mapping[str, ServerConfig] = {}


INSTRUCTION_VARIABLES: Final = ("name", "toolboxes")
"""The variables in the instructions of a gateway."""

MAIN: Final = "*"
"""The name of the endpoint of all toolboxes in a configuration."""


class EndpointConfig(Struct, frozen=True, kw_only=True):
    """Settings of one endpoint; None keeps the general setting."""

    mode: Mode | None = None
    name_budget: int | None = None


class PrincipalConfig(Struct, frozen=True, kw_only=True):
    """Settings of one principal."""

    mode: Mode | None = None


class GatewayConfig(Struct, frozen=True, kw_only=True):
    """A whole configuration, with the keys of docs/gateway-config.md; `secrets` are its values that must not be shown.

    `instructions` is a template for clients. `endpoints` are by the name of their toolbox; `*` is the one of all. `mode`, `auto_tokens` and `name_budget` are the
    defaults for all of them, `list_wait` the seconds that a list waits for starting servers. `lock_path` is the lock
    file, `auth` which credentials callers need, `vault_key` encrypts those of users for servers, and `warnings` are what was wrong with the file.
    """

    path: str
    name: str = "pegboard"
    mode: Mode = "all"
    auto_tokens: int = 10_000
    list_wait: float = 10.0
    instructions: str = ""
    name_budget: int = 64
    lock: LockPolicy = "report"
    lock_path: str = ""
    middleware: tuple[MiddlewareConfig, ...] = ()
    toolboxes: Mapping[str, ToolboxConfig] = {}
    endpoints: Mapping[str, EndpointConfig] = {}
    principals: Mapping[str, PrincipalConfig] = {}
    auth: InboundAuthConfig | None = None
    rules: tuple[Rule, ...] = ()
    vault_key: str = ""
    quotas: Quotas = Quotas()
    warnings: tuple[str, ...] = ()
    secrets: frozenset[str] = frozenset()

    def __repr__(self) -> str:
        return f"GatewayConfig(path={self.path!r}, name={self.name!r}, toolboxes={list(self.toolboxes)})"


def find_config(environ: Mapping[str, str]) -> Path:
    """The default configuration file: PEGBOARD_CONFIG, WORKBENCH_CONFIG, or one in this folder."""
    named = environ.get("PEGBOARD_CONFIG") or environ.get("WORKBENCH_CONFIG")
    if named:
        return Path(named)
    for name in FILES:
        if Path(name).is_file():
            return Path(name)
    raise SetupError(f"No configuration found: pass a file, set PEGBOARD_CONFIG, or create {FILES[0]} here")


def read_config(
    config: str | Path | Mapping[str, Any],
    environ: Mapping[str, str] | None = None,
    boards: Collection[str] = (),
    *,
    text: str | None = None,
    sources: SecretSources = SOURCES,
    report: ConfigReport | None = None,
) -> GatewayConfig:
    """Read the configuration in a file, or one that is a mapping; SetupError reports all mistakes in it.

    `config` is the path of a file, or a mapping with the keys of one, whose paths are relative to the current folder and
    which has no lock file. `environ` are the variables that it can refer to; without it, those of this process. `boards`
    are the names of boards that the program has itself. `text` is checked in place of the text of the file: no variable has
    to be set, and no secret is read. `sources` read the files and commands that hold secrets. `report` collects the
    mistakes, for a caller that names their places itself.
    """
    surroundings = os.environ if environ is None else environ
    given = isinstance(config, Mapping)
    if isinstance(config, Mapping):
        file = Path.cwd() / "configuration"
        source = ParsedSource(_plain_tree(config), {}, [])
    else:
        file = Path(config).expanduser().absolute()
        source = read_source(file) if text is None else parse_source(text, file)
    notes = report or ConfigReport("the configuration" if given else str(config), source.lines)
    for place, first, second in source.twice:
        lines = f"both on line {first}" if first == second else f"on lines {first} and {second}"
        notes.add_mistake(place, f"is given twice, {lines}", fix="rename or remove one of them")
    spoken = translate(source.tree, file, notes)
    disabled = _find_disabled(spoken.tree, surroundings) if text is None else [()]
    variables = Variables(surroundings, notes, spoken.syntax, disabled, spoken.folder, sources)
    tree = variables.expand(spoken.tree)
    if not isinstance(tree, dict):
        notes.add_mistake((), "Configuration must have a 'toolboxes' object", got=tree, expected="an object")
        notes.raise_if_any()
    values = ROOT.read(tree, (), notes)
    entries = ServerEntryReader(spoken.folder, surroundings, notes, boards)
    collect_secrets(values, notes)
    for secret in network_secrets(surroundings):
        notes.keep_secret(secret)
    inherited = entries.inherited(values.pop("inherit", ()), ("inherit",))
    _resolve(values, as_object(tree), entries, notes)
    _read_instructions(values, entries, notes)
    notes.raise_if_any()
    for toolbox in values.get("toolboxes", {}).values():
        for server in toolbox.get("servers", {}).values():
            if server["kind"] == "stdio":
                server["inherit"] = (*inherited, *server.get("inherit", ()))
    lock = values.pop("lock", {})
    values.pop("schema", None)
    values["vault_key"] = values.pop("vault", {}).get("key", "")
    values["lock"] = lock.get("policy", "report")
    default_lock = "" if given else str(file.with_suffix(".lock.json"))
    values["lock_path"] = str(entries.path(lock["path"])) if "path" in lock else default_lock
    values.update(path="" if given else str(file), warnings=notes.shown_warnings(), secrets=frozenset(notes.secrets))
    return msgspec.convert(values, GatewayConfig)


def _plain_tree(config: Mapping[str, Any]) -> Json:
    try:
        # A path is a text in a file.
        return msgspec.to_builtins(config, str_keys=True, enc_hook=os.fspath)
    except (TypeError, ValueError) as problem:
        raise SetupError(f"the configuration has a value that a file could not have: {problem}") from None


class LateReport(ConfigReport):
    """Mistakes that are found when a configuration is used; the first one looks up the lines of the file again."""

    def __init__(self, config: GatewayConfig) -> None:
        super().__init__(config.path or "the configuration")
        self.secrets |= config.secrets
        self._path = config.path

    def locate(self, place: KeyPath) -> KeyPath:
        path, self._path = self._path, ""
        if path:
            # The file may have been removed.
            with suppress(SetupError):
                source = read_source(Path(path))
                unheard = ConfigReport("")
                translate(source.tree, Path(path), unheard)
                self.lines, self.origins = source.lines, unheard.origins
        return super().locate(place)


def _find_disabled(tree: Json, environ: Mapping[str, str]) -> list[KeyPath]:
    """The paths of servers that are not used."""
    unheard = ConfigReport("")
    variables = Variables(environ, unheard)

    def holds(server: Mapping[str, Json], key: str) -> bool | None:
        flag = SERVER.fields[key].kind.read(variables.expand(server.get(key)), (), unheard)
        return flag if isinstance(flag, bool) else None

    return [
        ("toolboxes", toolbox, "mcpServers", name)
        for toolbox, box in as_object(as_object(tree).get("toolboxes")).items()
        for name, server in as_object(as_object(box).get("mcpServers")).items()
        if isinstance(server, dict) and (holds(server, "enabled") is False or holds(server, "disabled"))
    ]


def is_allowed(filters: Iterable[str], name: str) -> bool:
    """Whether a tool of a server is shown: a pattern includes it, and none excludes it."""
    shown = False
    for pattern in filters:
        if pattern.startswith("!"):
            if fnmatchcase(name, pattern[1:]):
                return False
        elif not shown:
            shown = fnmatchcase(name, pattern)
    return shown


def describe_unused(server: ServerConfig, names: Collection[str]) -> tuple[str, ...]:
    """Warnings about tools that the server does not have: filters that match none, changes to unknown ones."""
    # An exclusion may be meant for tools that are added later.
    filters = [
        pattern for pattern in server.tool_filters if pattern != "*" and not re.match(r"![^*?\[]*+[*?\[]", pattern)
    ]
    messages = [
        f"toolFilters: no tool of {server.name!r} matches {pattern!r}; {did_you_mean(pattern.removeprefix('!'), names)}"
        for pattern in filters
        if not any(fnmatchcase(name, pattern.removeprefix("!")) for name in names)
    ]
    messages += [
        f"tools: {server.name!r} has no tool {own!r}; {did_you_mean(own, names)}"
        for own in server.tools
        if own not in names
    ]
    return tuple(messages)


def _resolve(values: dict[str, Any], tree: Mapping[str, Json], entries: ServerEntryReader, notes: ConfigReport) -> None:
    """Check and resolve keys that depend on each other."""
    servers_of = {name: tuple(toolbox.get("servers", {})) for name, toolbox in values.get("toolboxes", {}).items()}
    check_patterns(values.get("rules", ()), servers_of, notes)
    check_approvers(values.get("rules", ()), notes, has_auth="auth" in tree)
    check_middleware_entries(values, (), notes, entries.path)
    toolboxes = values.get("toolboxes", {})
    if not toolboxes and isinstance(tree.get("toolboxes"), dict) and not tree["toolboxes"]:
        notes.warn(("toolboxes",), "is empty, so nothing is served")
    for name in values.get("endpoints", {}):
        if name not in toolboxes and name != MAIN:
            known = [MAIN, *toolboxes]
            notes.add_mistake(("endpoints", name), f"unknown toolbox {name!r}", fix=did_you_mean(name, known))
    _check_names(toolboxes, "toolbox", ("toolboxes",), notes)
    for name, toolbox in toolboxes.items():
        place: KeyPath = ("toolboxes", name)
        toolbox["name"] = name
        check_middleware_entries(toolbox, place, notes, entries.path)
        servers = toolbox.get("servers", {})
        written = as_object(as_object(tree["toolboxes"])[name]).get("mcpServers")
        if isinstance(written, dict) and not written:
            notes.add_mistake(
                (*place, "mcpServers"), f"Toolbox '{name}' must have at least one MCP server", fix="add one"
            )
        _check_names(servers, "server", (*place, "mcpServers"), notes)
        for server in servers:
            inside = (*place, "mcpServers", server)
            check_middleware_entries(servers[server], inside, notes, entries.path)
            is_used = servers[server].get("enabled", True) and not servers[server].get("disabled", False)
            # An unused server may be incomplete, and one whose variables are missing is.
            problem = notes.problem_of(inside) if is_used else ""
            settling = entries if is_used and not problem else entries.ignored_variables()
            servers[server] = settling.resolve(servers[server], inside, as_object(as_object(written).get(server)))
            if problem:
                kept = {key: value for key, value in servers[server].items() if key in _KEPT_IF_UNUSABLE}
                servers[server] = {**kept, "problem": problem}


def _read_instructions(values: dict[str, Any], entries: ServerEntryReader, notes: ConfigReport) -> None:
    given = values.pop("instructions", None)
    if given is None:
        return
    if len(given) != 1:
        notes.add_mistake(("instructions",), got={}, expected="either 'text' or 'file'")
        return
    try:
        text = given["text"] if "text" in given else read_instructions(entries.path(given["file"]))
        InstructionsTemplate(text, INSTRUCTION_VARIABLES)
    except DeclarationError as problem:
        notes.add_mistake(("instructions",), str(problem).removeprefix("instructions: "))
    else:
        values["instructions"] = text


def _check_names(names: Iterable[str], what: str, place: KeyPath, notes: ConfigReport) -> None:
    seen: dict[str, str] = {}
    for name in names:
        try:
            check_part(name, what, "")
        except SetupError as error:
            notes.add_mistake((*place, name), str(error).removeprefix(": "))
        first = seen.setdefault(name.casefold(), name)
        if first != name:
            problem = f"there is also a {what} {first!r}; names must differ in more than case"
            notes.add_mistake((*place, name), problem, fix="rename one of them")
