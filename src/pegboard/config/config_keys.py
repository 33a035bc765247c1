"""The keys of a configuration and their types, also as a JSON Schema for editors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, TypeAlias, get_args

import msgspec
from msgspec import Struct

from pegboard.call import Json
from pegboard.config.annotated_types import object_of
from pegboard.config.confinement_keys import CONFINE, RESOURCES
from pegboard.config.inbound_auth import AUTH, ISSUER
from pegboard.config.quota_keys import AMOUNT, QUOTA, QUOTAS
from pegboard.config.rule_keys import CALLER, ITEM, RULES, SCALAR
from pegboard.config.value_types import (
    AnyValue,
    BooleanValue,
    ChoiceValue,
    IntegerValue,
    ListValue,
    MapValue,
    NumberValue,
    ObjectField,
    ObjectValue,
    TextValue,
    UnreadObject,
    ValueType,
)
from pegboard.protocol.json_values import as_object
from pegboard.protocol.revisions import REVISIONS
from pegboard.tools.argument_mapping import ArgumentOverride
from pegboard.tools.naming import MAX_NAME_LENGTH
from pegboard.tools.qualified_names import SMALLEST_BUDGET

RepairNotes: TypeAlias = Literal["text", "meta", "off"]
LoginKind: TypeAlias = Literal["oauth", "client_credentials", "exchange", "header", "none"]


class ToolOverride(Struct, frozen=True, kw_only=True):
    """Changes to a downstream tool; None keeps the server's own setting.

    name: the name that callers see.
    title: the title that callers see.
    description: replaces the server's description.
    enabled: false: hidden, and calls are rejected.
    input_schema: the schema for checking its arguments, in place of its own.
    annotations: hints such as readOnlyHint; they replace the server's own.
    tags: added to the tags of the server.
    category: the category for middleware and budgets.
    timeout: seconds without news, in place of the server's.
    arguments: its arguments, by the server's names.
    repair_notes: where results report repairs: text (for the model, too), meta or off.
    """

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
    repair_notes: RepairNotes | None = None


class MiddlewareConfig(Struct, frozen=True, kw_only=True):
    """A middleware and its arguments.

    use: a class of pegboard.middleware, or any other as module:Name.
    order: the lowest is outermost.
    options: its constructor arguments.
    """

    use: str
    order: float | None = None
    options: Mapping[str, Json] = {}

    def __repr__(self) -> str:
        return f"MiddlewareConfig(use={self.use!r}, order={self.order!r}, options={list(self.options)})"


class IdentityProviderConfig(Struct, frozen=True, kw_only=True):
    """The identity provider of a token exchange, and the gateway as its client.

    issuer: its URL.
    client_id: the client id of the gateway there.
    client_secret: its secret, as ${VARIABLE}.
    subject_type: what callers' tokens are.
    """

    issuer: str
    client_id: str
    client_secret: str | None = None
    subject_type: Literal["access_token", "id_token", "jwt"] = "access_token"

    def __repr__(self) -> str:
        return f"IdentityProviderConfig(issuer={self.issuer!r})"


class AuthConfig(Struct, frozen=True, kw_only=True):
    """How to log in to a server over HTTP; "none" never does, whatever the server asks for.

    kind: oauth: a person logs in; client_credentials: the gateway logs in itself; exchange: the caller's token is
        exchanged for one of the server; header: each user enters a key; none: never log in.
    per: who logs in with oauth: the operator once, or each user.
    client_id: the client id of the gateway at the authorization server.
    client_secret: its secret, as ${VARIABLE}.
    private_key: a private key in PEM format, or the file with one.
    client_metadata_url: the URL of the gateway's client metadata document.
    issuer: the only authorization server that may get the credentials.
    scopes: scopes to request in addition to those that the server asks for.
    redirect_port: the loopback port for the redirect of the browser.
    header: kind header: the header for the user's key.
    scheme: kind header: the word before the key: Bearer in Authorization, else none.
    key: kind header: the gateway's own key, with which it reads the lists of the server.
    audience: kind exchange: the audience to request, besides the server's URL.
    identity_provider: kind exchange: get an identity assertion (ID-JAG) there, and exchange that.
    """

    kind: LoginKind = "oauth"
    per: Literal["gateway", "user"] = "gateway"
    client_id: str | None = None
    client_secret: str | None = None
    private_key: str | None = None
    client_metadata_url: str | None = None
    issuer: str | None = None
    scopes: tuple[str, ...] = ()
    redirect_port: int | None = None
    header: str = "Authorization"
    scheme: str = ""
    key: str | None = None
    audience: str | None = None
    identity_provider: IdentityProviderConfig | None = None

    def __repr__(self) -> str:
        return f"AuthConfig(kind={self.kind!r})"


def _one_of(*words: str) -> ChoiceValue:
    return ChoiceValue({word: word for word in words})


_TEXT: Final = TextValue()
_TEXTS: Final = ListValue(_TEXT)
_COMMAND: Final = ListValue(TextValue(least=0), single=TextValue("a string or a list of strings", 0))
_SECONDS: Final = NumberValue()
_OBJECT: Final = MapValue(AnyValue())
_MODE: Final = _one_of("all", "dynamic", "proxy", "auto")
_STRICTNESS: Final = _one_of("lenient", "strict")
_REPAIR_NOTES: Final = _one_of("text", "meta", "off")
_NOTED: Final = "where results report repairs: text (for the model, too), meta or off"
_TRANSPORT: Final = ChoiceValue(
    {
        "stdio": "stdio",
        "local": "stdio",
        "http": "http",
        "streamable-http": "http",
        "streamableHttp": "http",
        "streamable_http": "http",
        "sse": "sse",
        "websocket": "websocket",
        "ws": "websocket",
    }
)

_MIDDLEWARE: Final = ListValue(
    object_of("a middleware", MiddlewareConfig, {"options": UnreadObject()}, short="use"),
    expected="a list of middleware",
)
_ARGUMENT: Final = object_of("an argument", ArgumentOverride)
_TOOL: Final = object_of("a tool", ToolOverride, {"timeout": _SECONDS, "arguments": MapValue(_ARGUMENT)})
_AUTH: Final = object_of(
    "auth",
    AuthConfig,
    {
        "kind": ChoiceValue({kind: kind for kind in get_args(LoginKind)} | {"clientCredentials": "client_credentials"}),
        "redirect_port": IntegerValue(1, 65535),
        "scheme": TextValue(least=0),
        "identity_provider": object_of("an identity provider", IdentityProviderConfig),
    },
    short="kind",
)

SERVER: Final = ObjectValue(
    "a server",
    {
        "command": ObjectField("command", _COMMAND, "the program to start; its arguments follow here or in args"),
        "args": ObjectField(
            "args",
            ListValue(TextValue(least=0), problem="{server}: 'args' must be an array"),
            "the arguments of the program",
        ),
        "env": ObjectField(
            "env",
            MapValue(
                TextValue("a string", 0),
                "an object of strings",
                "{server}: 'env' must be an object",
            ),
            "its environment variables",
        ),
        "envFile": ObjectField("env_file", _TEXT, "a file of NAME=value lines; env takes precedence"),
        "inherit": ObjectField("inherit", _TEXTS, "variables to pass from the gateway's own environment"),
        "cwd": ObjectField("cwd", _TEXT, "its working directory; default: the folder of this file"),
        "url": ObjectField("url", _TEXT, "the URL of the server: http, https, ws or wss"),
        "headers": ObjectField("headers", MapValue(TextValue(least=0), "an object of strings"), "sent with each request"),
        "board": ObjectField("board", _TEXT, "a Python file with a board, served in this process: tools.py or tools.py:board"),
        "transport": ObjectField("transport", _TRANSPORT, "the transport, if command or url do not imply it"),
        "type": ObjectField("type", _TRANSPORT, "the same as transport"),
        "version": ObjectField("version", _one_of(*REVISIONS), "the only protocol revision to use with it"),
        "timeout": ObjectField("timeout", _SECONDS, "seconds that a request may be without news: 60"),
        "connectTimeout": ObjectField("connect_timeout", _SECONDS, "seconds to connect: 10"),
        "maxTimeout": ObjectField("max_timeout", _SECONDS, "total seconds that a request may take: 600"),
        "idleTimeout": ObjectField("idle_seconds", _SECONDS, "seconds without a request after which it is stopped: never"),
        "share": ObjectField(
            "share", _one_of("all", "principal", "session"), "who shares a connection: all callers, one principal, one session"
        ),
        "lazy": ObjectField("lazy", BooleanValue(), "true: connect on the first request"),
        "required": ObjectField("required", BooleanValue(), "true: /ready answers 503 while it is not connected"),
        "enabled": ObjectField("enabled", BooleanValue(), "false: ignore this entry"),
        "disabled": ObjectField("disabled", BooleanValue(), "the opposite of enabled"),
        "concurrency": ObjectField("concurrency", IntegerValue(1, 10_000), "concurrent requests: 64"),
        "toolFilters": ObjectField("tool_filters", _TEXTS, 'patterns of tools to show; "!name" excludes one'),
        "tools": ObjectField("tools", MapValue(_TOOL, "an object of tools by name"), "changes to its tools, by their names"),
        "arguments": ObjectField("arguments", _STRICTNESS, "strict: arguments are not repaired"),
        "repairNotes": ObjectField("repair_notes", _REPAIR_NOTES, _NOTED),
        "tags": ObjectField("tags", _TEXTS, "for all its tools"),
        "category": ObjectField("category", _TEXT, "for all its tools"),
        "roots": ObjectField("roots", _TEXTS, "folders to report if it asks for roots outside of a call"),
        "middleware": ObjectField("middleware", _MIDDLEWARE, "middleware around the requests for its tools, prompts and resources"),
        "auth": ObjectField("auth", _AUTH, "how to log in to it"),
        "confine": ObjectField("confine", CONFINE, "true, or what the program may use besides the system's folders, on Linux"),
        "resources": ObjectField("resources", RESOURCES, "how much of the machine the program may use"),
    },
)  # fmt: skip

TOOLBOX: Final = ObjectValue(
    "a toolbox",
    {
        "description": ObjectField(
            "description",
            TextValue(problem="Toolbox '{toolbox}' must have a description"),
            "the purpose of the toolbox, for people and models",
        ),
        "names": ObjectField("names", _one_of("qualified", "plain"), "plain: its tools keep their own names"),
        "toolMode": ObjectField("mode", _MODE, "replaces the gateway's"),
        "arguments": ObjectField("arguments", _STRICTNESS, "strict: arguments are not repaired"),
        "repairNotes": ObjectField("repair_notes", _REPAIR_NOTES, _NOTED),
        "middleware": ObjectField(
            "middleware", _MIDDLEWARE, "middleware around the requests for its tools, prompts and resources"
        ),
        "mcpServers": ObjectField(
            "servers",
            MapValue(SERVER, "an object of servers by name", "Toolbox '{toolbox}' must have an 'mcpServers' object"),
            "its servers, by name",
        ),
    },
    required={
        "description": "Toolbox '{toolbox}' must have a description",
        "mcpServers": "Toolbox '{toolbox}' must have an 'mcpServers' object",
    },
)

_BUDGET: Final = IntegerValue(SMALLEST_BUDGET, MAX_NAME_LENGTH)
_ENDPOINT: Final = ObjectValue(
    "an endpoint",
    {
        "toolMode": ObjectField("mode", _MODE, "replaces the gateway's and its toolboxes'"),
        "nameBudget": ObjectField("name_budget", _BUDGET, "characters that a tool name may have there"),
    },
    short="toolMode",
)
_PRINCIPAL: Final = ObjectValue(
    "a principal", {"toolMode": ObjectField("mode", _MODE, "replaces every other")}, short="toolMode"
)

ROOT: Final = ObjectValue(
    "a configuration",
    {
        "$schema": ObjectField("schema", _TEXT, "the URL of this schema, for editors"),
        "name": ObjectField("name", _TEXT, "the server name that clients see"),
        "toolMode": ObjectField("mode", _MODE, "all: every tool; dynamic: those of opened toolboxes; proxy: meta-tools; auto"),
        "instructions": ObjectField(
            "instructions",
            ObjectValue(
                "instructions",
                {
                    "text": ObjectField("text", _TEXT, "the text, with tags such as {{toolboxes}}"),
                    "file": ObjectField("file", _TEXT, "the file with the text"),
                },
                short="text",
            ),
            "how a model should use this gateway; {{toolboxes}} stands for what it gets without this key",
        ),
        "listWait": ObjectField("list_wait", _SECONDS, "seconds that a list waits for servers that are starting: 10"),
        "autoTokens": ObjectField("auto_tokens", IntegerValue(0, 100_000_000), "tokens of definitions above which auto means proxy: 10000"),
        "nameBudget": ObjectField("name_budget", _BUDGET, "characters that a tool name may have: 64"),
        "lock": ObjectField(
            "lock",
            ObjectValue(
                "lock",
                {
                    "policy": ObjectField("policy", _one_of("off", "report", "quarantine"), "action for changed tools"),
                    "path": ObjectField("path", _TEXT, "the lock file; default: beside this file"),
                },
                short="policy",
            ),
            "what to do about tools that changed since they were accepted: report",
        ),
        "inherit": ObjectField("inherit", _TEXTS, "variables to pass to every process from the gateway's own environment"),
        "middleware": ObjectField("middleware", _MIDDLEWARE, "middleware around all requests for tools, prompts and resources"),
        "endpoints": ObjectField(
            "endpoints",
            MapValue(_ENDPOINT, "an object of endpoints by the names of their toolboxes"),
            "settings of single endpoints: of a toolbox, or * for the one of all",
        ),
        "principals": ObjectField(
            "principals", MapValue(_PRINCIPAL, "an object of principals by name"), "settings of single callers"
        ),
        "auth": ObjectField("auth", AUTH, "which credentials callers need over HTTP"),
        "vault": ObjectField(
            "vault",
            ObjectValue(
                "vault",
                {"key": ObjectField("key", _TEXT, "the key that encrypts them, as ${file:PATH}; default: PEGBOARD_SECRET")},
            ),
            "where users' credentials for servers are kept",
        ),
        "rules": ObjectField("rules", RULES, "what each caller may see and use; the first rule that matches decides"),
        "quotas": ObjectField("quotas", QUOTAS, "what each caller may use: requests, calls, bytes, tokens and more"),
        "toolboxes": ObjectField(
            "toolboxes",
            MapValue(TOOLBOX, "an object of toolboxes by name", "Configuration must have a 'toolboxes' object"),
            "the toolboxes, by name",
        ),
    },
    required={"toolboxes": "Configuration must have a 'toolboxes' object, or 'mcpServers' as in the file of a client"},
)  # fmt: skip


_SHARED: Final[Mapping[str, ValueType]] = {
    "toolbox": TOOLBOX,
    "server": SERVER,
    "middleware": _MIDDLEWARE,
    "issuer": ISSUER,
    "caller": CALLER,
    "item": ITEM,
    "quota": QUOTA,
    "amount": AMOUNT,
    "scalar": SCALAR,
    "toolMode": _MODE,
    "strictness": _STRICTNESS,
    "repairNotes": _REPAIR_NOTES,
    "transport": _TRANSPORT,
    "seconds": _SECONDS,
    "boolean": BooleanValue(),
    "strings": _TEXTS,
    "oneOrMoreStrings": ListValue(_TEXT, single=_TEXT),
    "object": _OBJECT,
}
"""The definitions of the schema, by name: each is written once, and `$ref` stands where its type is used."""


def build_schema() -> dict[str, Json]:
    """The JSON Schema of a configuration, as shipped for editors."""
    names = {_canonical(kind.schema()): name for name, kind in _SHARED.items()}
    definitions = {name: _refer_inside(kind.schema(), names) for name, kind in _SHARED.items()}
    definitions["server"]["anyOf"] = [{"required": [key]} for key in ("command", "url", "board")]
    root = _refer_inside(ROOT.schema(), names)
    name = {"pattern": r"^(?!_)(?!.*__)(?!.*_$)[A-Za-z0-9_-]+$|\$\{"}
    _extend_property(definitions["toolbox"], "mcpServers", {"propertyNames": name, "minProperties": 1})
    _extend_property(root, "toolboxes", {"propertyNames": name})
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Configuration of a Pegboard gateway",
        **root,
        "$defs": definitions,
    }


def _refer_inside(schema: Mapping[str, Json], names: Mapping[bytes, str]) -> dict[str, Json]:
    """The schema, with references in place of the definitions inside it; `names` are by the texts of definitions."""
    return {key: _refer(value, names) for key, value in schema.items()}


def _refer(value: Json, names: Mapping[bytes, str]) -> Json:
    if isinstance(value, list):
        return [_refer(item, names) for item in value]
    if not isinstance(value, dict):
        return value
    about = {"description": value["description"]} if "description" in value else {}
    name = names.get(_canonical({key: item for key, item in value.items() if key not in about}))
    return _refer_inside(value, names) if name is None else {"$ref": f"#/$defs/{name}", **about}


def _canonical(schema: Mapping[str, Json]) -> bytes:
    return msgspec.json.encode(schema, order="deterministic")


def _extend_property(schema: dict[str, Json], name: str, keywords: Mapping[str, Json]) -> None:
    properties = as_object(schema["properties"])
    schema["properties"] = {**properties, name: {**as_object(properties[name]), **keywords}}
