"""What a gateway is made of, as its configuration file says it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias

from msgspec import UNSET, Struct, UnsetType

from pegboard.call import Json

Mode: TypeAlias = Literal["all", "dynamic", "proxy", "auto"]
Names: TypeAlias = Literal["qualified", "plain"]
Strictness: TypeAlias = Literal["lenient", "strict"]
Share: TypeAlias = Literal["all", "principal", "session"]
Kind: TypeAlias = Literal["stdio", "http", "sse", "websocket", "board"]
LockPolicy: TypeAlias = Literal["off", "report", "quarantine"]


class ArgumentOverride(Struct, frozen=True, kw_only=True):
    """An argument of a downstream tool as it is shown here; one with a `value` is hidden, and always sent so."""

    name: str | None = None
    description: str | None = None
    hidden: bool = False
    value: Json | UnsetType = UNSET
    default: Json | UnsetType = UNSET

    def __repr__(self) -> str:
        return f"ArgumentOverride(name={self.name!r}, hidden={self.hidden}, fixed={self.value is not UNSET})"


class ToolOverride(Struct, frozen=True, kw_only=True):
    """A downstream tool as it is shown here; None leaves what its server says."""

    name: str | None = None
    title: str | None = None
    description: str | None = None
    enabled: bool = True
    input_schema: Mapping[str, Json] | None = None
    annotations: Mapping[str, Json] | None = None
    tags: tuple[str, ...] = ()
    category: str = ""
    timeout: float | None = None
    arguments: Mapping[str, ArgumentOverride] = {}


class MiddlewareConfig(Struct, frozen=True, kw_only=True):
    """A middleware: a class of `pegboard.middleware` by its name, or any by `module:Name`, and what it is made with."""

    use: str
    order: float | None = None
    options: Mapping[str, Json] = {}

    def __repr__(self) -> str:
        return f"MiddlewareConfig(use={self.use!r}, order={self.order!r}, options={list(self.options)})"


class AuthConfig(Struct, frozen=True, kw_only=True):
    """How a server over HTTP is logged in to; "none" never does, whatever the server asks for."""

    kind: Literal["oauth", "client_credentials", "none"] = "oauth"
    client_id: str | None = None
    client_secret: str | None = None
    private_key: str | None = None
    client_metadata_url: str | None = None
    issuer: str | None = None
    scopes: tuple[str, ...] = ()
    redirect_port: int | None = None

    def __repr__(self) -> str:
        return f"AuthConfig(kind={self.kind!r})"


class ServerConfig(Struct, frozen=True, kw_only=True):
    """One downstream server; its repr tells nothing that could be a secret.

    `env` is all that a child is given besides what `inherit` names and what every program needs. Paths are absolute.
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
    enabled: bool = True
    concurrency: int = 64
    idle_seconds: float | None = None
    tool_filters: tuple[str, ...] = ("*",)
    tools: Mapping[str, ToolOverride] = {}
    arguments: Strictness | None = None
    tags: tuple[str, ...] = ()
    category: str = ""
    roots: tuple[str, ...] = ()
    middleware: tuple[MiddlewareConfig, ...] = ()
    auth: AuthConfig | None = None

    def __repr__(self) -> str:
        return f"ServerConfig(name={self.name!r}, kind={self.kind!r})"


class ToolboxConfig(Struct, frozen=True, kw_only=True):
    """A set of servers that are shown together."""

    name: str
    description: str
    names: Names = "qualified"
    mode: Mode | None = None
    arguments: Strictness | None = None
    middleware: tuple[MiddlewareConfig, ...] = ()
    servers: Mapping[str, ServerConfig] = {}


class GatewayConfig(Struct, frozen=True, kw_only=True):
    """A whole configuration; `secrets` are the values in it that nobody is shown."""

    path: str
    name: str = "pegboard"
    mode: Mode = "all"
    auto_tokens: int = 10_000
    name_budget: int = 64
    lock: LockPolicy = "report"
    lock_path: str = ""
    middleware: tuple[MiddlewareConfig, ...] = ()
    toolboxes: Mapping[str, ToolboxConfig] = {}
    warnings: tuple[str, ...] = ()
    secrets: frozenset[str] = frozenset()

    def __repr__(self) -> str:
        return f"GatewayConfig(path={self.path!r}, name={self.name!r}, toolboxes={list(self.toolboxes)})"
